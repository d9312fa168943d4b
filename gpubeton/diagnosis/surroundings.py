"""Surroundings: what of the machine, the files and the GPU is worth knowing, whatever limits the loop. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.diagnosis.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubeton.diagnosis.reading import Reading

__all__ = ["surroundings", "workers_text"]


def workers_text(count: int) -> str:
    """Say how many workers there are.

    Parameters
    ----------
    count : int
        How many.

    Returns
    -------
    str
        With the word.

    Examples
    --------
    >>> workers_text(1), workers_text(4)
    ('1 worker', '4 workers')
    """
    return f"{count} worker{'' if count == 1 else 's'}"


def surroundings(reading: Reading) -> tuple[Finding, ...]:
    """List what is worth knowing.

    Parameters
    ----------
    reading : Reading
        What was read.

    Returns
    -------
    tuple of Finding
        All of weight "notice".
    """
    return (*_of_work(reading), *_of_machine(reading), *_of_files(reading), *_of_gpu(reading))


def _of_work(reading: Reading) -> Iterator[Finding]:
    if reading.augment_share is not None:
        says = (
            f"Of the workers' time, decoding and resizing take {1 - reading.augment_share:.0%}, augmenting "
            f"{reading.augment_share:.0%}."
        )
        yield Finding("augmenting", "notice", says)


def _of_machine(reading: Reading) -> Iterator[Finding]:
    machine, facts = reading.machine, reading.facts
    if machine.core_limit is not None and machine.core_limit < machine.cores:
        says = f"The container may use the time of {machine.core_limit:g} cores, though it sees {machine.cores}"
        too_many = facts.num_workers > machine.usable_cores
        says += f"; {workers_text(facts.num_workers)} take turns on them." if too_many else "."
        change = f"num_workers={machine.usable_cores}." if too_many else ""
        yield Finding("core_limit", "notice", says, change)
    elif facts.num_workers > machine.usable_cores:
        says = f"{workers_text(facts.num_workers)}, but only {machine.usable_cores} cores to use."
        yield Finding("fewer_workers", "notice", says, f"num_workers={machine.usable_cores}.")
    locked = machine.locked_limit_bytes
    if facts.device != "cpu" and locked is not None and locked < 1 << 30:
        says = f"This process may lock {locked >> 10} KiB of memory; some drivers count page-locked memory."
        yield Finding("locked", "notice", says, "ulimit -l unlimited, or --ulimit memlock=-1 for a container.")


def _of_files(reading: Reading) -> Iterator[Finding]:
    memory, resident = reading.machine.usable_memory_bytes, reading.resident_share
    cached = reading.file_bytes * (resident or 0.0)
    if reading.facts.os_cache and memory is not None and reading.file_bytes > memory + cached:
        says = (
            f"The files have {reading.file_bytes / (1 << 30):.1f} GiB, more than fits into memory "
            f"({(memory + cached) / (1 << 30):.1f} GiB): every epoch reads the disk."
        )
        yield Finding("larger_than_memory", "notice", says, "os_cache=False, and order='quasi_random'.")
    for place in reading.places:
        share = place.resident_share
        if share is not None and share < 0.9:
            says = f"{place.path}: {share:.0%} of it is in memory; the rest comes from the disk at first use."
            yield Finding("cold", "notice", says)
    for place in reading.slow_places:
        turns = "a disk that turns (virtual disks often say so wrongly)"
        kind = f"a network ({place.file_system})" if place.is_network else turns
        says = f"{place.path} is on {kind}."
        yield Finding("slow_disk", "notice", says, "Copy it to a local SSD, or to /dev/shm, before the training.")
    stats, speed = reading.stats, reading.disk_bytes_per_second
    if speed and stats.images and stats.stored_bytes:
        rate = speed * stats.images / stats.stored_bytes
        says = f"The disk gives {speed / 1e6:,.0f} MB/s: {rate:,.0f} images/s, if nothing of the file is in memory."
        yield Finding("disk", "notice", says)


def _of_gpu(reading: Reading) -> Iterator[Finding]:
    gpu = reading.gpu
    if gpu.is_present and not gpu.name:
        change = "pip install 'gpubeton[cuda13]', or [cuda12] for a driver older than 580."
        yield Finding("gpu_unusable", "notice", f"There is a GPU, but it cannot decode: {gpu.reason}.", change)
    for lane in ("hardware", "sm", "hybrid"):
        if gpu.missing(lane):
            says = f"{gpu.name}: no {lane} lane: {gpu.lanes[lane].removeprefix('missing: ')}."
            asked = gpu.capabilities
            if lane == "hardware" and asked is not None and not {"all", "video"} & set(asked.split(",")):
                change = f"Start the container with NVIDIA_DRIVER_CAPABILITIES={asked},video."
                yield Finding("no_video", "notice", says, change)
            else:
                yield Finding("lane", "notice", says)
