"""The reports in headless Chromium; skipped where there is none."""

from __future__ import annotations

import os
import shutil

import pytest

from gpubeton.cli.advice import advise
from gpubeton.cli.report import write_bench_report, write_doctor_report
from tests.cli.test_report import HOSTILE, MEASURED, RATES

pytestmark = pytest.mark.campaign

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

WIDTHS = {"desktop": 1100, "phone": 360}
# For each element with text: its contrast, by WCAG 2, with its background.
CONTRASTS = """() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = numbers(color).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = element => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor;
      if (!(color.startsWith("rgba") && numbers(color)[3] === 0)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    if ([...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
      found.push([element.textContent.slice(0, 40), contrast(getComputedStyle(element).color, background(element))]);
  }
  for (const key of document.querySelectorAll(".key")) {
    const color = getComputedStyle(key).backgroundColor;
    found.push(["key: " + key.className, 1.5 * contrast(color, background(key.parentElement))]);  // 3 : 1 for figures
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as started:
        try:
            opened = started.chromium.launch(executable_path=program, args=arguments)
        except playwright.Error as error:
            pytest.skip(f"no Chromium can be started: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=["doctor", "bench"])
def report(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "report.html"
    if request.param == "doctor":
        write_doctor_report(path, [(MEASURED, advise(MEASURED))])
    else:
        write_bench_report(path, HOSTILE, RATES)
    return path


@pytest.fixture
def opened(browser, report):
    """Open the report at a width; errors of the console and requests of the network are collected."""
    contexts = []

    def open_page(width="desktop", scheme="light", **options):
        context = browser.new_context(
            viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme, offline=True, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.complaints, page.requests = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_opens_offline_without_complaints_and_fits_the_width(opened, width, scheme):
    page = opened(width, scheme)
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    clipped = page.evaluate(
        "() => [...document.querySelectorAll('h1, h2, p, li, dd, .plot')].filter(e => e.offsetParent !== null && "
        "e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert clipped == 0


def test_a_phone_shows_the_rates_with_how_they_were_measured_and_needs_no_scrolling(opened):
    page = opened("phone")
    hidden = "each => each.scrollWidth - each.clientWidth"
    assert [region.evaluate(hidden) for region in page.get_by_role("region", name="Rates of the parts").all()] in (
        [],
        [0],
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_the_main_parts_are_visible_without_scripts(opened, width):
    page = opened(width, java_script_enabled=False)
    for name in page.locator("h1, h2, .verdict, .pace, .row .plot, table caption >> visible=true").all():
        assert name.is_visible()
    assert page.locator(".verdict").count() == 1
    assert page.locator(".life .plot").count() == 12
    for bar in page.locator(".row .plot").all()[:6]:
        box = bar.bounding_box()
        assert box["width"] > 150
        assert box["height"] > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_figures_have_contrast(opened, scheme):
    page = opened("desktop", scheme)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    result = page.evaluate(CONTRASTS)
    assert len(result) > 50
    assert [(text, round(contrast, 2)) for text, contrast in result if contrast < 4.5] == []


def test_light_and_dark_differ(opened):
    colors = {
        opened("phone", scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert len(colors) == 2


def test_the_keyboard_reaches_everything_from_top_to_bottom(opened):
    page = opened("phone")
    expected = page.locator("a[href^='#'], [tabindex='0'] >> visible=true").count()
    reached, tops = [], []
    for _ in range(60):
        page.keyboard.press("Tab")
        name, top, outline = page.evaluate(
            "() => { const e = document.activeElement; return [e.tagName + ' ' + (e.getAttribute('aria-label') || "
            "e.textContent).slice(0, 60), e.getBoundingClientRect().top + scrollY, getComputedStyle(e).outlineStyle] }"
        )
        if name.startswith("BODY"):
            break
        reached.append(name)
        tops.append(top)
        assert outline == "solid", name
    assert reached[0] == "A Skip to the findings"
    assert tops[1:] == sorted(tops[1:])
    assert len(reached) >= expected
    assert any(name.startswith("SUMMARY") for name in reached)
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("details table").is_visible()


def test_the_skip_link_leads_past_the_contents(opened):
    page = opened()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
