"""The charts show the committed results, light and dark, with a text for those who do not see them."""

from __future__ import annotations

import re

import pytest

from docs.charts import CHARTS, FOLDER, chart_texts, draw_charts
from tests.docs.pages import PAGES, ROOT

PICTURE = re.compile(
    r'<picture>.*?srcset="(?P<dark>[^"]+)".*?alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)".*?</picture>', re.DOTALL
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charts")
    draw_charts(folder)
    return folder


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_shows_the_newest_results(drawn, name, theme):
    file = f"{name}-{theme}.svg"
    assert chart_texts(FOLDER / file)
    # If not: python -m docs.charts
    assert chart_texts(FOLDER / file) == chart_texts(drawn / file)


@pytest.mark.parametrize("name", [*CHARTS, "data_flow", "floors"])
def test_the_colors_of_a_text_can_be_read(name):
    for theme, page in (("light", "#ffffff"), ("dark", "#0d1117")):
        texts = (FOLDER / f"{name}-{theme}.svg").read_text()
        colors = set(re.findall(r'<text[^>]*?fill(?:: |=")(#\w{6})', texts))
        assert colors
        assert min(contrast(color, page) for color in colors) >= 4.5


def test_each_chart_is_on_a_page_with_a_text_for_those_who_do_not_see_it():
    found = {}
    for page in map(ROOT.joinpath, PAGES):
        for match in PICTURE.finditer(page.read_text()):
            light, dark = ((page.parent / match[theme]).resolve() for theme in ("light", "dark"))
            assert light.is_file()
            assert dark.is_file()
            assert len(match["alt"]) > 20
            found[light.name.partition("-light.")[0]] = match["alt"]
    assert found.keys() == {*CHARTS, "data_flow", "floors", "report"}
    shown = {f"{name}-{theme}.{'webp' if name == 'report' else 'svg'}" for name in found for theme in ("light", "dark")}
    assert {path.name for path in FOLDER.iterdir()} == {*shown, "report.html"}


def contrast(one, other):
    """Compute the contrast of two colors as WCAG defines it."""
    lights = sorted(luminance(color) for color in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(color):
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
