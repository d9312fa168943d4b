"""The README's code gives the printed results; that all of it runs is tested in tests/docs."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from tests.docs.pages import blocks, ends_in, prepare, run


def after(page: str, folder, last: str = "") -> dict[str, Any]:
    """Run the Python of a page in a folder of a reader's, up to a block with that text; the names that it leaves."""
    prepare(folder)
    namespace: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in blocks(page):
            if block.language == "python" and block.why is None:
                run(block, namespace)
                if "load_state_dict" in block.text:
                    namespace["rest"] = list(namespace["batches"])
                    namespace["rest of the resumed"] = list(namespace["resumed"])
                if last and last in block.text:
                    break
    return namespace


def test_batches_have_the_dtypes_and_shapes_of_the_comment_beside_the_loop(tmp_path):
    names = after("README.md", tmp_path)
    images, labels = names["images"], names["labels"]
    assert (images.dtype, images.shape) == (torch.float16, (128, 3, 224, 224))
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert (labels.dtype, labels.shape) == (torch.int64, (128,))


def test_the_first_batch_of_the_quickstart_goes_into_a_network_and_a_loss(tmp_path):
    names = after("docs/quickstart.md", tmp_path, 'Loader("train", 64')
    images, labels = names["images"], names["labels"]
    assert (images.dtype, images.shape, float(images.abs().max()) < 3) == (torch.float32, (64, 3, 224, 224), True)
    logits = torch.nn.Conv2d(3, 3, 3)(images).mean(dim=(2, 3))
    assert torch.nn.functional.cross_entropy(logits, labels).isfinite()


def test_the_resumed_loader_of_the_training_guide_gives_the_rest_of_the_epoch(tmp_path):
    names = after("docs/guides/training.md", tmp_path, "load_state_dict")
    rest, resumed = names["rest"], names["rest of the resumed"]
    assert len(rest) == len(resumed) == 3
    for ours, theirs in zip(rest, resumed, strict=True):
        assert all(torch.equal(our, other) for our, other in zip(ours, theirs, strict=True))


def test_the_diff_for_ffcvs_users_ends_in_the_imports_of_the_example():
    for page in ("README.md", "docs/guides/from_ffcv.md"):
        (diff,) = [block.text for block in blocks(page) if block.language == "diff"]
        removed = [line[1:] for line in diff.splitlines() if line.startswith("-")]
        added = ends_in(diff).splitlines()
        assert [line.replace("ffcv", "gpubeton", 1) for line in removed] == added
    texts = [block.text for block in blocks("docs/quickstart.md") if block.language == "python"]
    example = next(text for text in texts if "NormalizeImage(mean, std" in text)
    assert imported(example) == imported("\n".join(added))  # of the guide


def imported(code: str) -> set[tuple[str, str]]:
    """List what code imports from this package."""
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    return {(node.module, name.name) for node in imports for name in node.names if node.module.startswith("gpubeton")}
