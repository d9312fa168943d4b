"""Advice: what keeps a loop waiting, and what would help. Pure: decides from readings alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.diagnosis.finding import Finding
from gpubeton.diagnosis.limits import Limits, limits_of
from gpubeton.diagnosis.surroundings import surroundings, workers_text

if TYPE_CHECKING:
    from gpubeton.diagnosis.reading import Reading
    from gpubeton.loader.facts import ImageFacts

__all__ = ["advise"]

# A loop that waits for less than this share of the time does not wait for data.
_LITTLE = 0.05
# Workers that are busy for more than this share are the limit.
_BUSY = 0.8
# Images whose shorter side is more than this many times the crop's are larger than training needs; FFCV's recipes store
# images of twice the side.
_TOO_LARGE = 2.5
_ENOUGH = 2.0
# How many times as fast raw pixels are than JPEG, as a rule: 5 in this project's measurements, less for larger images.
_RAW_FACTOR = 3.0
_RAW_SHARE_OF_MEMORY = 0.7
# A loop that would be so many times as fast if it never waited has no step worth the name.
_NO_STEP = 20.0


def advise(reading: Reading) -> tuple[Finding, ...]:
    """Say what limits a loop, what to change, and what that would gain.

    Parameters
    ----------
    reading : Reading
        Everything that was measured and read.

    Returns
    -------
    tuple of Finding
        The bottleneck first, then changes by their gain, then what is worth knowing.

    Examples
    --------
    >>> from gpubeton.diagnosis.reading import Reading
    >>> from gpubeton.diagnosis import Machine
    >>> from gpubeton.loader import LoaderStats
    >>> from gpubeton.loader.facts import LoaderFacts
    >>> stats = LoaderStats(batches=10, images=1000, seconds=10.0, waiting_seconds=0.1)
    >>> advise(Reading(stats, LoaderFacts(), Machine(cores=8)))[0].name
    'step'
    """
    if not reading.stats.batches:
        return (Finding("nothing", "bottleneck", "No batch was received, so there is nothing to tell."),)
    first, changes = _bottleneck(reading)
    advice = sorted(changes, key=lambda finding: -(finding.gain or 1.0))
    known = {finding.name for finding in changes}
    return (first, *advice, *(finding for finding in surroundings(reading) if finding.name not in known))


def _bottleneck(reading: Reading) -> tuple[Finding, list[Finding]]:
    """Find what limits the loop, and what would help against that."""
    stats = reading.stats
    if stats.waiting_share < _LITTLE:
        says = (
            f"The loop's own step takes {stats.step_seconds / stats.seconds:.0%} of the time and waits for data for "
            f"{stats.waiting_share:.1%}: the data are not what limits it."
        )
        return Finding("step", "bottleneck", says, gain=1.0), []
    waited = f"The loop waits for data for {stats.waiting_share:.0%} of the time"
    if stats.first_wait_seconds > 0.6 * stats.waiting_seconds and stats.waiting_seconds < stats.seconds:
        says = f"{waited}, most of it for the first batch of an epoch ({stats.first_wait_seconds:.1f} s in all)."
        gain = _gain(stats.seconds, stats.first_wait_seconds)
        return Finding("first_batch", "bottleneck", says, gain=gain), [_start()]
    parts = {"reading": stats.read_seconds, "decoding": stats.decode_seconds, "thread": _own_seconds(reading)}
    largest = max(parts, key=lambda name: parts[name])
    if largest == "reading":
        says = f"{waited}, because bytes of the file come too slowly: {stats.read_seconds:.1f} s were spent on that."
        return Finding("reading", "bottleneck", says, gain=_most_shown(reading)), _against_reading(reading)
    if largest == "thread":
        says = (
            f"{waited}, because the loader's thread has too much to do itself: {stats.tail_seconds:.1f} s for what is "
            f"not fused, {stats.plan_seconds:.1f} s to plan, {stats.submit_seconds:.1f} s to hand over."
        )
        return Finding("thread", "bottleneck", says, gain=_most_shown(reading)), _against_thread(reading)
    if reading.facts.device != "cpu" and not stats.num_workers:
        says = f"{waited}, because {reading.facts.device} decodes and augments too slowly."
        return Finding("gpu", "bottleneck", says, gain=_most_shown(reading)), [*_smaller(reading, "thread")]
    if stats.stalled_seconds > 0.3 * stats.worker_seconds:
        return _stalled(reading, waited)
    busy = f"{workers_text(stats.num_workers)} busy for {stats.worker_share:.0%} of the time"
    if stats.worker_share < _BUSY:
        says = f"{waited}, though {busy}: they wait for batches to be handed to them."
        return Finding("starved", "bottleneck", says, gain=_most_shown(reading)), _against_starving(reading)
    says = f"{waited}, because decoding and augmenting is too slow: {busy}."
    return Finding("workers", "bottleneck", says, gain=_most_shown(reading)), _against_decoding(reading)


def _own_seconds(reading: Reading) -> float:
    stats = reading.stats
    return stats.plan_seconds + stats.submit_seconds + stats.tail_seconds


def _stalled(reading: Reading, waited: str) -> tuple[Finding, list[Finding]]:
    """Workers that are busy without using a core: the file is not in memory, or there are too few cores."""
    stats, resident = reading.stats, reading.resident_share
    share = stats.stalled_seconds / stats.worker_seconds
    says = f"{waited}: the workers are busy, but {share:.0%} of that is standing still"
    if reading.facts.os_cache and resident is not None and reading.disk_share > _LITTLE:
        says += f", until pages of the file have come from the disk ({resident:.0%} of it is in memory)."
        return Finding("pages", "bottleneck", says, gain=_most_shown(reading)), _against_reading(reading)
    says += f" without a core: {workers_text(stats.num_workers)}, {reading.machine.usable_cores} cores to use"
    says += "." if stats.num_workers > reading.machine.usable_cores else ", which others use too."
    return Finding("cores", "bottleneck", says, gain=_most_shown(reading)), _against_decoding(reading)


def _start() -> Finding:
    return Finding(
        "start",
        "advice",
        "Workers start, and the pipelines are prepared, anew for each epoch; the first loader of a machine compiles.",
        "Measure over longer epochs; repeat samples with `indices` if a dataset is that small.",
    )


def _against_reading(reading: Reading) -> list[Finding]:
    found = []
    memory, size = reading.machine.usable_memory_bytes, reading.file_bytes
    resident = reading.resident_share
    if memory is not None and size and size < _RAW_SHARE_OF_MEMORY * (memory + size * (resident or 0.0)):
        says = (
            f"The file ({_size(size)}) fits into memory ({_size(memory)} free); from the second epoch on it is there."
        )
        change = f"os_cache=True{'' if reading.facts.os_cache else ' (it is False)'}, and keep other data out of memory"
        found.append(Finding("memory", "advice", says, f"{change}.", _most(reading)))
    elif reading.facts.os_cache:
        says = "Pages are read one by one as the workers come to them."
        change = "os_cache=False reads the bytes of each batch ahead of time, many at once; order='quasi_random' too."
        found.append(Finding("read_ahead", "advice", says, change, _most(reading)))
    if reading.slow_places:
        kind = "over a network" if any(place.is_network for place in reading.slow_places) else "from a disk that turns"
        change = "Copy it to a local SSD, or to /dev/shm, before the training."
        found.append(Finding("local", "advice", f"The file is read {kind}.", change, _most(reading)))
    return [*found, *_smaller(reading, "reading")]


def _against_thread(reading: Reading) -> list[Finding]:
    unfused = reading.facts.unfused
    if not unfused:
        return []
    share = reading.stats.tail_seconds / max(_own_seconds(reading), 1e-9)
    return [
        Finding(
            "fuse",
            "advice",
            f"{len(unfused)} operations run on finished batches, one after another: {'; '.join(unfused[:4])}.",
            "Use operations that are fused (`loader.explain()` marks them), put these behind ToDevice so that the GPU "
            "does them, or do them in the training step.",
            _gain_of(reading, limits_of(reading.stats).scaled(thread=1 / max(1 - share, 0.05))),
        )
    ]


def _against_starving(reading: Reading) -> list[Finding]:
    found = []
    if reading.facts.batches_ahead < 6:
        says = f"{reading.facts.batches_ahead} batches are made ahead, too few for steps and batches of uneven length."
        change = f"batches_ahead={2 * reading.facts.batches_ahead}"
        found.append(Finding("ahead", "advice", says, f"{change}.", _most(reading)))
    return [*found, *_against_thread(reading)]


def _against_decoding(reading: Reading) -> list[Finding]:
    stats, cores = reading.stats, reading.machine.usable_cores
    limits, found = limits_of(stats), []
    workers = reading.facts.num_workers
    if workers < cores:
        gain = _gain_of(reading, limits.scaled(workers=cores / workers))
        says = f"{workers_text(workers)}, but {cores} cores to use."
        found.append(Finding("more_workers", "advice", says, f"num_workers={cores}.", gain))
    elif workers > cores:
        says = f"{workers_text(workers)}, but only {cores} cores to use: they take turns."
        found.append(Finding("fewer_workers", "advice", says, f"num_workers={cores}.", None))
    if reading.facts.device == "cpu" and reading.gpu.name:
        says = f"{reading.gpu.name} can decode and augment, and is not asked to."
        change = 'Put ToDevice("cuda:0") into the pipelines, or pass device="cuda:0".'
        found.append(Finding("gpu_lane", "advice", says, change, _most(reading)))
    return [*found, *_smaller(reading, "workers"), *_raw(reading)]


def _smaller(reading: Reading, party: str) -> list[Finding]:
    """Images that are larger than the crops made of them need."""
    found = []
    for image in reading.facts.images:
        times = min(image.stored_height, image.stored_width) / max(image.height, image.width)
        if times > _TOO_LARGE:
            # Bytes, and the time to decode them, go with the number of pixels.
            factor = (times / _ENOUGH) ** 2
            longest = round(_ENOUGH * max(image.height, image.width))
            says = (
                f"{image.name}: stored images have {image.stored_height:.0f} x {image.stored_width:.0f} pixels on "
                f"average, {times:.1f} times the side of the crops that are made of them."
            )
            change = f"Write the file with max_resolution={longest}: about {1 / factor:.0%} of the bytes."
            gain = _gain_of(reading, limits_of(reading.stats).scaled(**{party: factor}))
            found.append(Finding("smaller_images", "advice", says, change, gain))
    return found


def _raw(reading: Reading) -> list[Finding]:
    memory = reading.machine.usable_memory_bytes
    found = []
    for image in reading.facts.images:
        if image.jpeg_share < 0.5 or memory is None:
            continue
        nbytes = _raw_bytes(image) * reading.facts.samples
        if nbytes < _RAW_SHARE_OF_MEMORY * memory:
            says = f"{image.name}: JPEG files are decoded in each epoch; as raw pixels they are {_size(nbytes)}."
            change = "Write the file with write_mode='raw': it fits into memory, and nothing is left to decode."
            gain = _gain_of(reading, limits_of(reading.stats).scaled(workers=_RAW_FACTOR))
            found.append(Finding("raw", "advice", says, change, gain))
    return found


def _raw_bytes(image: ImageFacts) -> float:
    """Bytes of a stored image as raw pixels, no larger than training needs."""
    side = _ENOUGH * max(image.height, image.width)
    shrunk = min(1.0, side / max(image.stored_height, image.stored_width))
    return 3 * image.stored_height * image.stored_width * shrunk**2


def _gain_of(reading: Reading, after: Limits) -> float:
    return max(1.0, min(after.images_per_second / reading.stats.images_per_second, _most(reading)))


def _most(reading: Reading) -> float:
    """How many times as fast the loop would be if it never waited."""
    return _gain(reading.stats.seconds, reading.stats.waiting_seconds)


def _most_shown(reading: Reading) -> float | None:
    """The same; None for a loop that does next to nothing but wait, of which it says nothing."""
    most = _most(reading)
    return most if most < _NO_STEP else None


def _gain(seconds: float, saved: float) -> float:
    return seconds / max(seconds - saved, 0.01 * seconds)


def _size(nbytes: float) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB" if nbytes >= 1 << 30 else f"{nbytes / (1 << 20):.1f} MiB"
