"""Draw the table of the page of recipes.

python -m docs.recipe_table
"""

from __future__ import annotations

import re
from pathlib import Path

from gpubeton import recipes

__all__ = ["PAGE", "fill"]

PAGE = Path(__file__).resolve().parent / "recipes.md"

_BICUBIC = 'evaluation(interpolation="bicubic")'
_MARKS = r"(<!-- table: recipes; .*? -->\n).*?(<!-- end of table -->)"

#: Each recipe as a user writes it, with the evaluation and the mixing of its source.
_ENTRIES = (
    ('imagenet("ffcv")', "evaluation(256)", ""),
    (
        'imagenet("torchvision")',
        'evaluation(224, 224 / 232, "antialias")',
        "ImageMixup(0.2, True), ImageCutMix(1.0, True)",
    ),
    ('imagenet("A1")', 'evaluation(224, 0.95, "bicubic")', "ImageMixup(0.2, True), ImageCutMix(1.0, True)"),
    ('imagenet("A2")', 'evaluation(224, 0.95, "bicubic")', "ImageMixup(0.1, True), ImageCutMix(1.0, True)"),
    ('imagenet("A3")', 'evaluation(224, 0.95, "bicubic")', "ImageMixup(0.1, True), ImageCutMix(1.0, True)"),
    ('imagenet("deit3")', _BICUBIC, "ImageMixup(0.8, True), ImageCutMix(1.0, True)"),
    ('self_supervised("simclr")', _BICUBIC, ""),
    ('self_supervised("byol")', _BICUBIC, ""),
    ('self_supervised("dino")', _BICUBIC, ""),
    ('self_supervised("mae")', _BICUBIC, ""),
    ("cifar()", "", ""),
    ("fine_tuning({})", "fine_tuning({}, training=False)", ""),
    ("detection()", "", ""),
)


def fill(text: str) -> str:
    """Draw the table of a page again.

    Parameters
    ----------
    text : str
        The page, in Markdown.

    Returns
    -------
    str
        The page with its table.
    """
    heading = ["recipe", "sides", "besides crop, flip and normalization", "evaluation", "mixing"]
    lines = [heading, ["---"] * len(heading), *(_row(*entry) for entry in _ENTRIES)]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return re.sub(_MARKS, lambda marks: marks[1] + table + marks[2], text, flags=re.DOTALL)


def _row(code: str, evaluation: str, mixing: str) -> list[str]:
    made = eval(code, vars(recipes))
    views = (
        [made] if isinstance(made, recipes.Recipe) else [getattr(view, "transforms", view) for view in made.values()]
    )
    images = [view for view in views if hasattr(view[0], "boxes")]
    sides = [str(getattr(view[0], "output_size", (32,))[0]) for view in images]
    counted = [f"{sides.count(side)} × {side}" if len(sides) > 1 else side for side in dict.fromkeys(sides)]
    names = dict.fromkeys(type(operation).__name__ for view in images for operation in view[1:-3])
    operations = ", ".join(f"`{name}`" for name in names if name != "RandomHorizontalFlip")
    cells = [", ".join(counted), operations, evaluation and f"`{evaluation}`"]
    return [f"`{code}`", *cells, ", ".join(f"`{operation}`" for operation in re.findall(r"\w+\(.*?\)", mixing))]


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
