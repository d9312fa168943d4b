"""Advice: what keeps a loop waiting, and what would help. Decides from measurements alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpubeton._machine import install
from gpubeton.cli.screen import counted, size_text
from gpubeton.loader.gpus import GpuState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubeton._machine import Machine
    from gpubeton.cli.environment import FilePlace
    from gpubeton.loader import LoaderStats
    from gpubeton.loader.describe import ImageSummary, LoaderInfo

# A loop that waits for less than this share of the time is not limited by data.
_LITTLE = 0.05
# Workers that are busy for more than this share of the time are the limit.
_BUSY = 0.8
# Other programs that take this share of the cores slow the loop down.
_CONTENDED = 0.2
# So short an epoch is a trial: what its beginning costs needs no change.
_FEW_BATCHES = 50
# A loop that would be this many times faster without waiting has no real training step.
_NO_STEP = 20.0
# Stored images whose shorter side exceeds the crop's side by this factor are larger than training needs. FFCV's recipes
# store images of twice the side.
_TOO_LARGE, _ENOUGH = 2.5, 2.0
# Raw pixels load faster than JPEG by about this factor: 5 in this project's measurements, less for larger images.
_RAW_FACTOR = 3.0
_RAW_SHARE_OF_MEMORY = 0.7
_IN_MEMORY = 0.9  # of a file
# No rotational disk is as fast as this.
_ROTATIONAL_BYTES_PER_SECOND = 600e6

_GIB = 1 << 30
_TO_LOCAL_DISK = "Copy it to a local SSD, or to /dev/shm, before the training."


@dataclass(frozen=True)
class Measurements:
    """Everything that advice is based on."""

    stats: LoaderStats
    facts: LoaderInfo
    machine: Machine
    places: tuple[FilePlace, ...] = ()
    gpu: GpuState = field(default_factory=GpuState)
    disk_bytes_per_second: float | None = None  # without the page cache; None: not measured
    augment_share: float | None = None  # of the workers' time; the rest is decoding and resizing; None: not measured
    other_cores: float | None = None  # cores that other programs took meanwhile; None: not measured

    @property
    def file_bytes(self) -> int:
        """Bytes of all files."""
        return sum(place.size for place in self.places)

    @property
    def resident_share(self) -> float | None:
        """Share of the files in the page cache."""
        shares = [(place.size, place.resident_share) for place in self.places if place.resident_share is not None]
        total = sum(size for size, _ in shares)
        return sum(size * share for size, share in shares) / total if total else None

    @property
    def disk_share(self) -> float:
        """Estimated share of the bytes used that came from the disk, 0 to 1."""
        missing = 0.0 if self.resident_share is None else 1.0 - self.resident_share
        memory = self.machine.usable_memory_bytes
        if memory is not None and missing * self.file_bytes > memory:
            return missing
        # Files that fit into memory are read once, however many epochs follow.
        return missing * min(1.0, self.file_bytes / max(1, self.stats.stored_bytes))

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
        if self.disk_bytes_per_second is None or self.slow_places:
            return True
        # Read page by page, a disk reaches at least a quarter of the speed that was measured.
        longest = 4 * self.disk_share * self.stats.stored_bytes / self.disk_bytes_per_second
        return longest * max(1, self.stats.num_workers) > self.stats.stalled_seconds / 2

    @property
    def is_contended(self) -> bool:
        """Whether other programs took so many cores that the loop was slower for it."""
        return (self.other_cores or 0.0) > _CONTENDED * self.machine.usable_cores

    @property
    def slow_places(self) -> tuple[FilePlace, ...]:
        """The files on a network or on a rotational disk."""
        # Virtual disks often report wrongly that they are rotational; the measured speed corrects that.
        is_fast = (self.disk_bytes_per_second or 0.0) > _ROTATIONAL_BYTES_PER_SECOND
        return tuple(place for place in self.places if place.is_network or (place.is_rotational and not is_fast))


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
    notices = (*_machine_notices(measured), *_file_notices(measured), *_gpu_notices(measured))
    return (bottleneck, *changes, *(notice for notice in notices if notice.name not in names))


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
        return _first_batch(measured, waited)
    name, reason, changes = _slow_stage(measured)
    return LoopFinding(name, "bottleneck", f"{waited}{reason}", gain=_gain_without_waiting(measured)), changes


def _first_batch(measured: Measurements, waited: str) -> tuple[LoopFinding, list[LoopFinding]]:
    """Explain a loop that waits mostly for the beginnings of its epochs."""
    stats, batches = measured.stats, measured.facts.samples / measured.facts.batch_size
    text = f"{waited}, mostly for the first batch of an epoch ({stats.first_wait_seconds:.1f} s in total)."
    gain = _gain(stats.seconds, stats.first_wait_seconds)
    if batches < _FEW_BATCHES:
        text += f" An epoch has only {batches:.0f} batches."
        return LoopFinding("first_batch", "bottleneck", text, gain=gain), []
    why = "Each epoch starts its workers and prepares its pipelines; the first loader on a machine also compiles them."
    change = "Measure over longer epochs; repeat samples with `indices` if a dataset is this small."
    return LoopFinding("first_batch", "bottleneck", text, gain=gain), [_advice("start", why, change)]


def _slow_stage(measured: Measurements) -> tuple[str, str, list[LoopFinding]]:
    """Find the stage that the loop waits for; return its name, the reason, and the changes that would help."""
    stats = measured.stats
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
    if stats.stalled_seconds > 0.3 * stats.worker_seconds:
        return _stalled_workers(measured)
    busy = f"{counted(stats.num_workers, 'worker')} busy for {stats.worker_share:.0%} of the time"
    if stats.worker_share < _BUSY and not measured.is_contended:
        return "starved", f", with {busy}: the workers wait for new batches.", _more_ahead(measured)
    if stats.worker_share < _BUSY:
        reason = f": {busy}, and the loader's thread gets no core in time: other programs use the cores too."
        return "cores", reason, [*_other_programs(measured, "advice"), *_faster_decoding(measured)]
    return "workers", f", because decoding and augmenting is too slow: {busy}.", _faster_decoding(measured)


def _stalled_workers(measured: Measurements) -> tuple[str, str, list[LoopFinding]]:
    """Explain workers that are busy without using a core: the file is not in memory, or there are too few cores."""
    stats = measured.stats
    reason = f": for {stats.stalled_seconds / stats.worker_seconds:.0%} of their time the workers are blocked"
    if measured.waits_for_pages:
        reason += f" until pages of the file come from the disk ({measured.resident_share:.0%} of it was in memory)."
        return "pages", reason, _faster_reading(measured)
    reason += f" without a core: {counted(stats.num_workers, 'worker')}, {measured.machine.usable_cores} usable cores"
    reason += "." if stats.num_workers > measured.machine.usable_cores else ", which other programs use too."
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
    memory, size, os_cache = measured.machine.usable_memory_bytes, measured.file_bytes, measured.facts.os_cache
    cached = size * (measured.resident_share or 0.0)
    if memory is not None and size and size < _RAW_SHARE_OF_MEMORY * (memory + cached):
        fits = f"The file ({size_text(size)}) fits into memory ({size_text(memory)} free), and stays there"
        change = "Read it once before the training" if os_cache else "os_cache=True (now False)"
        text, change = f"{fits} after the first epoch.", f"{change}; leave enough memory free."
        changes.append(_advice("memory", text, change, most))
    elif os_cache:
        text = "Each worker reads a page of the file only when it needs it."
        change = "os_cache=False reads the bytes of each batch ahead, many at once; order='quasi_random' helps too."
        changes.append(_advice("read_ahead", text, change, most))
    if measured.slow_places:
        disk = "over a network" if any(place.is_network for place in measured.slow_places) else "from a rotational disk"
        changes.append(_advice("local", f"The file is read {disk}.", _TO_LOCAL_DISK, most))
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
    ahead = measured.facts.batches_ahead
    if ahead >= 6:
        return _less_in_thread(measured)
    text = f"{ahead} batches are prepared ahead, too few if steps or batches take different times."
    more = _advice("ahead", text, f"batches_ahead={2 * ahead}.", _gain_without_waiting(measured))
    return [more, *_less_in_thread(measured)]


def _faster_decoding(measured: Measurements) -> list[LoopFinding]:
    changes, cores, workers = [], measured.machine.usable_cores, measured.facts.num_workers
    if workers < cores:
        gain = _gain_with(measured, workers=cores / workers)
        text = f"{counted(workers, 'worker')} for {cores} usable cores."
        changes.append(_advice("more_workers", text, f"num_workers={cores}.", gain))
    elif workers > cores:
        changes.append(_fewer_workers(measured, "advice"))
    if measured.facts.device == "cpu" and measured.gpu.name:
        text = f"{measured.gpu.name} can decode and augment, but the loader does not use it."
        change = 'Put ToDevice("cuda:0") into the pipelines, or pass device="cuda:0".'
        changes.append(_advice("gpu_route", text, change, _gain_without_waiting(measured)))
    return [*changes, *_smaller_images(measured, "workers"), *_raw_pixels(measured)]


def _fewer_workers(measured: Measurements, weight: Literal["advice", "notice"]) -> LoopFinding:
    cores = measured.machine.usable_cores
    text = f"{counted(measured.facts.num_workers, 'worker')} share {cores} usable cores."
    return LoopFinding("fewer_workers", weight, text, f"num_workers={cores}.")


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
        size = _raw_bytes(image) * measured.facts.samples
        if image.jpeg_share >= 0.5 and memory is not None and size < _RAW_SHARE_OF_MEMORY * memory:
            text = f"{image.name}: JPEG files are decoded in each epoch; as raw pixels they take {size_text(size)}."
            change = "Write the file with write_mode='raw': it fits into memory and needs no decoding."
            changes.append(_advice("raw", text, change, _gain_with(measured, workers=_RAW_FACTOR)))
    return changes


def _raw_bytes(image: ImageSummary) -> float:
    """Return the bytes of a stored image as raw pixels, no larger than training needs."""
    side = _ENOUGH * max(image.height, image.width)
    shrunk = min(1.0, side / max(image.stored_height, image.stored_width))
    return 3 * image.stored_height * image.stored_width * shrunk**2


def _machine_notices(measured: Measurements) -> Iterator[LoopFinding]:
    machine, facts, share = measured.machine, measured.facts, measured.augment_share
    if share is not None:
        text = f"The workers spend {1 - share:.0%} of their time on decoding and resizing, {share:.0%} on augmenting."
        yield _notice("augmenting", text)
    yield from _other_programs(measured, "notice")
    too_many = facts.num_workers > machine.usable_cores
    if machine.core_limit is not None and machine.core_limit < machine.cores:
        text = f"The container may use {machine.core_limit:g} of the {machine.cores} cores that it sees"
        text += f"; {counted(facts.num_workers, 'worker')} share them." if too_many else "."
        yield _notice("core_limit", text, f"num_workers={machine.usable_cores}." if too_many else "")
    elif too_many:
        yield _fewer_workers(measured, "notice")
    locked = machine.locked_limit_bytes
    if facts.device != "cpu" and locked is not None and locked < _GIB:
        text = f"This process may lock only {locked >> 10} KiB of memory; some drivers count page-locked memory."
        yield _notice("locked", text, "ulimit -l unlimited, or --ulimit memlock=-1 for a container.")


def _file_notices(measured: Measurements) -> Iterator[LoopFinding]:
    memory = measured.machine.usable_memory_bytes
    cached = measured.file_bytes * (measured.resident_share or 0.0)
    if measured.facts.os_cache and memory is not None and measured.file_bytes > memory + cached:
        text = (
            f"The files have {size_text(measured.file_bytes)} and do not fit into memory "
            f"({size_text(memory + cached)}): every epoch reads the disk."
        )
        yield _notice("larger_than_memory", text, "os_cache=False and order='quasi_random'.")
    for place in measured.places:
        share = place.resident_share
        if share is not None and share < _IN_MEMORY:
            text = f"{place.path}: {share:.0%} of it was in memory; the rest comes from the disk when first used."
            yield _notice("cold", text)
    for place in measured.slow_places:
        if place.is_network or (place.resident_share or 0.0) < _IN_MEMORY:
            rotational = "a rotational disk (virtual disks often misreport this)"
            disk = f"a network ({place.file_system})" if place.is_network else rotational
            yield _notice("slow_disk", f"{place.path} is on {disk}.", _TO_LOCAL_DISK)
    stats, speed = measured.stats, measured.disk_bytes_per_second
    if speed and stats.images and stats.stored_bytes:
        rate = speed * stats.images / stats.stored_bytes
        yield _notice(
            "disk", f"The disk reads {speed / 1e6:,.0f} MB/s: {rate:,.0f} images/s if the file is not in memory."
        )


def _gpu_notices(measured: Measurements) -> Iterator[LoopFinding]:
    gpu = measured.gpu
    if gpu.is_present and not gpu.name:
        change = f"{install('cuda13')}; for a driver older than 580: {install('cuda12')}."
        yield _notice("gpu_unusable", f"There is a GPU, but it cannot decode: {gpu.reason}.", change)
    if gpu.self_test:
        faults = "; ".join(f"{route}: {fault}" for route, fault in gpu.self_test.items() if fault)
        text = f"fails the self-test: {faults}" if faults else f"passes the self-test ({', '.join(gpu.self_test)})"
        change = "Another version of the driver or of nvJPEG." if faults else ""
        yield _notice("self_test", f"{gpu.name} {text}.", change)
    if measured.facts.lacks_entries:
        text = f"{measured.facts.device} decodes only JPEGs with entry points, and the file has none."
        yield _notice("no_entry_points", text, "gpubeton index FILE lets the GPU decode.")
    if gpu.missing("hardware") and not gpu.self_test.get("hardware"):
        text = f"{gpu.name}: no JPEG engines: {gpu.routes['hardware'].removeprefix('missing: ')}."
        granted = gpu.capabilities
        if granted is not None and not {"all", "video"} & set(granted.split(",")):
            change = f"Start the container with NVIDIA_DRIVER_CAPABILITIES={granted},video."
            yield _notice("no_video", text, change)
        else:
            yield _notice("route", text)


def _advice(name: str, text: str, change: str, gain: float | None = None) -> LoopFinding:
    return LoopFinding(name, "advice", text, change, gain)


def _notice(name: str, text: str, change: str = "") -> LoopFinding:
    return LoopFinding(name, "notice", text, change)


def _thread_seconds(stats: LoaderStats) -> float:
    """Sum up the work of the loader's thread, without waiting."""
    return stats.plan_seconds + stats.submit_seconds + stats.tail_seconds


def _gain_with(measured: Measurements, **factors: float) -> float:
    """Return how many times faster the loop would be if some stages were faster by these factors."""
    rate = min(limit * factors.get(stage, 1.0) for stage, limit in stage_limits(measured.stats).items())
    return max(1.0, min(rate / measured.stats.images_per_second, _max_gain(measured)))


def _max_gain(measured: Measurements) -> float:
    """Return how many times faster the loop would be if it never waited."""
    return _gain(measured.stats.seconds, measured.stats.waiting_seconds)


def _gain_without_waiting(measured: Measurements) -> float | None:
    """Return the same for people: None if the loop has no training step, so that a factor has no meaning."""
    gain = _max_gain(measured)
    return gain if gain < _NO_STEP else None


def _gain(seconds: float, saved: float) -> float:
    return seconds / max(seconds - saved, 0.01 * seconds)
