"""Print a result as text for an issue: its table, the machine and the versions, and the result itself as JSON.

python -m benchmarks.send                          # the newest comparison
python -m benchmarks.send benchmarks/results/2026-01-31-....json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.results import RESULTS
from benchmarks.table import draw

__all__ = ["text_of"]

_DIGITS = 5  # of measured numbers
_MOST = 65_000  # characters of an issue


def main(
    result: Annotated[Path | None, typer.Argument(help="A result; default: the newest comparison.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of results.")] = RESULTS,
) -> None:
    """Print a result as text for an issue."""
    files = [result] if result else sorted(results.glob("*-compare-*.json"))
    if not files:
        raise typer.BadParameter(f"{results} has no comparison. Make one: python -m benchmarks.compare")
    print(text_of(json.loads(files[-1].read_text())))


def text_of(result: dict[str, Any]) -> str:
    """Write a result as Markdown; paths of a user's folder become ``~``."""
    machine = result["machine"]
    title = f"Result of benchmarks.{result['kind']}: {machine['cpu']}, {machine['cores']} cores"
    compact = json.dumps(_rounded(result), separators=(",", ":"), ensure_ascii=False)
    text = f"{title}\n\n{draw(result)}\n\n<details><summary>JSON</summary>\n\n```json\n{compact}\n```\n\n</details>"
    text = text.replace(str(Path.home()), "~")
    if len(text) > _MOST:
        raise typer.BadParameter(f"an issue holds {_MOST:,} characters, this result has {len(text):,}: attach the file")
    return text


def _rounded(value: Any) -> Any:
    """Shorten the numbers of a result."""
    if isinstance(value, dict):
        return {name: _rounded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_rounded(member) for member in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    typer.run(main)
