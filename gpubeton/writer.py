"""DatasetWriter: writes a dataset to a ``.beton`` file."""

from __future__ import annotations

import os
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tqdm import tqdm

from gpubeton._machine import worker_count
from gpubeton._sources.file_sources import IMAGE_SUFFIXES, CheckedFolder, FolderSource
from gpubeton._sources.library_sources import Shards
from gpubeton._sources.source import class_names_of
from gpubeton._writing.encoder import (
    MAX_CHUNKSIZE,
    Job,
    TaskQueue,
    check_on_error,
    default_start_method,
    file_of,
    open_encoders,
    split_rows,
    without_place,
)
from gpubeton._writing.file_builder import FileBuilder, checked_page_size, make_descriptors
from gpubeton._writing.make_indexes import index_file
from gpubeton._writing.targets import AtomicFile, check_target, is_beton, resolve_target
from gpubeton.errors import FieldNameError, NoSamplesError, OptionError
from gpubeton.fields.base import Field
from gpubeton.format.layout import NAME_SIZE, PAGE_SIZE_DEFAULT, metadata_dtype
from gpubeton.pipeline.validation import check_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["DatasetWriter"]


class DatasetWriter:
    """Write a dataset to a ``.beton`` file, which FFCV reads as well.

    The file appears under its name when it is complete and on the disk; until then, and after an error, an older file
    stays unchanged. Its bytes do not depend on the number of processes.

    Parameters
    ----------
    fname : str or path
        The file. An older ``.beton`` file of this name is replaced, as in FFCV.
    fields : mapping of str to Field
        The type of each value of a sample, in their order. Names have at most 16 ASCII characters.
    page_size : int
        Bytes of a page: a power of two from 2 MiB, below 4 GiB. No sample can be larger than a page.
    num_workers : int
        Number of processes. 1 works in the calling process; less than 1 means one per core that this process may use, a
        container's CPU quota counted.
    progress : bool
        Whether a progress bar is shown.
    start_method : {"fork", "forkserver", "spawn"}, optional
        How processes are started. By default "fork" on Linux, which works with any dataset. The others need a dataset
        and fields that can be pickled; use them for datasets that cannot be used after a fork.
    notes : mapping of str to object, optional
        JSON values to keep in the file, with a checksum of each region; ``Reader.notes`` returns them. Use the key
        ``class_names`` for names of classes. FFCV reads such a file as any other, and ignores the notes.
    index : bool, optional
        Whether to store entry points of JPEG files, about 2 % of their bytes, so that loaders decode only what a crop
        needs. FFCV ignores them, too. By default if there are `notes`.
    overwrite : bool
        Whether to replace a file of another kind, too.

    Raises
    ------
    PageSizeError
        If the page size is not such a number.
    FieldNameError
        If a name does not fit in the format.
    OptionError
        If there is no field, or they have no names, or `fname` is another kind of file and `overwrite` is False.

    Examples
    --------
    >>> import tempfile
    >>> from gpubeton.fields import FloatField, IntField
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = DatasetWriter(f"{folder}/points.beton", {"x": FloatField(), "y": IntField()},
    ...                            num_workers=1, progress=False)
    ...     writer.from_indexed_dataset([(0.5, 1), (0.25, 2)])
    ...     os.path.getsize(f"{folder}/points.beton")
    2138
    """

    def __init__(
        self,
        fname: str | os.PathLike[str],
        fields: Mapping[str, Field],
        page_size: int = PAGE_SIZE_DEFAULT,
        num_workers: int = -1,
        *,
        progress: bool = True,
        start_method: str | None = None,
        notes: Mapping[str, Any] | None = None,
        index: bool | None = None,
        overwrite: bool = False,
    ) -> None:
        _check_names(fields)
        self.overwrite = overwrite
        self.fname = fname
        self.fields = dict(fields)
        self.page_size = checked_page_size(page_size)
        self.num_workers = worker_count(num_workers)
        self.progress = progress
        self.start_method = start_method if start_method is not None else default_start_method()
        self.notes = notes
        self.index = index
        self.skipped: list[tuple[str, str]] = []
        self.metadata_type = metadata_dtype([field.metadata_type for field in fields.values()])

    def from_indexed_dataset(
        self,
        dataset: Any,
        indices: Sequence[Any] | NDArray[Any] | None = None,
        chunksize: int = 100,
        shuffle_indices: bool = False,
        *,
        seed: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        """Write the samples of a dataset.

        Without `notes`, the file is FFCV's to the byte. With ``DatasetWriter(..., notes={})`` it has what files of
        ``gpubeton convert`` have: a checksum of each region, entry points of JPEG files, and the names of the classes,
        if the dataset has them as its attribute ``classes``, as torchvision's do.

        Parameters
        ----------
        dataset : indexable
            ``dataset[index]`` gives one value per field, in their order, or a
            mapping with the fields' names. With `indices` it needs no length.
        indices : sequence, optional
            The samples, in their order in the file; one may occur more than once. By default all.
        chunksize : int
            Samples that a process encodes at a time, at most 256; fewer for small
            datasets. Each process keeps up to two chunks in memory.
        shuffle_indices : bool
            Whether the samples are shuffled.
        seed : int, optional
            For `shuffle_indices`. By default the order comes from numpy's global
            state, as in FFCV: ``np.random.seed`` fixes it.
        on_error : {"raise", "skip"}
            Whether a sample that cannot be read or encoded raises an error or is left out. The attribute ``skipped``
            lists the name and the reason of each that was left out, and so do the file's notes, if it has any.

        Raises
        ------
        SampleError
            If a sample cannot be read or encoded; `RegionTooLargeError` if it is larger than a page.
        WorkerDiedError
            If a process ends unexpectedly.
        """
        chosen = _choose(dataset, indices, shuffle_indices, seed)
        if len(chosen) == 0:
            raise NoSamplesError(f"{os.fspath(self.fname)}: 0 samples to write, at least 1 is needed")
        notes = self.notes
        if notes is not None and (names := class_names_of(dataset)) is not None:
            notes = {"class_names": names, **notes}
        self._write_chosen(dataset, chosen, chunksize, notes, skip=check_on_error(on_error))

    def from_webdataset(
        self,
        shards: Sequence[str | os.PathLike[str]] | str,
        pipeline: Callable[[Any], Iterable[Any]],
        *,
        chunksize: int = 100,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        """Write the samples of shards in webdataset's format; needs ``gpubeton[webdataset]``.

        The samples have the order of the shards. Each process reads whole shards, twice: the first time to count.
        Where samples are in the file's pages depends on the speed of the processes; what a loader gives does not.

        Parameters
        ----------
        shards : sequence of str or path, or str
            Tar files or URLs, as webdataset takes them; one string may have braces: ``"train-{000000..000146}.tar"``.
        pipeline : callable
            Called with the ``webdataset.WebDataset`` of each shard, gives its samples: tuples of one value per field,
            in their order, or mappings with the fields' names. It has to give the same number of samples each time.
            Images need not be decoded: ``dataset.to_tuple("jpg", "cls")`` gives JPEG files, which are stored as they
            are if they fit the field's settings.
        chunksize : int
            Samples that a process encodes at a time, at most 256.
        on_error : {"raise", "skip"}
            As for `from_indexed_dataset`, but for samples that cannot be encoded. Those that cannot be read raise an
            error in any case, as no later sample of the shard can be read then: let the pipeline leave them out, by
            ``handler=webdataset.ignore_and_continue``.

        Raises
        ------
        WriteError
            If webdataset is not installed, or the pipeline raises an exception or gives another number of samples than
            when they were counted. Otherwise as for `from_indexed_dataset`.
        """
        skip = check_on_error(on_error)
        dataset = Shards(shards, pipeline)
        num_shards = len(dataset.names)
        workers = min(self.num_workers, num_shards)
        with self._file() as file:
            job = Job(dataset, (), self.fields, self.page_size, 0, os.fspath(file.temporary))
            with open_encoders(job, workers, self.start_method) as encoders:
                dataset.starts = [0, *accumulate(encoders.count(num_shards))]
            if len(dataset) == 0:
                raise NoSamplesError(f"{os.fspath(self.fname)}: 0 samples in {num_shards} shards, at least 1 is needed")
            size = min(check_whole("chunksize", chunksize, 1), MAX_CHUNKSIZE)
            queue = TaskQueue(split_rows(start, stop, size) for start, stop in pairwise(dataset.starts))
            self._write(file, dataset, range(len(dataset)), queue, workers, self.notes, skip=skip)

    def from_image_folder(
        self,
        root: str | os.PathLike[str],
        chunksize: int = 100,
        shuffle_indices: bool = False,
        *,
        seed: int | None = None,
        suffixes: Sequence[str] = IMAGE_SUFFIXES,
        on_error: Literal["raise", "skip"] = "raise",
        check: bool = True,
    ) -> tuple[str, ...]:
        """Write the images of one folder per class, with the number of the class.

        Classes and images have the order of torchvision's ImageFolder. JPEG files that fit the field's settings are
        stored as they are, see `RGBImageField`. As with ``gpubeton convert``, the file has notes with the names of the
        classes, a checksum of each region, and entry points, unless the writer has ``index=False``.

        Parameters
        ----------
        root : str or path
            The folder with the folders of the classes.
        chunksize, shuffle_indices, seed
            As for `from_indexed_dataset`.
        suffixes : sequence of str
            Endings of image files, in lower case; other files are ignored.
        on_error : {"raise", "skip"}
            As for `from_indexed_dataset`.
        check : bool
            Whether to decode JPEG files that are stored as they are, to find damaged ones.

        Returns
        -------
        tuple of str
            Names of the classes; their position is the label.

        Raises
        ------
        OptionError
            If there are not two fields, the image first, or a class has no image.
        WriteError
            As for `from_indexed_dataset`.

        Examples
        --------
        >>> from gpubeton.fields import IntField, RGBImageField
        >>> fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
        >>> DatasetWriter("photos.beton", fields, num_workers=1, progress=False).from_image_folder("train")
        ('class_0', 'class_1', 'class_2')
        """
        if len(self.fields) != 2:
            raise OptionError(
                f"an image folder gives 2 values, the image and the number of its class, but there are "
                f"{len(self.fields)} fields: {', '.join(map(repr, self.fields))}"
            )
        field = next(iter(self.fields.values()))
        is_checked = check and getattr(field, "write_mode", "raw") != "raw"
        largest = getattr(field, "max_resolution", None)
        images = CheckedFolder(root, suffixes, largest) if is_checked else FolderSource(root, suffixes)
        names = images.class_names
        if names is None:
            raise OptionError(f"{os.fspath(root)}: no folders in it, expected one folder of images per class")
        notes = {"made_by": "gpubeton DatasetWriter", "source": "folder", "class_names": [*names], **(self.notes or {})}
        chosen = _choose(images, None, shuffle_indices, seed)
        self._write_chosen(images, chosen, chunksize, notes, skip=check_on_error(on_error))
        return names

    def _file(self) -> AtomicFile:
        path = resolve_target(self.fname)
        check_target(path, overwrite=self.overwrite or (path.exists() and is_beton(path)))
        return AtomicFile(path)

    def _write_chosen(
        self, dataset: Any, chosen: Sequence[Any], chunksize: int, notes: Mapping[str, Any] | None, *, skip: bool
    ) -> None:
        check_whole("chunksize", chunksize, 1)
        with self._file() as file:
            # Large chunks of a small dataset would leave processes without work.
            size = max(1, min(chunksize, MAX_CHUNKSIZE, len(chosen) // (4 * self.num_workers)))
            queue = TaskQueue([task] for task in split_rows(0, len(chosen), size))
            self._write(file, dataset, chosen, queue, min(self.num_workers, len(chosen)), notes, skip=skip)

    def _write(
        self, file: AtomicFile, dataset: Any, chosen: Sequence[Any], queue: TaskQueue, workers: int,
        notes: Mapping[str, Any] | None, *, skip: bool,
    ) -> None:  # fmt: skip
        """Write and commit the file."""
        descriptors = make_descriptors(self.fields)
        builder = FileBuilder(file, descriptors, self.metadata_type.itemsize, self.page_size, len(chosen))
        place, has_notes = (builder.metadata_offset, os.fspath(file.temporary)), notes is not None
        has_index = has_notes if self.index is None else self.index
        job = Job(dataset, chosen, self.fields, self.page_size, *place, skip=skip, checksums=has_notes)
        with (
            open_encoders(job, workers, self.start_method) as encoders,
            # After them: it may have a thread, which should not exist yet when processes are forked.
            tqdm(total=len(chosen), unit="", disable=not self.progress) as progress,
        ):
            encoders.run(queue, builder.place, lambda task: progress.update(task.stop - task.start))
            indices = [chosen[bad.row] for bad in builder.skipped]
            names = [file_of(dataset, index) or f"sample {index}" for index in indices]
            self.skipped = [(name, without_place(bad.reason)) for name, bad in zip(names, builder.skipped, strict=True)]
            if builder.rows == 0:
                raise NoSamplesError(
                    f"{os.fspath(self.fname)}: of {len(chosen)} samples none could be read. The first is "
                    f"{': '.join(self.skipped[0])}"
                )
            if notes is not None and skip:
                notes = {**notes, "skipped": [{"name": name, "reason": reason} for name, reason in self.skipped]}
            progress.set_description_str("finding entry points" if has_index else "flushing to disk")
            types = {name: field.metadata_type for name, field in self.fields.items()}
            index = partial(index_file, file.temporary, types, file.write, num_workers=self.num_workers)
            builder.finish(notes, index if has_index else None)
            file.commit()


def _check_names(fields: Mapping[str, Any]) -> None:
    if not hasattr(fields, "items"):
        raise OptionError(
            f"fields is a {type(fields).__name__}; expected their names, too: "
            "{'image': RGBImageField(), 'label': IntField()}"
        )
    if not fields:
        raise OptionError("fields is empty, expected at least one field")
    for name, field in fields.items():
        if not isinstance(field, Field):
            hint = f"; write {field.__name__}(), with brackets" if isinstance(field, type) else ""
            raise OptionError(f"field {name!r} is {field!r}; expected an object of a Field's class{hint}")
        if not name.isascii() or len(name) > NAME_SIZE or "\0" in name:
            raise FieldNameError(
                f"field {name!r}: the format holds names of up to {NAME_SIZE} ASCII characters. "
                "FFCV cuts longer ones silently; use a shorter name."
            )


def _choose(
    dataset: Any, indices: Sequence[Any] | NDArray[Any] | None, shuffled: bool, seed: int | None
) -> Sequence[Any]:
    """List the indices of the samples in the order of the rows, as Python integers."""
    needed = ["__getitem__"] if indices is not None else ["__getitem__", "__len__"]
    if not all(hasattr(dataset, name) for name in needed):
        raise OptionError(
            f"dataset is a {type(dataset).__name__}; expected dataset[index] and len(dataset), as a list or a "
            "map-style dataset of torch has them. Of samples that come one after the other: list(dataset)"
        )
    if indices is None:
        chosen: Sequence[Any] = range(len(dataset))
    else:
        chosen = indices.tolist() if isinstance(indices, np.ndarray) else list(indices)
    if not shuffled:
        return chosen
    order = np.arange(len(chosen))
    if seed is None:
        np.random.shuffle(order)  # noqa: NPY002  (FFCV's users fix the order by np.random.seed)
    else:
        np.random.default_rng(seed).shuffle(order)
    return [chosen[position] for position in order.tolist()]
