"""Add a build of the site to the folder of all published versions.

    python -m docs.versions build/docs site 1.2.0

Each version is a folder. `versions.json` lists them, the newest release first, for the choice in the sidebar; the first
page leads to the newest release.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

__all__ = ["add_version"]

_MAIN = Version("0.dev0")  # below every release


def add_version(build: Path, site: Path, name: str) -> list[str]:
    """Copy a build into the site, and write the list of versions and the first page.

    Parameters
    ----------
    build : Path
        The folder that `make docs` wrote.
    site : Path
        The folder of all versions; it may be empty or missing.
    name : str
        The version, such as ``1.2.0``, or the name of a branch. The same version is replaced.

    Returns
    -------
    list of str
        All versions, the newest release first.
    """
    if not (build / "index.html").is_file():
        raise FileNotFoundError(f"{build}: no index.html, expected a build of the site. Try: make docs")
    shutil.rmtree(site / name, ignore_errors=True)
    shutil.copytree(build, site / name)
    names = sorted((page.parent.name for page in site.glob("*/index.html")), key=_newness, reverse=True)
    (site / "versions.json").write_text(json.dumps(names) + "\n")
    leads = f'<meta http-equiv="refresh" content="0; url={names[0]}/index.html">'
    (site / "index.html").write_text(f"<!doctype html><title>gpubeton</title>{leads}\n")
    (site / ".nojekyll").touch()  # pages whose names begin with an underscore are served, too
    return names


def _newness(name: str) -> Version:
    try:
        return Version(name)
    except InvalidVersion:
        return _MAIN


if __name__ == "__main__":
    print(*add_version(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
