"""``gpubeton fetch``: files of an object store in the cache of this machine."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpubeton.cli.screen import counted, printable, progress, result_console, show_json, size_text
from gpubeton.cli.shared_options import FieldClasses, Json, field_classes
from gpubeton.errors import OptionError, StorageError


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
    field: FieldClasses = None,
    json: Json = False,
) -> None:
    """Fetch all pages of .beton files of an object store into the cache of this machine, before loaders need them.

    Loaders with the same cache_dir then map the files. After an interruption of any kind, the same command continues.
    """
    from gpubeton._bytes.node_cache import CacheFiller, NodeCache, parse_size
    from gpubeton._bytes.open_files import OpenSources, source_type
    from gpubeton.reader import Reader

    sources = [(file.path, file.identity) for file in Reader(url, field_classes(field)).index.files]
    if source_type(sources[0][0]).is_local:
        raise OptionError(f"{url} is on this machine, and needs no cache; expected a URL such as s3://bucket/folder/")
    node = NodeCache(cache_dir, None if cache_limit is None else parse_size("cache_limit", cache_limit))
    done = 0
    with closing(OpenSources(sources, cache=node)) as files, progress(f"Fetching {url}") as advance:
        total = sum(files.sizes)

        def count(page_bytes: int) -> None:
            nonlocal done
            done += page_bytes
            advance(done, total)

        files.hold()
        CacheFiller([partial(files.open, number) for number in range(len(files))], waits=True, on_page=count).join()
    if done < total:
        raise StorageError(
            f"{url}: {size_text(done)} of {size_text(total)} are in {node.directory}, which may hold "
            f"{size_text(node.limit)}. Give it more, by --cache-limit or a larger disk. Files whose server names no "
            "versions of them (a strong ETag) are not cached."
        )
    if json:
        show_json({"cache_dir": str(node.directory), "files": len(sources), "bytes": total})
        return
    where = printable(str(node.directory))
    result_console().print(f"{printable(url)}: {counted(len(sources), 'file')}, {size_text(total)}, in {where}")
