"""What the commands show: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["Screen", "counted", "histogram", "printable", "progress", "result_console", "show_json", "size_text"]

_BLOCKS = " ▏▎▍▌▋▊▉█"
#: Control characters, controls of the writing direction, line separators, and surrogates, which no encoding holds.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Make text safe for a terminal: it takes one line, and changes nothing but what it shows.

    Parameters
    ----------
    text : str
        May come from a file: names of classes and fields, paths, messages that quote them.

    Returns
    -------
    str
        The same text, with each control character as Python writes it, such as ``\x1b``.

    Examples
    --------
    >>> print(printable("cat\x1b[31m"))
    cat\x1b[31m
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Screen(Console):
    """A console for text from files: nothing in it is markup or an emoji code, and all of it is `printable`.

    Only strings are made safe. A `rich.text.Text` is printed as it is: its parts have to be `printable`.

    Parameters
    ----------
    **options : object
        As for `rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Give a string as text; rich calls this for every string that it prints."""
        return super().render_str(printable(text), **options)


class _Rate(ProgressColumn):
    """Things a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def result_console() -> Screen:
    """Give what results are drawn on.

    Returns
    -------
    Screen
        Of stdout.
    """
    return Screen(soft_wrap=True)


def show_json(value: Any) -> None:
    """Write a result for programs: one JSON document in ASCII, the only thing on stdout.

    Parameters
    ----------
    value : object
        What JSON can hold; numpy's numbers and paths, too. What is no finite number, which JSON does not know, becomes
        null.
    """
    plain = json.loads(json.dumps(value, default=_plain), parse_constant=lambda _: None)
    print(json.dumps(plain, indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with rate and time left on stderr, where that is a terminal.

    Parameters
    ----------
    what : str
        What is going on.

    Yields
    ------
    callable
        To be called with what is done, and with all.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(what), total=None)
        begun = False

        def advance(done: int, total: int) -> None:
            nonlocal begun
            if not begun:
                # What was there already says nothing about the speed.
                bar.reset(task, total=total, completed=done)
                begun = True
            bar.update(task, completed=done, total=total)

        yield advance


def counted(count: int, noun: str) -> str:
    """Write a number of things.

    Parameters
    ----------
    count : int
        How many.
    noun : str
        What one of them is called; several have an "s" behind.

    Returns
    -------
    str
        Both, the number with commas.

    Examples
    --------
    >>> counted(1, "sample"), counted(1200, "sample")
    ('1 sample', '1,200 samples')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(count: float) -> str:
    """Write a number of bytes for people.

    Parameters
    ----------
    count : float
        Bytes.

    Returns
    -------
    str
        With a unit of 1024s.

    Examples
    --------
    >>> size_text(8 << 20), size_text(900)
    ('8.0 MiB', '900 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def histogram(labels: Sequence[str], counts: Sequence[int], width: int = 40) -> list[str]:
    """Draw a histogram of text.

    Parameters
    ----------
    labels : sequence of str
        One for each bar.
    counts : sequence of int
        How long the bars are.
    width : int
        Characters of the longest bar.

    Returns
    -------
    list of str
        Lines.

    Examples
    --------
    >>> histogram(["cat", "dog"], [4, 2], width=4)
    ['cat ████ 4', 'dog ██   2']
    """
    most = max([1, *counts])
    name_width = max(map(len, labels), default=0)
    number_width = max((len(f"{count:,}") for count in counts), default=0)
    lines = []
    for label, count in zip(labels, counts, strict=True):
        eighths = round(8 * width * count / most) or int(count > 0)
        bar = "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")
        lines.append(f"{label:>{name_width}} {bar:<{width}} {count:>{number_width},}")
    return lines
