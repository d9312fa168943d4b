"""The engine of a loader's epoch."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from gpubeton.engine import ArrayPool, Engine, EngineOptions, Output, Plan
from gpubeton.engine.image_output import ImageOutput
from gpubeton.errors import DeviceError, LoaderClosedError
from gpubeton.format.byte_source import OpenSources
from gpubeton.loader.gpu_choice import GpuChoice, open_gpu
from gpubeton.storage import MappedStorage, ReadStorage, Storage
from gpubeton.storage.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.engine.stages import Stages
    from gpubeton.format.data_files import DataFile
    from gpubeton.gpu.gpu_executor import Gpu
    from gpubeton.loader.loader import Loader
    from gpubeton.plan.image_executor import StartExecutor

# The workers pass from one batch to the next without waiting for each other; a third keeps them busy while the first
# is being finished. The others of `batches_ahead` are ready, and need no memory but their own.
_MAX_IN_FLIGHT = 3


def num_in_flight(batches_ahead: int) -> int:
    """Give the number of batches that the workers have at once.

    Parameters
    ----------
    batches_ahead : int
        Batches in work or ready.

    Returns
    -------
    int
        Those in work.
    """
    return min(batches_ahead, _MAX_IN_FLIGHT)


class Memory:
    """What a loader keeps from epoch to epoch, because making it anew would take time.

    Parameters
    ----------
    files : sequence of DataFile
        The files.
    is_mapped : bool
        Whether they are mapped into memory.

    Attributes
    ----------
    files : OpenSources
        The files. They stay open, so that all epochs read the file that was checked, also when it has lost its name.
    mapped : MappedStorage or None
        The files, if they are mapped.
    staging : Staging
        Memory for the bytes of batches, if they are not.
    pool : ArrayPool
        Memory for batches.
    gpu : Gpu or None
        The GPU that makes images.
    """

    def __init__(self, files: Sequence[DataFile], *, is_mapped: bool) -> None:
        self.files = OpenSources(((file.path, file.identity) for file in files), is_random=not is_mapped)
        self.files.hold()
        self.mapped = MappedStorage(self.files) if is_mapped and self.files.is_mappable else None
        self.staging = Staging()
        self.pool = ArrayPool()
        self.gpu: Gpu | None = None

    def open_gpu(self, loader: Loader, outputs: tuple[Output, ...]) -> GpuChoice:
        """Open the GPU that a loader has chosen, if it makes any of its outputs.

        Parameters
        ----------
        loader : Loader
            The loader.
        outputs : tuple of Output
            What it makes.

        Returns
        -------
        GpuChoice
            What it comes to: without the GPU if that cannot be used and nobody insisted on it.

        Raises
        ------
        DeviceError
            If it cannot be used, and the user asked for it.
        """
        choice = loader.gpu_choice
        made_there = [
            output for output in outputs if isinstance(output, ImageOutput) and output.program.device != "cpu"
        ]
        if choice.target is None or not made_there:
            return choice
        try:
            self.gpu = open_gpu(
                choice.target,
                made_there,
                loader.decoder,
                loader.gpu_options,
                num_slots=num_in_flight(loader.batches_ahead),
            )
        except DeviceError as error:
            if choice.is_forced:
                raise
            reason = f"{choice.target.device} cannot decode: {error}"
            warnings.warn(f"{loader.reader.index.title}: images are decoded on the CPU. {reason}", stacklevel=3)
            return GpuChoice(None, reason, is_forced=False)
        self.staging = Staging(self._pinned, is_pinned=True)
        return choice

    def close(self) -> None:
        """Free it; what is in use is freed when its user is done."""
        if self.gpu is not None:
            self.gpu.close()
        self.mapped = None
        self.files.close()
        self.staging = Staging()
        self.pool.close()

    def _pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """Allocate memory from which the GPU reads without another copy."""
        if self.gpu is None:
            raise LoaderClosedError("the loader was closed while a batch was read")
        with self.gpu.device.active():
            return self.gpu.device.allocate_pinned(nbytes).array


def make_engine(
    loader: Loader, plan: Plan, first_batch: int, memory: Memory, make_crew: StartExecutor, stages: Stages
) -> Engine:
    """Make the engine that carries an epoch out.

    Parameters
    ----------
    loader : Loader
        Knows how it is to work.
    plan : Plan
        The epoch.
    first_batch : int
        Where to begin.
    memory : Memory
        What the loader keeps.
    make_crew : StartExecutor
        Starts the workers.
    stages : Stages
        Where is added up what everything takes.

    Returns
    -------
    Engine
        To be closed by whoever has it.

    Raises
    ------
    StorageError
        If the file has changed since it was checked.
    """
    options = EngineOptions(
        path=loader.reader.index.title,
        num_workers=loader.num_workers,
        num_in_flight=num_in_flight(loader.batches_ahead),
        on_error=loader.on_error,
        origin=loader.reader.index.origin,
    )
    storage: Storage
    if memory.mapped is None:
        storage = ReadStorage(memory.files, memory.staging)
    else:
        memory.mapped.check()
        storage = memory.mapped
    # Batches in work or ready, one or two in the hands of the loop, and one that is being handed over.
    memory.pool.begin_epoch((loader.batches_ahead + 3) * len(plan.outputs))
    try:
        return Engine(
            plan,
            storage,
            make_crew,
            memory.pool,
            indices=loader.indices,
            options=options,
            first_batch=first_batch,
            make_gpu_crew=None if memory.gpu is None else memory.gpu.crew,
            stages=stages,
        )
    except BaseException:
        storage.close()
        raise
