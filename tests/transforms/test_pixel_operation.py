from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from gpubeton.batch.color_formulas import PARAMETER, PIXEL
from gpubeton.batch.pixel_functions import nearest_level
from gpubeton.errors import OperationError, OptionError, PipelineError
from gpubeton.pipeline import Compiler, State
from gpubeton.transforms import PixelOperation
from tests.transforms.layouts import LAYOUTS, as_nhwc_array, in_layout
from tests.transforms.pixel_operations import CASES, RAMP, parameters_of, ramp, referred, sepia

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 9, 14, 3), np.uint8)
IMAGES[0], IMAGES[1] = 0, 255
NHWC = State(True, "cpu", (9, 14, 3), np.dtype("uint8"))

#: float32 rounds each of a dozen operations on numbers up to 800 by 2**-15 at most.
ROUNDING = 12 * 2.0**-15


def numbers(count, rows=None):
    return np.random.default_rng(1).random((5, 24))[:, :count]


def same(r, g, b):
    return r, g, b


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_levels_are_the_nearest_to_those_of_the_float64_reference(name, layout):
    operation = CASES[name].make(p=0.8)
    steps = operation.draw(numbers, 5, NHWC)
    assert (steps[:, -1] == 0).sum() == 2
    found = as_nhwc_array(operation.apply(in_layout(IMAGES, layout), steps), layout)
    for image, own, row in zip(IMAGES, found, steps, strict=True):
        assert (np.abs(own - referred(CASES[name], image, row)) <= 0.5 + ROUNDING).all()


def test_a_function_that_numba_compiled_already_is_taken_too():
    steps = CASES["position"].make().draw(numbers, 5, NHWC)
    arguments = RAMP, ["dark", "bright"], lambda numbers: numbers
    compiled = PixelOperation(arguments[0], numba.njit(fastmath=True)(ramp), *arguments[1:], numbers=2)
    assert np.array_equal(compiled.apply(IMAGES.copy(), steps), CASES["position"].make().apply(IMAGES.copy(), steps))


def test_it_works_while_the_compiler_is_switched_off():
    operation = CASES["position"].make()
    steps = operation.draw(numbers, 5, NHWC)
    expected = operation.apply(IMAGES.copy(), steps)
    Compiler.set_enabled(False)
    try:
        assert np.array_equal(operation.apply(IMAGES.copy(), steps), expected)
    finally:
        Compiler.set_enabled(True)


@pytest.mark.parametrize(
    ("value", "level"), [(-0.0, 0), (0.49, 0), (0.5, 1), (1.5, 2), (254.5, 255), (1e30, 255), (-1e30, 0), (np.inf, 255)]
)
def test_halves_are_rounded_up_and_ends_cut_off(value, level):
    assert nearest_level(value) == level


def test_parameters_are_drawn_between_their_ends_and_numbers_are_what_they_are():
    operation = PixelOperation("r += a + b2;", parameters={"a": (10, 20), "b2": 3.5})
    drawn = np.array([parameters_of(row) for row in operation.draw(numbers, 5, NHWC)])
    assert np.array_equal(drawn[:, 0], np.float32(10 + 10 * numbers(2)[:, 1]))
    assert (drawn[:, 1] == 3.5).all()


def test_a_row_of_draws_has_the_parameters_and_then_the_width():
    steps = PixelOperation("r += a;", parameters={"a": 1.0}, p=0).draw(numbers, 5, NHWC)
    assert steps.tolist() == [[PARAMETER, np.float32(1).view(np.int32), PIXEL, 0]] * 5
    assert PixelOperation("r = 0;").draw(numbers, 5, NHWC).tolist() == [[PIXEL, 14]] * 5


def test_drawing_turns_the_asked_for_numbers_into_parameters():
    asked = []

    def draw(own):
        asked.append(own)
        return own.sum(axis=1)

    operation = PixelOperation("r += a;", parameters=["a"], draw=draw, numbers=4)
    steps = operation.draw(numbers, 5, NHWC)
    assert np.array_equal(asked[0], numbers(5)[:, 1:])
    assert [parameters_of(row).item() for row in steps] == np.float32(numbers(5)[:, 1:].sum(axis=1)).tolist()


