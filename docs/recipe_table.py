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

#: Each recipe as a user writes it, with the evaluation of its source, and how strongly that mixes images by mixup; all
#: that do also cut and mix with 1.0.
_ENTRIES = (
    ('imagenet("ffcv")', "evaluation(256)", None),
    ('imagenet("torchvision")', 'evaluation(224, 224 / 232, "antialias")', 0.2),
    ('imagenet("A1")', 'evaluation(224, 0.95, "bicubic")', 0.2),
    ('imagenet("A2")', 'evaluation(224, 0.95, "bicubic")', 0.1),
    ('imagenet("A3")', 'evaluation(224, 0.95, "bicubic")', 0.1),
    ('imagenet("deit3")', _BICUBIC, 0.8),
    ('self_supervised("simclr")', _BICUBIC, None),
    ('self_supervised("byol")', _BICUBIC, None),
    ('self_supervised("dino")', _BICUBIC, None),
    ('self_supervised("mae")', _BICUBIC, None),
    ("cifar()", "", None),
    ("fine_tuning({})", "fine_tuning({}, training=False)", None),
    ("detection()", "", None),
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
    heading = ["recipe", "sides", "besides crop, flip and normalization", "evaluation", "mixup, cutmix"]
    lines = [heading, ["---"] * len(heading), *(_row(*entry) for entry in _ENTRIES)]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return re.sub(_MARKS, lambda marks: marks[1] + table + marks[2], text, flags=re.DOTALL)


def _row(code: str, evaluation: str, mixup: float | None) -> list[str]:
    result = eval(code, vars(recipes))
    outputs = [result] if isinstance(result, recipes.Recipe) else result.values()
    pipelines = [getattr(output, "transforms", output) for output in outputs]
    images = [operations for operations in pipelines if hasattr(operations[0], "boxes")]
    sides = [str(getattr(operations[0], "output_size", (32,))[0]) for operations in images]
    counted = [f"{sides.count(side)}\xa0×\xa0{side}" if len(sides) > 1 else side for side in dict.fromkeys(sides)]
    names = dict.fromkeys(type(operation).__name__ for operations in images for operation in operations[1:-3])
    between = ", ".join(f"`{name}`" for name in names if name != "RandomHorizontalFlip")
    mixing = f"{mixup}, 1.0" if mixup else ""
    return [f"`{code}`", ", ".join(counted), between, evaluation and f"`{evaluation}`", mixing]


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
