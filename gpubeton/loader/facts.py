"""LoaderFacts: what a loader is, as far as its speed depends on it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.engine.image_output import ImageOutput
from gpubeton.fields.image_field import IMAGE_MODES
from gpubeton.format.data_files import listed_paths

if TYPE_CHECKING:
    from gpubeton.loader.loader import Loader

__all__ = ["ImageFacts", "LoaderFacts", "facts_of"]


@dataclass(frozen=True)
class ImageFacts:
    """What is stored of a field with images, and what is made of it.

    Parameters
    ----------
    name : str
        Name of the output.
    stored_height, stored_width : float
        Mean size of the stored images, in pixels.
    stored_bytes : float
        Mean bytes of a stored image.
    jpeg_share : float
        Share of images that are stored as JPEG, 0 to 1; the others are raw pixels.
    height, width : int
        Size of the images that are made, in pixels.
    """

    name: str
    stored_height: float
    stored_width: float
    stored_bytes: float
    jpeg_share: float
    height: int
    width: int


@dataclass(frozen=True)
class LoaderFacts:
    """What a loader is, as far as its speed depends on it.

    Parameters
    ----------
    files : tuple of str
        The files.
    samples : int
        Different samples of an epoch, of all ranks together.
    batch_size, num_workers, batches_ahead : int
        The loader's.
    os_cache : bool
        The loader's.
    device : str
        Where images are made: "cpu", or a GPU with its name.
    device_reason : str
        Why there.
    lanes : dict of str to str
        What there is to say of each way to decode on the GPU.
    images : tuple of ImageFacts
        Its outputs with images.
    unfused : tuple of str
        Operations that run on finished batches in the loader's thread, one after another.
    """

    files: tuple[str, ...] = ()
    samples: int = 0
    batch_size: int = 1
    num_workers: int = 1
    batches_ahead: int = 3
    os_cache: bool = True
    device: str = "cpu"
    device_reason: str = ""
    lanes: dict[str, str] = field(default_factory=dict)
    images: tuple[ImageFacts, ...] = ()
    unfused: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Give all of it as JSON can store it.

        Returns
        -------
        dict
            For `from_dict`.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> LoaderFacts:
        """Read what `to_dict` gave.

        Parameters
        ----------
        found : dict
            Facts by name; others than this class's are left out.

        Returns
        -------
        LoaderFacts
            The same.
        """
        known: dict[str, Any] = {entry.name: found[entry.name] for entry in fields(cls) if entry.name in found}
        known["images"] = tuple(ImageFacts(**image) for image in known.get("images", ()))
        known |= {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        return cls(**known)


def facts_of(loader: Loader) -> LoaderFacts:
    """Describe a loader.

    Parameters
    ----------
    loader : Loader
        The loader.

    Returns
    -------
    LoaderFacts
        What it is.
    """
    images, unfused = [], []
    for output in loader.plan().outputs:
        if not isinstance(output, ImageOutput):
            continue
        column = output.source.column[loader.indices]
        images.append(
            ImageFacts(
                name=output.name,
                stored_height=float(column["height"].mean()),
                stored_width=float(column["width"].mean()),
                stored_bytes=float(output.source.regions[0].size[loader.indices].mean()),
                jpeg_share=float((column["mode"] == IMAGE_MODES["jpg"]).mean()),
                height=output.program.height,
                width=output.program.width,
            )
        )
        unfused += [f"{output.name}: {name}" for name, note in output.program.notes if note.startswith("after")]
    gpu = loader.gpu
    return LoaderFacts(
        files=listed_paths(loader.fname),
        samples=len(np.unique(loader.indices)),
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        batches_ahead=loader.batches_ahead,
        os_cache=loader.os_cache,
        device="cpu" if gpu is None else f"{gpu.device.name} (cuda:{gpu.device.number})",
        device_reason=loader.gpu_choice.reason,
        lanes={} if gpu is None else {lane.name.lower(): note for lane, note in gpu.notes.items()},
        images=tuple(images),
        unfused=tuple(unfused),
    )