def test_draws_of_another_shape_are_refused():
    operation = PixelOperation("r += a;", parameters=["a", "c"], draw=lambda own: own[:, :1])
    with pytest.raises(OperationError, match=r"\(5, 1\) .*\(5, 2\)"):
        operation.draw(numbers, 5, NHWC)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither cuda nor numba"),
        ({"cuda": "r = 1; }"}, "braces"),
        ({"cuda": "{ r = 1; // }"}, "braces"),
        ({"cuda": "", "parameters": ["a"]}, "together with draw"),
        ({"cuda": "", "parameters": {"a": 1}, "draw": len}, "together with draw"),
        ({"cuda": "", "parameters": {"x": 1}}, "'x' cannot be the name"),
        ({"cuda": "", "parameters": {"two words": 1}}, "'two words' cannot be the name"),
        ({"cuda": "", "parameters": {"a": (1, 2, 3)}}, "expected a number, or two"),
        ({"cuda": "", "parameters": {"a": float("nan")}}, "expected a number, or two"),
        ({"cuda": "", "parameters": {f"a{i}": 1 for i in range(17)}}, "at most 16"),
        ({"cuda": "", "parameters": ["a", "a"], "draw": len}, "each of another name"),
        ({"cuda": "", "p": 2}, "p is 2"),
        ({"cuda": "", "numbers": "all"}, "numbers is 'all'; expected a whole number"),
        (
            {"numba": lambda r, g, b, gain: (r, g, b * gain)},
            "has the arguments r, g, b, gain; expected r, g, b, and then",
        ),
        ({"numba": lambda red, g, b: (red, g, b)}, "has the arguments red, g, b; expected r, g, b"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(OptionError, match=message):
        PixelOperation(**arguments)


def test_a_function_that_raises_is_refused():
    def strict(r, g, b):
        if r > np.float32(3):
            raise ValueError
        return r, g, b

    with pytest.raises(OptionError, match="raises an error"):
        PixelOperation(numba=strict)


def wrong_name(r, g, b):
    return r * gian, g, b  # noqa: F821 (that is the mistake)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda r, g, b: r + g + b, "returns float32 for a pixel; expected three numbers"),
        (lambda r, g, b: (r, g + b), r"returns UniTuple\(float32 x 2\)"),
        (lambda r, g, b: (r, g, b * 1j), r"returns Tuple\(float32, float32, complex128\)"),
        (wrong_name, r"test_pixel_operation\.py:\d+\)[\s\S]*'gian' is not defined"),
    ],
)
def test_a_mistake_in_the_numba_half_is_told_before_any_image(function, message):
    with pytest.raises(PipelineError, match=message):
        PixelOperation(numba=function).declare_state_and_memory(NHWC)


def test_levels_are_what_it_works_on():
    floats = State(True, "cpu", (9, 14, 3), np.dtype("float16"))
    with pytest.raises(PipelineError, match="works on levels"):
        PixelOperation(numba=same).declare_state_and_memory(floats)


def test_without_the_numba_half_nothing_is_done_on_the_cpu():
    operation = PixelOperation("r = 0;", name="mine")
    with pytest.raises(PipelineError, match=r"PixelOperation\('mine', p=1.0\) "):
        operation.apply(torch.from_numpy(IMAGES.copy()), operation.draw(numbers, 5, NHWC))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"cuda": "r = y;"}, True),
        ({"cuda": "r = yellow + 1.0f;"}, False),
        ({"numba": sepia, "parameters": {"share": 1}}, False),
        ({"numba": lambda r, g, b, width: (r, g, b + width)}, True),
    ],
)
def test_whether_the_position_matters_is_found_out(arguments, expected):
    assert PixelOperation(**arguments).uses_position == expected


@pytest.mark.parametrize("half", ["r", max, 3])
def test_a_numba_half_that_is_no_python_function_is_refused(half):
    with pytest.raises(OptionError, match=r"numba is .*; .*function"):
        PixelOperation(numba=half)
