"""Every block of code of the documentation runs as it is printed."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import pytest
import torch

from tests.docs.pages import PAGES, RUN, SHOWN, Block, blocks, ends_in, matches, prepare, run

WITH_CODE = [page for page in PAGES if any(block.language in RUN and block.why is None for block in blocks(page))]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture
def started_by_torchrun(monkeypatch):
    """The environment that torchrun gives to the only process of a group."""
    environment = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield
    # A program's modules are gone when it ends; here other tests come after it.
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if "accelerate" in sys.modules:
        sys.modules["accelerate"].state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.filterwarnings("error:.*the bits of float16 numbers")
# Lightning's remarks about small data and what else could be installed; a deprecation in its own code.
@pytest.mark.filterwarnings("ignore:The number of training batches", "ignore:You passed in a `val_dataloader`")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated", "ignore:Starting from v1.9.0")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")  # a run that is resumed
@pytest.mark.usefixtures("started_by_torchrun")
@pytest.mark.parametrize("page", WITH_CODE)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, prepared, tmp_path, monkeypatch):
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    if any("convert train train.beton" in block.text for block in blocks(page)):
        (folder / "train.beton").unlink()  # the page makes it
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.language in RUN and block.why is None:
            run(block, namespace)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_has_a_language_and_a_reason_if_it_does_not_run(page):
    runnable = RUN | SHOWN | {"sh"}
    assert [f"line {block.line}: {block.language!r}" for block in blocks(page) if block.language not in runnable] == []
    left_out = [block.line for block in blocks(page) if block.language == "sh" and block.why is None]
    assert left_out == [], "a block of sh does not run: give the reason, or make it console"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_code_fits_the_column_of_the_site(page):
    # `ruff format --preview --config line-length=88 PAGE` formats the Python of a page.
    code = [block for block in blocks(page) if block.language in {*RUN, "sh"}]
    assert [block.line for block in code if max(map(len, block.text.splitlines())) > 88] == []


def test_few_blocks_of_python_do_not_run():
    left_out = [block for page in PAGES for block in blocks(page) if block.language == "python" and block.why]
    assert {block.why for block in left_out} <= {
        "it needs a GPU",
        "it needs albumentations and torchvision",
        "it needs an account",
        "it needs a cluster; tests/dataset/test_engines.py runs the same",
        "it needs a model",
        "it needs an object store",
        "it needs nvidia-dali",
        "it needs several processes",
    }
    assert len(left_out) <= 9


def test_the_output_of_a_command_is_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(Block("page", 1, "console", "$ echo one two\none ...\n$ echo three \\\n  four\nthree   four\n", None), {})
    with pytest.raises(AssertionError, match="expected"):
        run(Block("page", 1, "console", "$ echo one\ntwo\n", None), {})
    with pytest.raises(AssertionError, match="status 3"):
        run(Block("page", 1, "console", "$ exit 3\n", None), {})
    for through in ("", " | cat"):
        run(Block("page", 1, "console", f"$ gpubeton info --help{through}\n...Usage: ...\n", None), {})
        with pytest.raises(AssertionError, match="status 2"):
            run(Block("page", 1, "console", f"$ gpubeton info none.beton{through}\n", None), {})
    assert matches("", "anything")
    assert not matches("a b", "a b c")


def test_an_error_in_a_block_names_its_page_and_line():
    with pytest.raises(ZeroDivisionError) as caught:
        run(Block("page.md", 11, "python", "x = 1\nx / 0\n", None), {})
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == ("page.md", 12)


def test_the_new_side_of_a_diff_is_run():
    assert ends_in("-a\n+b\n c\n") == "b\nc\n"
