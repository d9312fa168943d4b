"""Draw the picture of a report of `gpubeton doctor`, from the committed report beside it, for light and for dark pages.

    gpubeton doctor photos.beton --step-ms 15 --seconds 4 --html docs/figures/report.html
    python -m docs.report

The picture has the first part of the report, and where the time went.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

__all__ = ["draw_report"]

_FOLDER = Path(__file__).resolve().parent / "figures"
#: The first part, and of the third, the bars.
_HIDDEN = "nav, footer, .scroll, section:not(:has(#part-0, #part-2)) { display: none }"


def draw_report(folder: Path = _FOLDER) -> None:
    """Write both pictures.

    Parameters
    ----------
    folder : Path
        The folder with `report.html`, and for the pictures.
    """
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 480, "height": 800}, color_scheme=theme, device_scale_factor=1.5)
            page.goto((folder / "report.html").as_uri())
            page.add_style_tag(content=_HIDDEN)
            with Image.open(io.BytesIO(page.screenshot(full_page=True))) as picture:
                picture.save(folder / f"report-{theme}.webp", quality=60, method=6)
        browser.close()


if __name__ == "__main__":
    draw_report()
