"""The README's code runs as it stands there, and gives what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def after_the_readme(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run all Python blocks, one after the other, beside a folder ``train``; what they leave behind."""
    folder = tmp_path_factory.mktemp("readme")
    rng = np.random.default_rng(0)
    for number in range(300):
        path = folder / "train" / f"class_{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (48, 64, 3)).astype(np.uint8)).save(path)
    namespace: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks("python"):
            exec(compile(block, "README.md", "exec"), namespace)
        namespace["rest"], namespace["rest of the resumed"] = list(namespace["batches"]), list(namespace["resumed"])
    return namespace


def test_batches_are_what_the_comment_beside_the_loop_says(after_the_readme):
    images, labels = after_the_readme["images"], after_the_readme["labels"]
    assert (images.dtype, images.shape) == (torch.float16, (128, 3, 224, 224))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert (labels.dtype, labels.shape) == (torch.int64, (128,))
    assert after_the_readme["classes"] == ("class_0", "class_1", "class_2")


def test_the_resumed_loader_gives_the_rest_of_the_epoch(after_the_readme):
    rest, resumed = after_the_readme["rest"], after_the_readme["rest of the resumed"]
    assert len(rest) == len(resumed) == 1
    for ours, theirs in zip(rest[0], resumed[0], strict=True):
        assert torch.equal(ours, theirs)


def test_the_diff_for_ffcvs_users_ends_in_the_imports_of_the_example():
    (diff,) = blocks("diff")
    removed = [line[1:] for line in diff.splitlines() if line.startswith("-")]
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    assert [line.replace("ffcv", "gpubeton", 1) for line in removed] == added
    example = next(block for block in blocks("python") if "for images, labels in loader" in block)
    assert [line for line in example.splitlines() if "from gpubeton" in line] == added


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
