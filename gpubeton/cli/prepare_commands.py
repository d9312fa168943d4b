"""``gpubeton index``, ``fetch`` and ``warm-up``: prepare files and machines for the loaders of a training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpubeton.cli.screen import counted, printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import (
    ClassNames,
    FieldClasses,
    ImageColumn,
    Json,
    LabelColumn,
    Root,
    SourceKind,
    Split,
    Workers,
    field_classes,
    read_class_names,
)
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from gpubeton.dataset import Indexed


_MOST_UNREAD = 10


def index(
    files: Annotated[
        list[str],
        typer.Argument(
            help=".beton files, or folders of them; a URL of a folder ends in /. With --out: what `gpubeton convert` "
            "takes, also zip and Arrow files.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="NAME.index", help="Index images that stay where they are.", show_default=False
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Also for files that have valid entry points, or a FILE.index of another kind."
        ),
    ] = False,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="With --out: no entry points and checksums, which read every image.")
    ] = False,
    workers: Workers = -1,
    field: FieldClasses = None,
    kind: SourceKind = None,
    image: ImageColumn = None,
    label: LabelColumn = None,
    classes: ClassNames = None,
    split: Split = None,
    root: Root = None,
    json: Json = False,
) -> None:
    """Find places in JPEG files where decoding can begin, and store them beside each file, as FILE.index.

    Loaders then decode only the part of an image that a crop needs: the same images in less time. A file without
    checksums gets these, too, so that loaders find damaged values. Files made by `gpubeton convert` have both already.
    After an interruption, the same command continues.

    Of a folder: write one index of all its files, as index.json and index.bin, by which loaders open the folder.

    With --out: write an index of images in tar files, folders, tables, zip or Arrow files, which a loader of
    NAME.index reads where they are.
    """
    from gpubeton._bytes import is_folder
    from gpubeton._sources import is_container
    from gpubeton.dataset import index_images, index_shards

    if out is not None:
        options = {
            "image": image, "label": label, "class_names": read_class_names(classes), "split": split, "root": root
        }  # fmt: skip
        work = {"entry_points": not headers_only, "overwrite": overwrite, "num_workers": workers}
        _index_sources(files, out, kind, options, work, json=json)
        return
    custom = field_classes(field)
    results: list[dict[str, Any]] = []
    for file in files:
        if is_container(file):
            raise OptionError(
                f"{file}: no .beton files. For images that stay where they are, name their index: -o NAME.index"
            )
        if is_folder(file):
            written = index_shards(file, custom)
            results.append(vars(written))
            if not json:
                files_text, samples = counted(written.shards, "file"), counted(written.samples, "sample")
                size = size_text(written.bytes)
                result_console().print(
                    f"{printable(file)}: {files_text} with {samples} in index.json and index.bin, {size}"
                )
            continue
        with progress(f"Indexing {file}") as advance:
            done = index_images(file, custom, overwrite=overwrite, num_workers=workers, on_progress=advance)
        results.append({"file": file, **vars(done)})
        if not json:
            result_console().print(f"{printable(file)}: {_described(done)}")
    if json:
        show_json({"files": results})


def _index_sources(
    sources: list[str], out: Path, kind: str | None, options: dict[str, Any], work: dict[str, Any], *, json: bool
) -> None:
    """Index images that stay where they are."""
    from gpubeton.dataset import index_source, open_source

    source = open_source(sources if len(sources) > 1 else sources[0], kind, **options)
    with progress(f"Indexing {sources[0]}") as advance:
        done = index_source(source, out, on_progress=advance, **work)
    if json:
        show_json(vars(done))
        return
    console = result_console()
    console.print(
        f"{printable(str(out))}: {counted(done.samples, 'sample')} in {counted(done.containers, 'file')}, "
        f"{counted(done.indexed, 'JPEG')} with entry points, {size_text(done.bytes)}"
    )
    for name in done.unread[:_MOST_UNREAD]:
        console.print(f"  no header that can be read: {printable(name)}")
    if len(done.unread) > _MOST_UNREAD:
        console.print(f"  and {len(done.unread) - _MOST_UNREAD} more")
    if done.outside:
        console.print(f"Loaders read it with containers=[{', '.join(map(repr, done.outside))}].")


def fetch(
    url: Annotated[
        str, typer.Argument(help="A .beton file, or a folder of shards, which ends in /.", show_default=False)
    ],
    cache_dir: Annotated[
        Path, typer.Option(envvar="GPUBETON_CACHE_DIR", help="The cache_dir of the loaders.", show_default=False)
    ],
    cache_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most bytes of the cache, e.g. '800 GB'.", show_default=False)
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only the share of this host, for order_kwargs={'nodes': ...} of loaders.", show_default=False
        ),
    ] = None,
    host: Annotated[
        int | None, typer.Option(min=0, help="With --nodes: the number of this host. Default: by torchrun or SLURM.")
    ] = None,
    hosts: Annotated[
        int | None, typer.Option(min=1, help="With --nodes: how many hosts there are. Default: by torchrun or SLURM.")
    ] = None,
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Fetch all pages of .beton files of an object store into the cache of this machine, before loaders need them.

    Loaders with the same cache_dir then map the files. After an interruption of any kind, the same command continues.
    """
    from gpubeton._bytes import fill_cache, source_type
    from gpubeton._sources import is_container
    from gpubeton.reader import Reader
    from gpubeton.traversal_order.window import parts_of_host

    if is_container(url):
        raise OptionError(
            f"{url}: fetch is for .beton files. Loaders read tars in place, by an index, and keep what they read "
            f"if they have a cache: gpubeton index {url} -o NAME.index, then Loader('NAME.index', ..., cache_dir=...)"
        )
    if nodes is None and (host, hosts) != (None, None):
        raise OptionError("--host and --hosts are for a share; expected --nodes, as loaders have it in order_kwargs")
    index = Reader(url, field_classes(field)).index
    sources = [(file.path, file.identity) for file in index.files]
    if source_type(sources[0][0]).is_local:
        raise OptionError(f"{url} is on this machine, and needs no cache; expected a URL such as s3://bucket/folder/")
    parts = None if nodes is None else parts_of_host(index, nodes, host, hosts)
    with progress(f"Fetching {url}") as advance:
        folder, total = fill_cache(sources, cache_dir, cache_limit, advance, parts)
    if json:
        show_json({"cache_dir": str(folder), "files": len(sources), "bytes": total})
        return
    what = f"{counted(len(sources), 'file')}, {size_text(total)}"
    result_console().print(f"{printable(url)}: {what}, in {printable(str(folder))}")


def warm_up(json: Json = False) -> None:
    """Compile the machine code for this CPU now, so that no loader waits for it.

    It takes up to half a minute. Run it when you set up a machine or a container image. Each type of CPU needs its own
    machine code.
    """
    from gpubeton import loader

    with progress("Compiling") as advance:
        folder = loader.warm_up(advance)
    size = sum(path.stat().st_size for path in folder.iterdir())
    if json:
        show_json({"folder": folder, "bytes": size})
    else:
        result_console().print(f"{folder}: {size_text(size)} of machine code")


def _described(done: Indexed) -> str:
    checksums = f"checksums of {counted(done.checksums, 'value')}"
    if not done.images:
        return f"{checksums} in {done.path.name}" if done.path else "it has no JPEG files to index"
    where = "in the file itself" if done.path is None else f"in {done.path.name}"
    before = "" if done.new else "; they were there before, --overwrite makes others"
    images = f"{done.indexed:,} of {counted(done.images, 'JPEG file')}"
    more = f" and {checksums}" if done.checksums else ""
    return f"entry points of {images}{more} {where}, {size_text(done.bytes)}{before}"
