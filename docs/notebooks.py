"""Write a page of the site for each notebook of examples/, with its committed outputs."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["write_notebooks"]

_NOTEBOOKS = Path(__file__).resolve().parent.parent / "examples/notebooks"


def write_notebooks(folder: Path) -> None:
    """Write the pages and their pictures.

    Parameters
    ----------
    folder : Path
        The folder for the pages, beside the guides' folder. Unchanged pages are not written.
    """
    folder.mkdir(exist_ok=True)
    for path in sorted(_NOTEBOOKS.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = [part for number, cell in enumerate(cells) for part in _cell(cell, folder, f"{path.stem}-{number}")]
        page, text = folder / f"{path.stem}.md", "\n\n".join(parts) + "\n"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _cell(cell: dict[str, Any], folder: Path, name: str) -> Iterator[str]:
    """Write the parts of a cell: its text or code, and what it printed and drew."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", source.replace("../../docs/", "../"))
        return
    if source.startswith("!"):
        yield f"```console\n{re.sub('^!', '$ ', source, flags=re.MULTILINE)}\n```"
    else:
        yield f"```python\n{re.sub('^%%writefile ', '# ', source)}\n```"
    for output in cell["outputs"]:
        if printed := "".join(output.get("text", ())).rstrip():
            yield "\n".join(
                ("```text", *map(str.rstrip, printed.splitlines()), "```")
            )  # a command may end lines by CR LF
        if "image/png" in (drawn := output.get("data", {})):
            (folder / f"{name}.png").write_bytes(base64.b64decode("".join(drawn["image/png"])))
            yield f"![Images of a batch, drawn by the code above]({name}.png)"
