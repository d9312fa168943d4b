"""The built site in headless Chromium, and its links; skipped where there is no Chromium, or no new `make docs`."""

from __future__ import annotations

import itertools
import re
from html import unescape
from urllib.parse import unquote

import pytest

from tests.cli.test_report_in_browser import CONTRASTS, browser, playwright  # noqa: F401  (a fixture)
from tests.docs.pages import ROOT

SITE = ROOT / "build/docs"
SOURCES = [path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".css", ".svg"}]
BUILT = SITE / "index.html"
if not BUILT.exists() or BUILT.stat().st_mtime < max(path.stat().st_mtime for path in SOURCES):
    pytest.skip("the site is missing or old: make docs", allow_module_level=True)

WRITTEN = sorted(
    path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in SOURCES if path.suffix == ".md"
)
REFERENCE = ["api/index.html", "api/gpubeton.transforms.html", "api/gpubeton.loader.Loader.html"]
PAGES = [*WRITTEN, *REFERENCE, "genindex.html", "search.html"]
PHONE = 390


FACTS = """() => ({
  width: document.documentElement.scrollWidth,
  pictures: [...document.querySelectorAll("article img")].filter(e => !e.alt || !e.naturalWidth).map(e => e.src),
  levels: [...document.querySelectorAll("h1, h2, h3, h4")].map(e => +e.tagName[1]),
})"""


@pytest.fixture(params=["light", "dark"])
def page(browser, request):  # noqa: F811
    context = browser.new_context(viewport={"width": PHONE, "height": 800}, color_scheme=request.param, offline=True)
    opened = context.new_page()
    opened.complaints = []
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    yield opened
    context.close()


def test_every_page_fits_a_phone_shows_its_pictures_and_can_be_read(page):
    for name in PAGES:
        page.goto((SITE / name).as_uri())
        facts = page.evaluate(FACTS)
        assert page.complaints == [], name
        assert facts["width"] <= PHONE, name
        assert facts["pictures"] == [], name
        levels = facts["levels"]
        assert name == "search.html" or (levels[0], levels.count(1)) == (1, 1), name
        assert all(lower <= upper + 1 for upper, lower in itertools.pairwise(levels)), name
        # Buttons to copy are shown while the pointer is on their block.
        page.evaluate("document.querySelectorAll('button.copybtn').forEach(button => button.remove())")
        low = [(text, round(contrast, 2)) for text, contrast in page.evaluate(CONTRASTS) if contrast < 4.5]
        assert low == [], name


def test_a_phone_breaks_names_between_their_words(page):
    page.goto((SITE / "gallery.html").as_uri())
    heading = page.get_by_role("heading", name="RandomResizedCropRGBImageDecoder")
    height = heading.evaluate("e => parseFloat(getComputedStyle(e).lineHeight)")
    assert "<wbr>" in heading.inner_html()
    assert page.get_by_role("heading", name="CenterCropRGBImageDecoder").bounding_box()["height"] < 2 * height


def test_lines_of_a_diff_are_red_and_green(page):
    page.goto((SITE / "guides/from_ffcv.html").as_uri())
    color = "each => getComputedStyle(each).color.match(/\\d+/g).map(Number)"
    removed, added = (page.locator(f".highlight .{kind}").first.evaluate(color) for kind in ("gd", "gi"))
    assert removed[0] > 2 * removed[1]
    assert added[1] > 1.4 * added[0]


def test_one_figure_of_each_theme_is_shown_and_a_phone_shows_its_letters(page):
    page.goto((SITE / "figures.html").as_uri())
    shown = page.locator("article img >> visible=true")
    assert shown.count() == 3
    assert page.locator("article img").count() == 6
    for figure in shown.all():
        drawn = ROOT.joinpath("docs/figures", figure.get_attribute("src").rpartition("/")[2]).read_text()
        units = float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])
        letters = min(float(match) for match in re.findall(r"font-size: ([\d.]+)px", drawn))
        assert letters * figure.bounding_box()["width"] / units >= 8


@pytest.mark.parametrize(("words", "title"), [("letterbox", "Pipelines"), ("bounding boxes", "DataLoader")])
def test_the_search_finds_words_of_a_guide(page, words, title):
    page.goto((SITE / "search.html").as_uri() + f"?q={words}")
    page.locator("#search-results li a", has_text=title).first.wait_for(timeout=20_000)


def test_each_block_of_code_can_be_copied_without_its_prompt(page):
    page.goto((SITE / "guides/command.html").as_uri())
    assert page.locator("article div.highlight").count() == page.locator("article button.copybtn").count()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("article div.highlight", has_text="gpubeton convert train photos.beton").locator("button").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "gpubeton convert train photos.beton --max-resolution 256"
    page.goto((SITE / "guides/from_ffcv.html").as_uri())
    page.locator("article div.highlight", has_text="sed -i -E").locator("button").click()
    assert page.evaluate("navigator.clipboard.readText()").count("\n") == 3


def test_each_link_inside_the_site_leads_to_a_page_and_an_anchor():
    # Without the sources that viewcode shows: their links back have anchors of where a name was defined.
    pages = {path: path.read_text() for path in SITE.rglob("*.html") if "_modules" not in path.parts}
    anchors = {path: {unescape(match) for match in re.findall(r' id="([^"]+)"', text)} for path, text in pages.items()}
    broken = set()
    for path, text in pages.items():
        for link in map(unescape, re.findall(r'<a [^>]*href="([^"]+)"', text)):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file)).resolve() if file else path
            if not target.exists() or (anchor and unquote(anchor) not in anchors.get(target, {unquote(anchor)})):
                broken.add((path.relative_to(SITE).as_posix(), link))
    assert sorted(broken) == []
