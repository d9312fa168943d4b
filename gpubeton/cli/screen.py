"""Output of the commands: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich import progress as bars
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubeton._bytes import Progress

_BLOCKS = " ▏▎▍▌▋▊▉█"
#: Control characters, bidirectional controls, line separators, and surrogates, which cannot be encoded.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Make text from files safe for a terminal: escape each control character, so that it stays on one line."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class Screen(Console):
    """A console for text from files: strings are `printable`, and never markup or emoji codes.

    A `rich.text.Text` is printed as it is: its parts have to be `printable`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a string to text; rich calls this for every string that it prints."""
        return super().render_str(printable(text), **options)


class _Rate(bars.ProgressColumn):
    """Items per second."""

    def render(self, task: bars.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def result_console() -> Screen:
    """Return the console for results, on stdout."""
    return Screen(soft_wrap=True)


def show_json(value: Any) -> None:
    """Print a result as one ASCII JSON document; numbers that are not finite become null."""
    text = json.dumps(value, default=lambda item: item.tolist() if hasattr(item, "tolist") else str(item))
    plain = json.loads(text, parse_constant=lambda _: None)
    print(json.dumps(plain, indent=2, allow_nan=False))


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Show a progress bar on stderr if that is a terminal; yields a function of the numbers done and total."""
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        _Rate(),
        bars.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    bar = bars.Progress(*columns, console=console, transient=True)
    with bar if console.is_terminal else nullcontext():  # before rich 14.3, a disabled bar ends with an empty line
        task = bar.add_task(printable(title), total=None)
        is_first = True

        def advance(done: int, total: int) -> None:
            nonlocal is_first
            if is_first:
                # Items done by an earlier run must not count in the rate.
                bar.reset(task, total=total, completed=done)
                is_first = False
            bar.update(task, completed=done, total=total)

        yield advance


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: "1 sample", "1,200 samples", "2 classes"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def size_text(count: float) -> str:
    """Format a number of bytes: "8.0 MiB", "900 B"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def histogram(labels: Sequence[str], counts: Sequence[int], width: int = 40) -> list[str]:
    """Draw a histogram as lines of text; the longest bar has `width` characters."""
    most = max([1, *counts])
    name_width = max(map(len, labels), default=0)
    number_width = max((len(f"{count:,}") for count in counts), default=0)
    lines = []
    for label, count in zip(labels, counts, strict=True):
        eighths = round(8 * width * count / most) or int(count > 0)
        bar = "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")
        lines.append(f"{label:>{name_width}} {bar:<{width}} {count:>{number_width},}")
    return lines
