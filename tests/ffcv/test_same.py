"""A script of FFCV's gives the same with its imports changed: shapes, types, memory orders and elements."""

from __future__ import annotations

import os
import subprocess

import numpy as np
import pytest

from gpubeton.reader import Reader
from tests.ffcv.cases import CASES
from tests.ffcv.package import Package, Samples, fields_of, track_field
from tests.ffcv.produce import __file__ as producer
from tests.ffcv.results import golden, ours

DRAWN = {
    "brightness",
    "brightness_floats",
    "brightness_some",
    "contrast",
    "contrast_floats",
    "cutout",
    "cutout_floats",
    "cutout_fraction",
    "flip_some",
    "mixup",
    "saturation",
    "saturation_doubles",
    "translate",
}

#: Largest differences, in the unit of the output. Levels that were resized are rounded after other sums than OpenCV's;
#: normalized levels that are then blended in float32 are summed in another order.
TOLERANCES = {
    "crop_shrinks": 1,
    "crop_grows": 1,
    "generated_crops": 1,
    "poisoned_floats": 2**-16,
}


def assert_same(result, expected, tolerance=0):
    assert result.keys() == expected.keys()
    for key, array in result.items():
        assert array.dtype == expected[key].dtype, key
        assert array.shape == expected[key].shape, key
        if tolerance:
            difference = np.abs(array.astype(np.float64) - expected[key].astype(np.float64))
            assert difference.max(initial=0) <= tolerance, key
        else:
            assert array.tobytes() == expected[key].tobytes(), key


def expected_of(name, results):
    return {key: array for key, array in results.items() if key.partition("/")[0] == name}


@pytest.mark.parametrize("name", sorted(CASES.keys() - DRAWN))
def test_the_same_script_gives_the_results_of_ffcv(surface_file, name):
    assert_same(ours(surface_file, name), expected_of(name, golden()), TOLERANCES.get(name, 0))


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_random_outputs_have_ffcvs_shapes_types_and_memory_orders(surface_file, name):
    def form(results):
        return {
            key: array.tolist() if key.endswith("strides") else (array.dtype.str, array.shape)
            for key, array in results.items()
        }

    assert form(ours(surface_file, name)) == form(expected_of(name, golden()))


def results_of_ffcv(file, results, *names):
    """What an installed FFCV gives for some cases, by default all."""
    python = os.environ.get("GPUBETON_FFCV_PYTHON")
    if python is None:
        pytest.skip("GPUBETON_FFCV_PYTHON names no Python with FFCV (benchmarks/ffcv_environment.sh makes one)")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([python, producer, "ffcv", file, results, *names], env=environment, check=True)
    with np.load(results) as stored:
        return dict(stored)


@pytest.fixture(scope="session")
def live(surface_file, tmp_path_factory):
    return results_of_ffcv(surface_file, tmp_path_factory.mktemp("live") / "results.npz")


@pytest.mark.parametrize("name", sorted(CASES.keys() - DRAWN))
def test_an_installed_ffcv_still_gives_the_golden_results(live, name):
    # Resizing is OpenCV's, of which FFCV takes the machine's.
    assert_same(expected_of(name, live), expected_of(name, golden()), TOLERANCES.get(name, 0))


def test_ffcv_reads_files_of_ours_with_notes_in_them(tmp_path):
    package = Package.named("gpubeton")
    writer = package.DatasetWriter(tmp_path / "ours.beton", fields_of(package), page_size=1 << 21, notes={"a": ["b"]})
    writer.from_indexed_dataset(Samples())
    assert Reader(tmp_path / "ours.beton", {"track": track_field(package)}).notes["a"] == ["b"]
    names = ("decoders", "default", "orders")
    result = results_of_ffcv(tmp_path / "ours.beton", tmp_path / "results.npz", *names)
    for name in names:
        assert_same(expected_of(name, result), expected_of(name, golden()))
