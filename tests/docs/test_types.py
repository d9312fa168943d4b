"""The types that the package declares, as mypy sees them in users' code."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, ends_in

#: Code of pages has functions without types, as scripts have. In a comment of each file: options of the command would
#: change how mypy sees torch, whose types take it a minute. So it reads what `make check` has kept of them.
OPTIONS = """
# mypy: allow-untyped-defs, allow-untyped-calls, allow-any-generics, allow-redefinition, ignore-missing-imports
# mypy: disable-error-code="redundant-expr,truthy-bool,possibly-undefined", no-warn-unreachable
"""

#: Choices with a slip of the pen, one in a line, and the right word.
WRONG = {
    'Loader("train.beton", 8, on_error="rase")': "raise",
    'Loader("train.beton", 8, decoder="jpeg")': "nvjpeg",
    'Loader("train.beton", 8, order="shuffle")': "quasi_random",
    'Loader("train.beton", 8, device=2.5)': "int | device",
    'RandomResizedCropRGBImageDecoder((8, 8), interpolation="linear")': "bilinear",
    'FollowImage("image", "linear")': "bilinear",
    'PadRGBImageDecoder((8, 8), position="left")': "top-left",
    'RandomRotation(20, "bicubic")': "nearest",
    'TransformBoxes(keep="some")': "visible",
    'DatasetWriter("x.beton", {}).from_indexed_dataset([], on_error="replace")': "skip",
}
IMPORTS = """
import numpy as np
import torch
from gpubeton import DatasetWriter, Loader
from gpubeton.fields.decoders import FollowImage, PadRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.pipeline import DrawnParameters
from gpubeton.transforms import NormalizeImage, RandomRotation, ToDevice, ToTensor, TransformBoxes

"""
RIGHT = """
loader = Loader("train.beton", 8, order="random", on_error="skip", decoder="entries", device=torch.device("cpu"))
loader.on_error, loader.order, loader.decoder = "replace", "window", "auto"
images: torch.Tensor
for images, labels in loader:
    reveal_type(images.float())
reveal_type(next(iter(loader)))
NormalizeImage(np.full(3, 100), [1, 2, 3], torch.bfloat16), NormalizeImage(1, 2.5)
"""


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """The messages of mypy, by the name of the file: in one process, because torch's types take it a minute."""
    folder = tmp_path_factory.mktemp("typed")
    for page in PAGES:
        (folder / file_of(page)).write_text(code_of(page) + OPTIONS)
    (folder / "wrong.py").write_text(IMPORTS + "\n".join(WRONG) + OPTIONS)
    (folder / "right.py").write_text(IMPORTS + RIGHT + OPTIONS)
    return run_mypy(folder)


def file_of(page: str) -> str:
    return page.removesuffix(".md").replace("/", "_") + ".py"


def code_of(page: str) -> str:
    """The Python of a page that runs, in the lines in which it is there."""
    code = ""
    for block in blocks(page):
        if block.language in {"python", "diff"} and block.why is None:
            code += "\n" * (block.line - 1 - code.count("\n"))
            code += block.text if block.language == "python" else ends_in(block.text)
    return code


def run_mypy(folder) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--show-absolute-path", *sorted(map(str, folder.iterdir()))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    messages: dict[str, list[str]] = {path.name: [] for path in folder.iterdir()}
    # Of a file that has not changed, mypy prints the path that it had before.
    for name, message in re.findall(r"^\S*/typed\d+/([\w.]+\.py):(\d+: .*)$", done.stdout, re.MULTILINE):
        messages[name].append(message)
    return messages


def test_the_code_of_the_pages_has_the_types_that_the_package_declares(messages):
    assert {page: messages[file_of(page)] for page in PAGES if messages[file_of(page)]} == {}


@pytest.mark.parametrize("line", WRONG)
def test_a_word_that_is_no_choice_is_an_error_that_names_the_choices(messages, line):
    number = IMPORTS.count("\n") + 1 + list(WRONG).index(line)
    (message,) = [message for message in messages["wrong.py"] if message.startswith(f"{number}: error")]
    assert WRONG[line] in message


def test_a_loop_may_declare_the_types_of_a_batch(messages):
    revealed = [message.partition("Revealed type is ")[2].strip('"') for message in messages["right.py"]]
    assert revealed == ["torch._tensor.Tensor", "tuple[Any, ...]"]
