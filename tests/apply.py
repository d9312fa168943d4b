"""Apply operations to images or labels on every executor, with the same draws."""

from __future__ import annotations

import re
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from gpubeton._engine.run_batch_ops import run_batch_ops
from gpubeton._plan.batch_ops import compile_batch_ops
from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import SimpleRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import State
from tests.small_files import write

LAYOUTS = ["numpy", "tensor", "channels_last", "nchw"]
FUSED, SIMULATED = "fused", "simulator"
EXECUTORS = [*LAYOUTS, FUSED, SIMULATED]


def in_layout(batch: np.ndarray, layout: str):
    """A copy of an NHWC array as array, NHWC tensor, NCHW tensor in channels_last memory, or contiguous NCHW tensor."""
    if layout == "numpy":
        return batch.copy()
    tensor = torch.from_numpy(batch.copy())
    if layout == "tensor":
        return tensor
    return tensor.permute(0, 3, 1, 2) if layout == "channels_last" else tensor.permute(0, 3, 1, 2).contiguous()


def as_nhwc_array(batch, layout: str) -> np.ndarray:
    """The NHWC array back."""
    if layout == "numpy":
        return batch
    return (batch if layout == "tensor" else batch.permute(0, 2, 3, 1)).numpy()


def state_of(batch) -> State:
    """The state of an array or a tensor on the CPU."""
    return State(isinstance(batch, np.ndarray), torch.device("cpu"), tuple(batch.shape[1:]), batch.dtype)


def apply(operations, batch, *, seed=0, epoch=0, samples=None, field=0):
    """Apply operations to a finished batch, which they may change; check that it has the state that they declare.

    The numbers are drawn for the ids `samples`, 0 and up unless given, of the field with that number.
    """
    ops = compile_batch_ops(operations, state_of(batch), field_number=field)
    ids = np.arange(len(batch)) if samples is None else samples
    result = run_batch_ops(ops, batch, seed, epoch, np.asarray(ids, np.uint64))
    assert (tuple(result.shape[1:]), result.dtype) == (tuple(ops.state.shape), ops.state.dtype)
    return result


def state_after(operations, state: State) -> State:
    """The state after operations that are planned one after another; raises what planning raises."""
    return compile_batch_ops(operations, state, field_number=0).state


@contextmanager
def loader_of(operations, images: np.ndarray, *, seed=0, device="cpu"):
    """A loader whose only batch has these images, whole, after the operations."""
    with TemporaryDirectory() as folder:
        fields = {"image": RGBImageField(write_mode="raw")}
        path = write(Path(folder) / "images.beton", fields, [(image,) for image in images])
        pipelines = {"image": operations}
        with Loader(path, len(images), num_workers=1, seed=seed, pipelines=pipelines, device=device) as loader:
            yield loader


def load(operations, images: np.ndarray, **arguments):
    """The images as a loader hands them out: an array, or a tensor with its strides."""
    with loader_of(operations, images, **arguments) as loader:
        ((batch,),) = list(loader)
        return batch.copy() if isinstance(batch, np.ndarray) else batch.clone()


def explained(operations, images: np.ndarray) -> list[tuple[str, str]]:
    """Name of each operation, the decoder's first, and where a loader runs it: "fused", "view" or "after, ..."."""
    text = StringIO()
    with loader_of(operations, images) as loader, redirect_stdout(text):
        loader.explain()
    lines = (re.fullmatch(r"  (?:<[\w.]*\.)?(\w+)\b.*?  +(\S.*)", line) for line in text.getvalue().splitlines())
    return [line.groups() for line in lines if line]


def apply_to_images(executor: str, operations, images: np.ndarray, *, seed=0) -> np.ndarray:
    """Apply operations to uint8 images (N, H, W, 3) on one of EXECUTORS, with equal draws on each; NHWC.

    "fused" and "simulator" load the images from a file, so that the operations are fused with the decoder. For
    "simulator", the test has the fixture `gpus`.
    """
    if executor in LAYOUTS:
        return as_nhwc_array(apply(operations, in_layout(images, executor), seed=seed), executor)
    device = "cpu" if executor == FUSED else "cuda:0"
    return np.asarray(load([SimpleRGBImageDecoder(), *operations], images, seed=seed, device=device))
