"""Parts of an HTML page that is complete in one file, without scripts: all text is escaped here."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from gpubeton.cli.screen import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the findings</a>
<header>
<p class="kind">{kind}</p>
<h1>{heading}</h1>
<p class="muted">{subtitle}</p>
{nav}</header>
<main id="main" tabindex="-1">
{body}</main>
<footer><p class="muted">{footer}</p></footer>
</body>
</html>
"""


def text(value: object) -> str:
    """Escape text, also control characters: names of files may contain anything."""
    return escape(printable(str(value)))


def page(kind: str, heading: str, subtitle: str, sections: Sequence[tuple[str, str]], footer: str) -> str:
    """Make a page of sections, each a heading and HTML; all other arguments are text."""
    names = [f"part-{number}" for number in range(len(sections))]
    links = "".join(
        f'<li><a href="#{name}">{text(title)}</a></li>' for name, (title, _) in zip(names, sections, strict=True)
    )
    parts = [
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{text(title)}</h2>\n{content}</section>\n'
        for name, (title, content) in zip(names, sections, strict=True)
    ]
    return _PAGE.format(
        title=text(f"{heading} - {kind}"),
        style=files("gpubeton.cli").joinpath("report.css").read_text(encoding="utf-8"),
        kind=text(kind),
        heading=text(heading),
        subtitle=text(subtitle),
        nav=f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n' if len(sections) > 1 else "",
        body="".join(parts),
        footer=text(footer),
    )


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Sequence[int]) -> str:
    """Make a table of text; the columns `numbers` are aligned to the right, the first column has headings of rows."""

    def cell(column: int, value: object, tag: str, scope: str) -> str:
        kind = ' class="number"' if column in numbers else ""
        return f"<{tag}{scope}{kind}>{text(value)}</{tag}>"

    head = "".join(cell(column, name, "th", ' scope="col"') for column, name in enumerate(headings))
    body = "".join(
        "<tr>"
        + "".join(
            cell(column, value, "td" if column else "th", "" if column else ' scope="row"')
            for column, value in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{text(caption)}" tabindex="0"><table>'
        f"<caption>{text(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Make a list of names with their values."""
    return "<dl>\n" + "".join(f"<div><dt>{text(n)}</dt><dd>{text(v)}</dd></div>\n" for n, v in pairs) + "</dl>\n"
