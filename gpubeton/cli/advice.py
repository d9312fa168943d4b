"""Advice: what keeps a loop waiting, and what would help. Decides from measurements alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpubeton.cli.screen import counted, size_text
from gpubeton.loader.gpus import GpuState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubeton._machine import Machine
    from gpubeton.cli.environment import FilePlace
    from gpubeton.loader import LoaderStats
    from gpubeton.loader.describe import LoaderInfo

# A loop that waits for less than this share of the time is not limited by data.
_LITTLE = 0.05
# Workers that are busy for more than this share of the time are the limit.
_BUSY = 0.8
# Other programs that take this share of the cores slow the loop down.
_CONTENDED = 0.2
# A loop that would be this many times faster without waiting has no real training step.
_NO_STEP = 20.0
# Stored images whose shorter side exceeds the crop's side by this factor are larger than training needs. FFCV's recipes
# store images of twice the side.
_TOO_LARGE, _ENOUGH = 2.5, 2.0
# Raw pixels load faster than JPEG by about this factor: 5 in this project's measurements, less for larger images.
_RAW_FACTOR = 3.0
_SHARE_OF_MEMORY = 0.7  # that the file may take


@dataclass(frozen=True)
class Measurements:
    """Everything that advice is based on."""

    stats: LoaderStats
    facts: LoaderInfo
    machine: Machine
    places: tuple[FilePlace, ...] = ()
    gpu: GpuState = field(default_factory=GpuState)
    disk_bytes_per_second: float | None = None  # without the page cache; None: not measured
    other_cores: float | None = None  # cores that other programs took meanwhile; None: not measured

    @property
    def file_bytes(self) -> int:
        """Bytes of all files."""
        return sum(place.size for place in self.places)

    @property
    def resident_bytes(self) -> float:
        """Bytes of the files that were in the page cache, where that is known."""
        return sum(place.size * (place.resident_share or 0.0) for place in self.places)

    @property
    def reachable_memory(self) -> float | None:
        """Bytes of memory that the files have or can get; None: unknown."""
        free = self.machine.usable_memory_bytes
        return None if free is None else free + self.resident_bytes

    @property
    def disk_share(self) -> float:
        """Estimated share of the bytes used that came from the disk, 0 to 1."""
        missing = sum(
            place.size * (1 - place.resident_share) for place in self.places if place.resident_share is not None
        )
        memory = self.machine.usable_memory_bytes
        # Files that fit into memory are read once, however many epochs follow.
        is_read_once = memory is None or missing <= memory
        return missing / max(1, self.file_bytes, self.stats.stored_bytes if is_read_once else 0)

    @property
    def loop(self) -> str:
        """The properties of the loop that matter for its speed, in words."""
        facts = self.facts
        return (
            f"batches of {facts.batch_size}, {counted(facts.num_workers, 'worker')}, {facts.batches_ahead} batches "
            f"ahead, os_cache={facts.os_cache}, images decoded on {facts.device}"
        )

    @property
    def waits_for_pages(self) -> bool:
        """Whether workers that were blocked were so mostly until pages of a mapped file came from the disk."""
        if not self.facts.os_cache or self.disk_share <= _LITTLE:
            return False
        if self.disk_bytes_per_second is None or self.is_remote:
            return True
        # Read page by page, a disk reaches at least a quarter of the speed that was measured.
        longest = 4 * self.disk_share * self.stats.stored_bytes / self.disk_bytes_per_second
        return longest * max(1, self.stats.num_workers) > self.stats.stalled_seconds / 2

    @property
    def is_remote(self) -> bool:
        """Whether a file is on a network."""
        return any(place.is_network for place in self.places)

    @property
    def is_contended(self) -> bool:
        """Whether other programs took so many cores that the loop was slower for it."""
        return (self.other_cores or 0.0) > _CONTENDED * self.machine.usable_cores


def stage_limits(stats: LoaderStats) -> dict[str, float]:
    """Compute the images per second of each stage if the others took no time; infinite for a stage without work."""

    def rate(seconds: float) -> float:
        return stats.images / seconds if seconds > 0 else math.inf

    return {
        "step": rate(stats.step_seconds + stats.handover_seconds),  # the training step
        "workers": rate(stats.worker_seconds / stats.num_workers) if stats.num_workers else math.inf,
        "thread": rate(_thread_seconds(stats)),  # of the loader
        # Bytes are also read while the workers decode, so the waiting time is only a part of the reading time. Reading
        # is a limit only if the loader waited for it.
        "reading": rate(stats.seconds - stats.ahead_seconds) if stats.read_seconds > 0.3 * stats.seconds else math.inf,
    }


@dataclass(frozen=True)
class LoopFinding:
    """Something that limits a loop, would make it faster, or is worth knowing."""

    name: str  # one word, for programs
    weight: Literal["bottleneck", "advice", "notice"]
    text: str  # the finding, with its numbers
    change: str = ""  # what to do about it, if anything
    gain: float | None = None  # the rate of images would grow by this factor at most; None: unknown

    @property
    def gain_text(self) -> str:
        """The gain as a sentence; empty if it is unknown or small."""
        has_gain = self.gain is not None and self.gain > 1.005
        return f"At most {self.gain:.2f} x as many images/s." if has_gain else ""


def advise(measured: Measurements) -> tuple[LoopFinding, ...]:
    """Return the bottleneck first, then changes by their gain, then notices."""
    if not measured.stats.batches:
        return (LoopFinding("nothing", "bottleneck", "No batch was received, so there is nothing to report."),)
    bottleneck, changes = _bottleneck(measured)
    changes = sorted(changes, key=lambda finding: -(finding.gain or 1.0))
    names = {finding.name for finding in changes}
    return (bottleneck, *changes, *(notice for notice in _notices(measured) if notice.name not in names))


def _bottleneck(measured: Measurements) -> tuple[LoopFinding, list[LoopFinding]]:
    """Find what limits the loop, and the changes that would help."""
    stats = measured.stats
    if stats.waiting_share < _LITTLE:
        text = (
            f"The training step takes {stats.step_seconds / stats.seconds:.0%} of the time, waiting for data "
            f"{stats.waiting_share:.1%}: the data do not limit the loop."
        )
        return LoopFinding("step", "bottleneck", text, gain=1.0), []
    waited = f"The loop waits for data for {stats.waiting_share:.0%} of the time"
    if stats.first_wait_seconds > 0.6 * stats.waiting_seconds and stats.waiting_seconds < stats.seconds:
        text = f"{waited}, mostly for the first batch of an epoch ({stats.first_wait_seconds:.1f} s in total)."
        return LoopFinding("first_batch", "bottleneck", text, gain=_gain(stats, stats.first_wait_seconds)), []
    name, reason, changes = _slow_stage(measured)
    return LoopFinding(name, "bottleneck", f"{waited}{reason}", gain=_gain_without_waiting(measured)), changes


def _slow_stage(measured: Measurements) -> tuple[str, str, list[LoopFinding]]:
    """Find the stage that the loop waits for; return its name, the reason, and the changes that would help."""
    stats, cores = measured.stats, measured.machine.usable_cores
    seconds = {"reading": stats.read_seconds, "decoding": stats.decode_seconds, "thread": _thread_seconds(stats)}
    largest = max(seconds, key=lambda name: seconds[name])
    if largest == "reading":
        reason = f", because reading the file is too slow: it took {stats.read_seconds:.1f} s."
        return "reading", reason, _faster_reading(measured)
    if largest == "thread" and measured.is_contended:
        reason = ", because other programs use the cores too: the loader's thread gets none in time."
        return "cores", reason, [*_other_programs(measured, "advice"), *_less_in_thread(measured)]
    if largest == "thread":
        reason = (
            f", because the loader's thread has too much work: {stats.tail_seconds:.1f} s for operations that are not "
            f"fused, {stats.plan_seconds:.1f} s for planning, {stats.submit_seconds:.1f} s for submitting batches."
        )
        return "thread", reason, _less_in_thread(measured)
    if measured.facts.device != "cpu" and not stats.num_workers:
        reason = f", because {measured.facts.device} decodes and augments too slowly."
        return "gpu", reason, _smaller_images(measured, "thread")
    workers = counted(stats.num_workers, "worker")
    busy = f"{workers} busy for {stats.worker_share:.0%} of the time"
    blocked = (
        f": for {stats.stalled_seconds / max(stats.worker_seconds, 1e-9):.0%} of their time the workers are blocked"
    )
    is_stalled = stats.stalled_seconds > 0.3 * stats.worker_seconds
    if is_stalled and measured.waits_for_pages:
        resident = measured.resident_bytes / max(1, measured.file_bytes)
        reason = f"{blocked} until pages of the file come from the disk ({resident:.0%} of it was in memory)."
        return "pages", reason, _faster_reading(measured)
    if not is_stalled and stats.worker_share >= _BUSY:
        return "workers", f", because decoding and augmenting is too slow: {busy}.", _faster_decoding(measured)
    if not is_stalled and not measured.is_contended:
        return "starved", f", with {busy}: the workers wait for new batches.", _more_ahead(measured)
    reason = f": {busy}, and the loader's thread gets no core in time: other programs use the cores too."
    if is_stalled:
        others = "" if stats.num_workers > cores else ", which other programs use too"
        reason = f"{blocked} without a core: {workers}, {cores} usable cores{others}."
    return "cores", reason, [*_other_programs(measured, "advice"), *_faster_decoding(measured)]


def _other_programs(measured: Measurements, weight: Literal["advice", "notice"]) -> list[LoopFinding]:
    if not measured.is_contended:
        return []
    # With all cores, the workers and the loader's thread would be so many times as fast.
    cores = measured.machine.usable_cores
    times = cores / max(cores - (measured.other_cores or 0.0), 0.1 * cores)
    gain = _gain_with(measured, workers=times, thread=times) if weight == "advice" else None
    text = f"Other programs took {measured.other_cores:.1f} of {cores} cores meanwhile."
    return [LoopFinding("other_programs", weight, text, "Stop them, or measure again without them.", gain)]


def _faster_reading(measured: Measurements) -> list[LoopFinding]:
    changes, most = [], _gain_without_waiting(measured)
    memory, size, os_cache = measured.reachable_memory, measured.file_bytes, measured.facts.os_cache
    if memory is not None and 0 < size < _SHARE_OF_MEMORY * memory:
        text = f"The file ({size_text(size)}) fits into memory ({size_text(memory)}), and stays there after one epoch."
        change = "Read it once before the training" if os_cache else "os_cache=True (now False)"
        changes.append(_advice("memory", text, f"{change}; leave enough memory free.", most))
    elif os_cache:
        text = "Each worker reads a page of the file only when it needs it."
        change = "os_cache=False reads the bytes of each batch ahead, many at once; order='quasi_random' helps too."
        changes.append(_advice("read_ahead", text, change, most))
    if measured.is_remote:
        change = "Copy it to a local SSD, or to /dev/shm, before the training."
        changes.append(_advice("local", "The file is read over a network.", change, most))
    return [*changes, *_smaller_images(measured, "reading")]


def _less_in_thread(measured: Measurements) -> list[LoopFinding]:
    unfused = measured.facts.unfused
    if not unfused:
        return []
    share = measured.stats.tail_seconds / max(_thread_seconds(measured.stats), 1e-9)
    some = "; ".join(unfused[:4])
    text = f"{len(unfused)} operations are not fused and run on whole batches, one by one: {some}."
    change = (
        "Use operations that can be fused (see `loader.explain()`), put these after ToDevice to run them on the GPU, "
        "or do them in the training step."
    )
    return [_advice("fuse", text, change, _gain_with(measured, thread=1 / max(1 - share, 0.05)))]


def _more_ahead(measured: Measurements) -> list[LoopFinding]:
    ahead, changes = measured.facts.batches_ahead, _less_in_thread(measured)
    if ahead < 6:
        text = f"{ahead} batches are prepared ahead, too few if steps or batches take different times."
        changes.insert(0, _advice("ahead", text, f"batches_ahead={2 * ahead}.", _gain_without_waiting(measured)))
    return changes


def _faster_decoding(measured: Measurements) -> list[LoopFinding]:
    cores, workers = measured.machine.usable_cores, measured.facts.num_workers
    changes = _fewer_workers(measured, "advice")
    if workers < cores:
        gain = _gain_with(measured, workers=cores / workers)
        text = f"{counted(workers, 'worker')} for {cores} usable cores."
        changes.append(_advice("more_workers", text, f"num_workers={cores}.", gain))
    if measured.facts.device == "cpu" and measured.gpu.name:
        text = f"{measured.gpu.name} can decode and augment, but the loader does not use it."
        change = 'Put ToDevice("cuda:0") into the pipelines, or pass device="cuda:0".'
        changes.append(_advice("gpu_route", text, change, _gain_without_waiting(measured)))
    return [*changes, *_smaller_images(measured, "workers"), *_raw_pixels(measured)]


def _fewer_workers(measured: Measurements, weight: Literal["advice", "notice"]) -> list[LoopFinding]:
    cores, workers = measured.machine.usable_cores, measured.facts.num_workers
    text = f"{counted(workers, 'worker')} share {cores} usable cores."
    return [LoopFinding("fewer_workers", weight, text, f"num_workers={cores}.")] if workers > cores else []


def _smaller_images(measured: Measurements, stage: str) -> list[LoopFinding]:
    """Advise smaller stored images where they are larger than their crops need."""
    changes = []
    for image in measured.facts.images:
        side = max(image.height, image.width)
        times = min(image.stored_height, image.stored_width) / side
        if times > _TOO_LARGE:
            # Bytes and decoding time are proportional to the number of pixels.
            factor = (times / _ENOUGH) ** 2
            text = (
                f"{image.name}: stored images have {image.stored_height:.0f} x {image.stored_width:.0f} pixels on "
                f"average, {times:.1f} times the side of the crops."
            )
            longest = round(_ENOUGH * side)
            change = f"Write the file with max_resolution={longest}: about {1 / factor:.0%} of the bytes."
            changes.append(_advice("smaller_images", text, change, _gain_with(measured, **{stage: factor})))
    return changes


def _raw_pixels(measured: Measurements) -> list[LoopFinding]:
    changes, memory = [], measured.machine.usable_memory_bytes
    for image in measured.facts.images:
        # No larger than training needs.
        shrunk = min(1.0, _ENOUGH * max(image.height, image.width) / max(image.stored_height, image.stored_width))
        size = 3 * image.stored_height * image.stored_width * shrunk**2 * measured.facts.samples
        if image.jpeg_share >= 0.5 and memory is not None and size < _SHARE_OF_MEMORY * memory:
            text = f"{image.name}: JPEG files are decoded in each epoch; as raw pixels they take {size_text(size)}."
            change = "Write the file with write_mode='raw': it fits into memory and needs no decoding."
            changes.append(_advice("raw", text, change, _gain_with(measured, workers=_RAW_FACTOR)))
    return changes


def _notices(measured: Measurements) -> Iterator[LoopFinding]:
    gpu, size, memory = measured.gpu, measured.file_bytes, measured.reachable_memory
    yield from _other_programs(measured, "notice")
    yield from _fewer_workers(measured, "notice")
    if measured.facts.os_cache and memory is not None and size > memory:
        room = size_text(memory)
        text = f"The files have {size_text(size)} and do not fit into memory ({room}): every epoch reads the disk."
        yield _notice("larger_than_memory", text, "os_cache=False and order='quasi_random'.")
    if gpu.is_present and not gpu.name:
        yield _notice("gpu_unusable", f"There is a GPU, but it cannot decode: {gpu.reason}.")
    if measured.facts.lacks_entries:
        text = f"{measured.facts.device} decodes only JPEGs with entry points, and the file has none."
        yield _notice("no_entry_points", text, "gpubeton index FILE lets the GPU decode.")
    if faults := "; ".join(f"{route}: {fault}" for route, fault in gpu.self_test.items() if fault):
        change = "Another version of the driver or of nvJPEG."
        yield _notice("self_test", f"{gpu.name} fails the self-test: {faults}.", change)
    elif gpu.missing("hardware"):
        yield _notice("route", f"{gpu.name}: no JPEG engines: {gpu.routes['hardware'].removeprefix('missing: ')}.")


def _advice(name: str, text: str, change: str, gain: float | None = None) -> LoopFinding:
    return LoopFinding(name, "advice", text, change, gain)


def _notice(name: str, text: str, change: str = "") -> LoopFinding:
    return LoopFinding(name, "notice", text, change)


def _thread_seconds(stats: LoaderStats) -> float:
    """Sum up the work of the loader's thread, without waiting."""
    return stats.plan_seconds + stats.submit_seconds + stats.tail_seconds


def _gain_with(measured: Measurements, **factors: float) -> float:
    """Return how many times faster the loop would be if some stages were faster by these factors."""
    stats = measured.stats
    rate = min(limit * factors.get(stage, 1.0) for stage, limit in stage_limits(stats).items())
    return max(1.0, min(rate / stats.images_per_second, _gain(stats, stats.waiting_seconds)))


def _gain_without_waiting(measured: Measurements) -> float | None:
    """Return the gain if the loop never waited; None if it has no training step, so that a factor has no meaning."""
    gain = _gain(measured.stats, measured.stats.waiting_seconds)
    return gain if gain < _NO_STEP else None


def _gain(stats: LoaderStats, saved: float) -> float:
    """Return how many times faster the loop would be without so many seconds."""
    return stats.seconds / max(stats.seconds - saved, 0.01 * stats.seconds)
