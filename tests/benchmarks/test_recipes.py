from __future__ import annotations

import pytest

from benchmarks import recipes
from benchmarks.contenders.process import Contender
from benchmarks.recipe_cases import OPERATIONS, PLAIN, RECIPES, pipelines_of
from benchmarks.results import latest
from benchmarks.table import fill
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import ColorJitter, NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage


@pytest.mark.parametrize("threads", ["1", "1,2"])
def test_each_case_is_timed_beside_the_plain_recipe_and_drawn(tmp_path, monkeypatch, threads):
    missing = Contender("Missing", "work", "a_missing_package", "GPUBETON_MISSING_PYTHON")
    monkeypatch.setattr(recipes, "OPPONENTS", (recipes.OPPONENTS[0], missing))
    cases = "jitter;RandomInvert(1.0);RandomNothing()"
    # More batches than are made ahead: the thread that makes them works while they are counted.
    small = {"images": 8, "batches": 12, "batch_size": 4, "rounds": 2, "side": 32, "interpolation": "area"}
    folders = {"data": tmp_path / "data", "results": tmp_path / "results"}
    recipes.main(cases=cases, threads=threads, opponents=True, **small, **folders)
    result = latest(recipes.KIND, tmp_path / "results") or {}
    timed = [(run["name"], run["threads"]) for run in result["runs"]]
    assert timed == [(name, int(count)) for count in threads.split(",") for name in cases.split(";")[:2]]
    for run in result["runs"]:
        assert len(run["laps"]) == len(run["plain"]) == 2
        assert all(value > 0 for lap in run["laps"] + run["plain"] for value in lap.values())
    assert list(result["left_out"]) == ["RandomNothing()"]
    races = (latest("recipe_opponents", tmp_path / "results") or {})["races"]
    assert [(race["name"], list(race["left_out"])) for race in races] == [
        (PLAIN, ["Missing"]),
        ("jitter", ["Missing"]),
    ]
    tables = "".join(
        f"<!-- table: {name} -->\n<!-- end of table -->\n"
        for name in (recipes.KIND, recipes.KIND.replace("recipes", "operations"), "recipe_opponents")
    )
    drawn = fill(tables, tmp_path / "results")
    assert drawn.count("| plain |") == len(threads.split(",")) + 1
    assert "| `RandomInvert(1.0)` |" in drawn
    assert "Left out: RandomNothing(): " in drawn


def test_an_operation_comes_between_flip_and_normalization_of_the_plain_recipe():
    (image,) = pipelines_of("ColorJitter(0.4, 0.4, 0.4)", 96).values()
    first = [RandomResizedCropRGBImageDecoder, RandomHorizontalFlip, ColorJitter]
    assert [type(operation) for operation in image] == [*first, NormalizeImage, ToTensor, ToTorchImage]
    assert image[0].output_size == (96, 96)


def test_all_cases_resize_in_one_way_or_in_that_of_the_recipe():
    several = pipelines_of("DINO, 2 + 8 views", 56)
    decoders = [getattr(view, "transforms", view)[0] for view in several.values()]
    assert [decoder.interpolation for decoder in decoders] == ["area"] * 10
    (image,) = pipelines_of("MAE", interpolation=None).values()
    assert image[0].interpolation == "bicubic"


def test_every_case_can_be_made_and_none_is_listed_twice():
    cases = [*RECIPES, *OPERATIONS]
    assert len(set(cases)) == len(cases)
    assert all(pipelines_of(case, 64)["image"] for case in cases)
