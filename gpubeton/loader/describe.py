"""LoaderInfo: what a loader is going to do; `explain` prints it, and `gpubeton doctor` advises by it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.store_client import shown
from gpubeton._engine.buffers import STEP
from gpubeton._engine.outputs import ImageOutput
from gpubeton._engine.sources import BATCHES_WITHOUT_ENTRIES, READS_AHEAD
from gpubeton._engine.storage import FIRST_REQUESTS, MAX_GAP
from gpubeton._plan.arena_layout import ALIGNMENT, lay_out_images, round_up, taps_nbytes
from gpubeton._plan.order import IdRange, rows_of
from gpubeton._plan.page_plan import MAX_REQUEST
from gpubeton._plan.places import nodes_of_hosts
from gpubeton._plan.routes import DecodeRoute, raw_route
from gpubeton.fields.image_field import ImageField
from gpubeton.fields.rgb_image import IMAGE_MODES
from gpubeton.format import ImageMode
from gpubeton.format.dataset import list_paths
from gpubeton.loader.gpus import NO_ENTRY_POINTS
from gpubeton.loader.mixture import Mixture
from gpubeton.traversal_order import TraversalOrder, Window
from gpubeton.traversal_order.mixed import Mixed

if TYPE_CHECKING:
    from gpubeton._engine.batch_plan import Plan
    from gpubeton._engine.engine import EpochConfig
    from gpubeton._plan.page_plan import PagePlan
    from gpubeton.format.dataset import Paths
    from gpubeton.loader.resources import Resources

_MIB = 1 << 20


@dataclass(frozen=True)
class ImageSummary:
    """How the images of an output are stored and made."""

    name: str  # of the output
    stored_height: float  # mean, in pixels
    stored_width: float
    stored_bytes: float  # mean
    jpeg_share: float  # 0 to 1; the others are raw pixels
    height: int  # of the images that are made
    width: int


@dataclass(frozen=True)
class LoaderInfo:
    """What a loader is going to do: the properties that its speed depends on, and an explanation for people."""

    files: tuple[str, ...] = ()
    samples: int = 0  # different samples of an epoch, of all ranks together
    batch_size: int = 1
    num_workers: int = 1
    batches_ahead: int = 3
    os_cache: bool = True
    device: str = "cpu"  # or a GPU with its name
    device_reason: str = ""
    routes: dict[str, str] = field(default_factory=dict)  # notes on each way to decode on the GPU
    lacks_entries: bool = False  # whether the GPU would decode JPEGs if they had entry points
    images: tuple[ImageSummary, ...] = ()
    unfused: tuple[str, ...] = ()  # operations that run on finished batches in the loader's thread
    explanation: tuple[str, ...] = ()  # lines: what runs where, and how much memory it takes at most

    def to_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can store."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> LoaderInfo:
        """Read the result of `to_dict`; unknown names are left out."""
        values: dict[str, Any] = {entry.name: content[entry.name] for entry in fields(cls) if entry.name in content}
        values["images"] = tuple(ImageSummary(**image) for image in values.get("images", ()))
        values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**values)


def describe(
    fname: Paths | Mixture, title: str, order: TraversalOrder, epoch: EpochConfig, plan: Plan, resources: Resources
) -> LoaderInfo:
    """Describe what a loader is going to do."""
    images, unfused, rows = [], [], rows_of(epoch.indices)
    for output in plan.outputs:
        if not isinstance(output, ImageOutput):
            continue
        column = output.source.column[rows]
        images.append(
            ImageSummary(
                name=output.name,
                stored_height=float(column["height"].mean()),
                stored_width=float(column["width"].mean()),
                stored_bytes=float(output.source.regions[0].size[rows].mean()),
                jpeg_share=float((column["mode"] == IMAGE_MODES["jpg"]).mean()),
                height=output.program.height,
                width=output.program.width,
            )
        )
        unfused += [f"{output.name}: {name}" for name, note in output.program.notes if note.startswith("after")]
    gpu = resources.gpu
    return LoaderInfo(
        files=tuple(map(shown, fname.files if isinstance(fname, Mixture) else list_paths(fname))),
        samples=len(epoch.indices if isinstance(epoch.indices, IdRange) else np.unique(epoch.indices)),
        batch_size=plan.batches.batch_size,
        num_workers=epoch.num_workers,
        batches_ahead=epoch.batches_ahead,
        os_cache=resources.config.os_cache,
        device="cpu" if gpu is None else f"{gpu.device.name} (cuda:{gpu.device.number})",
        device_reason=resources.gpu_choice.reason,
        routes={} if gpu is None else {route.name.lower(): note for route, note in gpu.notes.items()},
        lacks_entries=resources.lacks_entries,
        images=tuple(images),
        unfused=tuple(unfused),
        explanation=tuple(_explain(title, order, epoch, plan, resources)),
    )


def _explain(title: str, order: TraversalOrder, epoch: EpochConfig, plan: Plan, resources: Resources) -> list[str]:
    """Explain what runs where, operation by operation, and how much memory it takes."""
    config, pages = resources.config, None if resources.files.is_local else resources.plan_pages(epoch, plan)
    where = "mapped into memory" if config.os_cache else "read ahead, batch by batch"
    if pages is not None:
        where = "loaded ahead, page by page"
    batches = max_batch_bytes(plan) * (epoch.batches_ahead + 1)
    lines = [
        f"{title}: {where}",
        *_explain_order(order, plan.epoch),
        f"up to {epoch.batches_ahead} batches ahead of the loop, {epoch.num_workers} threads on the CPU",
        *_explain_decoding(plan, resources, epoch.num_workers),
        *([] if resources.resident is None else [resources.resident.explain()]),
        *_explain_sharing(plan),
        *_explain_entry_points(plan, resources),
        *resources.cache.explain(),
        *(output.explain() for output in plan.outputs),
        f"memory for batches: {batches / _MIB:.0f} MiB, and those that you hold",
    ]
    if resources.gpu is not None:
        most = math.ceil(max_gpu_bytes(plan, epoch.num_in_flight) / _MIB)
        lines.append(f"memory of the GPU for images under way: at most {most} MiB, and what its decoders take")
    if pages is not None:
        lines += _explain_pages(pages, config.remote.requests, max_region_bytes(plan))
    is_staged = not config.os_cache if pages is None else resources.gpu is not None
    if is_staged:
        staging = max_staging_bytes(plan, epoch.num_in_flight)
        lines.append(f"memory for stored bytes on their way: at most {staging / _MIB:.0f} MiB")
    return lines


def _explain_order(order: TraversalOrder, epoch: int) -> list[str]:
    """List the shares of a mixture in an epoch, or the share of the virtual nodes that this host has."""
    if isinstance(order, Mixed):
        shares = zip(order.rules.names, order.epoch(epoch).shares, strict=True)
        return [f"mixture, shares of an epoch: {', '.join(f'{name} {float(share):.1%}' for name, share in shares)}"]
    if isinstance(order, Window) and order.hosts:
        host = order.hosts[0 if order.rank is None else order.rank.number]
        dealt = nodes_of_hosts(order.streams, set(order.hosts))
        share = f"{len(dealt[host])} of {order.streams}"
        return [f"virtual nodes: this host, number {host}, of {len(dealt)} hosts has {share}"]
    return []


def _explain_pages(pages: PagePlan, most_requests: int, largest_region: int) -> list[str]:
    """Describe what an epoch asks for, and the memory that it takes."""
    cost = pages.cost
    parts, nbytes = (sum(both) for both in zip(pages.in_use, pages.ranges_in_use, strict=True))
    first, largest = min(FIRST_REQUESTS, most_requests), max(MAX_REQUEST, MAX_REQUEST // 2 + largest_region)
    ahead, most = (requests * largest / _MIB for requests in (first, most_requests))
    per_image = f"{cost.requests_per_1000:.1f} for each 1000 images; fetched / used {cost.fetched_per_used:.3f}"
    in_use = f"{nbytes / _MIB:.0f} MiB for at most {parts} in use"
    asked = f"{ahead:.0f} MiB for {first} asked for ahead"
    late = f"{most:.0f} MiB for {most_requests}, if pages come late"
    return [f"requests: {per_image}", f"memory for pages: {in_use}; {asked}, up to {late}"]


def _explain_decoding(plan: Plan, resources: Resources, num_workers: int) -> list[str]:
    """Describe where images are decoded, and why."""
    choice, gpu = resources.gpu_choice, resources.gpu
    images = [output for output in plan.outputs if isinstance(output, ImageOutput)]
    kinds = ", ".join(repr(output.name) for output in images if isinstance(output.source.field, ImageField))
    if gpu is None:
        if choice.target is not None and choice.target.decodes and kinds:
            return [
                f"images are decoded on the CPU, and moved ({choice.reason}): GPUs make only those of RGBImageField"
            ]
        return [f"images are decoded on the CPU: {choice.reason}"]
    raw_option = resources.config.gpu_options.raw
    raw = raw_route(raw_option, num_workers)
    raws = "cropped and resized on the CPU" if raw is DecodeRoute.CPU else "copied as crops, resized on the GPU"
    lines = [
        f"images are decoded by {gpu.device.name} (cuda:{gpu.device.number}): {choice.reason}",
        *(f"  {route.name.lower():<9} {note}" for route, note in gpu.notes.items()),
        f"  {'raw':<9} raw-stored images are {raws} (raw={raw_option!r}, {num_workers} threads)",
        f"  {'CPU':<9} images that the GPU cannot decode{f'; {NO_ENTRY_POINTS}' if resources.lacks_entries else ''}",
    ]
    if kinds:
        lines.append(f"  {'CPU':<9} {kinds}: made there and moved, GPUs make only images of RGBImageField")
    return lines


def _explain_sharing(plan: Plan) -> list[str]:
    """List the outputs for which an image is decoded only once."""
    views: dict[tuple[str, str], list[str]] = {}
    for output in plan.outputs:
        if isinstance(output, ImageOutput):
            views.setdefault((output.source.name, output.program.device), []).append(repr(output.name))
    return [
        f"  decoded once for {', '.join(names)}: each image of {source!r}"
        for (source, _), names in views.items()
        if len(names) > 1
    ]


def _explain_entry_points(plan: Plan, resources: Resources) -> list[str]:
    """List the fields whose JPEGs are decoded only where a crop needs them, and on a CPU those whose are not."""
    late = f"; the first {BATCHES_WITHOUT_ENTRIES} batches of an epoch do without" if resources.gpu is None else ""
    summaries = {name: points.summary for name, points in resources.entry_points.items()}
    lines = [
        f"  {name!r}: only what crops need of {summary}{late * resources.entry_points[name].comes_late}"
        for name, summary in summaries.items()
        if summary
    ]
    sources = {output.source.name: output.source for output in plan.outputs if isinstance(output, ImageOutput)}
    if resources.gpu is None:
        without = "JPEGs have no entry points, and are decoded from their beginning; gpubeton index makes some"
        lines += [
            f"  {name!r}: {without}"
            for name, source in sources.items()
            if not summaries.get(name) and (source.column["mode"] == ImageMode.JPG).any()
        ]
    return lines


def max_batch_bytes(plan: Plan) -> int:
    """Bytes of the images of a batch; other outputs are usually small and do not count."""
    images = [output for output in plan.outputs if isinstance(output, ImageOutput)]
    return plan.batches.batch_size * sum(output.nbytes_per_sample for output in images)


def max_gpu_bytes(plan: Plan, in_flight: int) -> int:
    """Bytes of images under way on the GPU at most, if all images of the batches were the largest of the file."""
    count, arena, taps, levels = plan.batches.batch_size, 0, 0, 0
    on_gpu = [output for output in plan.outputs if isinstance(output, ImageOutput) and output.program.device != "cpu"]
    for source in {output.source.name: output.source for output in on_gpu}.values():
        sides, sent = (int(source.column["height"].max()), int(source.column["width"].max())), 0
        decoded = lay_out_images(*map(np.atleast_1d, sides)).nbytes
        has_raw = bool((source.column["mode"] != ImageMode.JPG).any())
        for program in (output.program for output in on_gpu if output.source.name == source.name):
            # Outputs share decoded images. Each has its own crops, images that the CPU made, and bytes for the decoder.
            output_nbytes = 3 * program.height * program.width
            sent += round_up(max(output_nbytes, source.max_size, has_raw * decoded))
            most_taps = 2 * math.ceil(program.largest_scale(*sides)) + 2
            taps = max(taps, sum(taps_nbytes(count, max(program.height, program.width), most_taps)))
            levels += round_up(count * output_nbytes) * 2 * bool(program.steps)
        arena += count * max(decoded, sent)
    # An eighth more is allocated than a batch needs, in steps.
    return in_flight * sum(nbytes + nbytes // 8 + _MIB for nbytes in (arena + ALIGNMENT, taps, levels) if nbytes)


def max_region_bytes(plan: Plan) -> int:
    """Bytes of the largest region of the files."""
    return max((int(regions.size.max()) for source in plan.sources for regions in source.regions), default=0)


def max_staging_bytes(plan: Plan, in_flight: int) -> int:
    """Bytes of a file that is not mapped in memory at most: read ahead, with the workers, and being finished."""
    per_sample = sum(int(regions.size.max()) + MAX_GAP for source in plan.sources for regions in source.regions)
    return (READS_AHEAD + in_flight + 1) * (plan.batches.batch_size * per_sample + STEP)
