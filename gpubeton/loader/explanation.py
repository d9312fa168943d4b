"""What a loader does, in words and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.engine import READS_AHEAD, Plan
from gpubeton.engine.image_output import ImageOutput
from gpubeton.fields.image_field import ImageField
from gpubeton.loader.line import num_in_flight
from gpubeton.loader.order_option import order_class
from gpubeton.plan.lanes import Lane, raw_lane
from gpubeton.storage.reads import MAX_GAP
from gpubeton.storage.staging import STEP

if TYPE_CHECKING:
    from gpubeton.loader.loader import Loader

_MIB = 1 << 20


def summary(loader: Loader) -> str:
    """Describe a loader in a line.

    Parameters
    ----------
    loader : Loader
        The loader.

    Returns
    -------
    str
        Its file, size, order and seed.
    """
    goes_by = type(loader.traversal_order)
    is_named = not isinstance(loader.order, type) and order_class(loader.order) is goes_by
    order = str(loader.order) if is_named else goes_by.__name__
    return (
        f"<Loader of {loader.reader.index.title}: {len(loader.indices)} samples in {len(loader)} batches of "
        f"{loader.batch_size}, {order}, seed {loader.seed}, next epoch {loader.next_epoch}>"
    )


def explanation(loader: Loader) -> str:
    """Describe what runs where, operation by operation, and how much memory it takes.

    Parameters
    ----------
    loader : Loader
        The loader.

    Returns
    -------
    str
        Several lines.
    """
    plan = loader.plan()
    where = "mapped into memory" if loader.os_cache else "read ahead, batch by batch"
    batches = max_batch_bytes(plan) * (loader.batches_ahead + 1)
    lines = [
        summary(loader),
        f"{loader.reader.index.title}: {where}",
        f"up to {loader.batches_ahead} batches ahead of the loop, {loader.num_workers} threads on the CPU",
        *_who_decodes(loader, plan),
        *_decoded_once(plan),
        *(output.explain() for output in plan.outputs),
        f"memory for batches: {batches / _MIB:.0f} MiB, and those that you hold",
    ]
    if loader.gpu is not None:
        arenas = max_arena_bytes(plan, num_in_flight(loader.batches_ahead))
        lines.append(f"memory of the GPU for decoded images: at most {arenas / _MIB:.0f} MiB, and what nvJPEG takes")
    if not loader.os_cache:
        staging = max_staging_bytes(plan, num_in_flight(loader.batches_ahead))
        lines.append(f"memory for stored bytes on their way: at most {staging / _MIB:.0f} MiB")
    return "\n".join(lines)


def _who_decodes(loader: Loader, plan: Plan) -> list[str]:
    """Say who decodes images, and why."""
    choice, gpu = loader.gpu_choice, loader.gpu
    images = [output for output in plan.outputs if isinstance(output, ImageOutput)]
    kinds = ", ".join(repr(output.name) for output in images if isinstance(output.source.field, ImageField))
    if gpu is None:
        if choice.target is not None and choice.target.decodes and kinds:
            return [f"images are decoded on the CPU, and moved ({choice.reason}): GPUs make those of RGBImageField"]
        return [f"images are decoded on the CPU: {choice.reason}"]
    raw = raw_lane(loader.gpu_options.raw, loader.num_workers)
    raws = "cropped and resized on the CPU" if raw is Lane.CPU else "copied as crops, resized on the GPU"
    lanes = [f"  {lane.name.lower():<9} {note}" for lane, note in gpu.notes.items()]
    return [
        f"images are decoded by {gpu.device.name} (cuda:{gpu.device.number}): {choice.reason}",
        *lanes,
        f"  {'raw':<9} raw-stored images are {raws} (raw={loader.gpu_options.raw!r}, {loader.num_workers} threads)",
        f"  {'CPU':<9} what no lane takes, or fails on",
        *(
            [f"  {'CPU':<9} {kinds}: GPUs make images of RGBImageField, others are moved when they are made"]
            * bool(kinds)
        ),
    ]


def _decoded_once(plan: Plan) -> list[str]:
    """Say which outputs are made together."""
    views: dict[tuple[str, str], list[str]] = {}
    for output in plan.outputs:
        if isinstance(output, ImageOutput):
            views.setdefault((output.source.name, output.program.device), []).append(repr(output.name))
    return [
        f"  decoded once for {', '.join(names)}: each image of {source!r}"
        for (source, _), names in views.items()
        if len(names) > 1
    ]


def max_batch_bytes(plan: Plan) -> int:
    """Bytes of the images of a batch.

    Parameters
    ----------
    plan : Plan
        An epoch.

    Returns
    -------
    int
        Bytes; outputs without images, which are small as a rule, do not count.
    """
    images = [output for output in plan.outputs if isinstance(output, ImageOutput)]
    return plan.batches.batch_size * sum(output.nbytes_per_sample for output in images)


def max_arena_bytes(plan: Plan, in_flight: int) -> int:
    """Most bytes of decoded images that are on the GPU at once.

    Parameters
    ----------
    plan : Plan
        An epoch.
    in_flight : int
        Batches that are under way at once.

    Returns
    -------
    int
        Bytes, if all images of a batch were the largest of the file.
    """
    on_gpu = [output for output in plan.outputs if isinstance(output, ImageOutput) and output.program.device != "cpu"]
    if not on_gpu:
        return 0
    from gpubeton.gpu.memory_layout import lay_out

    per_sample = 0
    for source in {output.source.name: output.source for output in on_gpu}.values():
        sides = np.array([source.column["height"].max()]), np.array([source.column["width"].max()])
        per_sample += lay_out(*sides).nbytes
    # An eighth more is allocated than a batch needs.
    return in_flight * plan.batches.batch_size * (per_sample + per_sample // 8)


def max_staging_bytes(plan: Plan, in_flight: int) -> int:
    """Most bytes of the file that are in memory at once, if it is not mapped.

    Parameters
    ----------
    plan : Plan
        An epoch.
    in_flight : int
        Batches that the workers have at once.

    Returns
    -------
    int
        Bytes. There are batches that are read ahead, those that the workers have, and one that is being finished.
    """
    per_sample = sum(int(own.size.max()) + MAX_GAP for source in plan.sources for own in source.regions)
    return (READS_AHEAD + in_flight + 1) * (plan.batches.batch_size * per_sample + STEP)
