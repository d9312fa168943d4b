"""The charts show the committed results, light and dark, with a text for those who do not see them."""

from __future__ import annotations

import re

from docs.charts import CHARTS, FOLDER, chart_texts, draw_charts
from tests.docs.pages import PAGES, ROOT

PICTURE = re.compile(
    r'<picture>.*?srcset="(?P<dark>[^"]+)".*?alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)".*?</picture>', re.DOTALL
)


def test_charts_show_the_newest_results(tmp_path):
    draw_charts(tmp_path)
    files = [f"{name}-{theme}.svg" for name in CHARTS for theme in ("light", "dark")]
    assert [file for file in files if not chart_texts(FOLDER / file)] == []
    # If not: python -m docs.charts
    assert [file for file in files if chart_texts(FOLDER / file) != chart_texts(tmp_path / file)] == []


def test_the_colors_of_texts_can_be_read():
    pages = {"light": "#ffffff", "dark": "#0d1117"}
    files = {f"{name}-{theme}.svg": page for name in [*CHARTS, "data_flow", "floors"] for theme, page in pages.items()}
    pattern = re.compile(r'<text[^>]*?fill(?:: |=")(#\w{6})')
    colors = {(file, page): set(pattern.findall((FOLDER / file).read_text())) for file, page in files.items()}
    assert [file for (file, _), of_texts in colors.items() if not of_texts] == []
    pairs = [(file, color, page) for (file, page), of_texts in colors.items() for color in of_texts]
    assert [(file, color) for file, color, page in pairs if contrast(color, page) < 4.5] == []


def test_each_chart_is_on_a_page_with_an_alternative_text():
    results = {}
    for page in map(ROOT.joinpath, PAGES):
        for match in PICTURE.finditer(page.read_text()):
            light, dark = ((page.parent / match[theme]).resolve() for theme in ("light", "dark"))
            assert light.is_file()
            assert dark.is_file()
            assert len(match["alt"]) > 20
            results[light.name.partition("-light.")[0]] = match["alt"]
    assert results.keys() == {*CHARTS, "data_flow", "floors", "report"}
    shown = {
        f"{name}-{theme}.{'webp' if name == 'report' else 'svg'}" for name in results for theme in ("light", "dark")
    }
    assert {path.name for path in FOLDER.iterdir()} == {*shown, "report.html"}


def contrast(one, other):
    """Compute the contrast of two colors as WCAG defines it."""
    lights = sorted(luminance(color) for color in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(color):
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
