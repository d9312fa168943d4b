"""Pixel operations of users inside the kernels: to the bit what the Numba half does, and a mistake shows its line."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import KernelError
from gpubeton.fields.image_decoders import CenterCropRGBImageDecoder
from gpubeton.gpu import nvrtc
from gpubeton.gpu.gpu_kernels import KernelVariant, color_kernels, function_of, source_of, source_of_operations
from gpubeton.pipeline import State
from gpubeton.plan.fusion import compile_image_program
from gpubeton.transforms import ColorJitter, PixelOperation, RandomContrast
from tests.kernels.compilers import compilers
from tests.kernels.host_build import FORWARD, ORDERS, needs_compiler
from tests.kernels.host_device import looked_up, table_of_bits
from tests.kernels.launching import change_colors
from tests.transforms.pixel_operations import CASES, referred

SAMPLES = np.arange(6, dtype=np.uint64)
#: Whole loads and odd ones; several blocks of an image; a single pixel.
SIZES = [(20, 32), (7, 9), (91, 101), (1, 1)]
ROUNDING = 12 * 2.0**-15
IN_ORDER = {
    "alone": ["position"],
    "two": ["one parameter", "out of range"],
    "among others": [ColorJitter(0.4, 0.4, 0.4, 0.1), "one parameter", RandomContrast(0.5, 1.0), "position"],
    "before a contrast": ["position", RandomContrast(0.5, 1.0)],
}


def operations(names):
    return [CASES[one].make(p=0.7) if isinstance(one, str) else one for one in names]


def program_of(names, size, device="cuda:0"):
    decoder = CenterCropRGBImageDecoder(size, 1.0)
    return compile_image_program("image", 0, [decoder, *operations(names)], np.array([9]), np.array([9]), device)


def run(program, images, steps, table, item_size, order=FORWARD):
    """What the kernel writes."""
    how = {"names": color_kernels(program), "order": order, "seed": 3}
    return change_colors(images, steps, table, item_size, num_sums=program.num_contrasts, how=how).out


def on_cpu(program, images, steps):
    """Each operation by itself, one after another."""
    images, place = images.copy(), 0
    for color, _ in program.colors:
        images = color.apply(images, steps[:, place : place + 2 * color.num_steps])
        place += 2 * color.num_steps
    return images


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("names", IN_ORDER)
def test_the_kernel_writes_what_the_numba_halves_do_to_the_bit(names, size, order):
    generator = np.random.default_rng(order)
    images = generator.integers(0, 256, (6, *size, 3), np.uint8)
    images[0], images[1] = 255, 0
    program, table = program_of(IN_ORDER[names], size), table_of_bits(2)
    assert len(program.ops.steps) == 0
    steps = program.draw_colors(4, 1, SAMPLES)
    found = run(program, images, steps, table, 2, order)
    assert np.array_equal(found, looked_up(on_cpu(program, images, steps), table, 2))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_levels_are_the_nearest_to_those_of_the_float64_reference(name):
    images = np.random.default_rng(9).integers(0, 256, (6, 20, 32, 3), np.uint8)
    program, table = program_of([name], (20, 32)), np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)
    steps = program.draw_colors(4, 1, SAMPLES)
    found = run(program, images, steps, table, 1)
    for image, own, row in zip(images, found, steps, strict=True):
        assert (np.abs(own - referred(CASES[name], image, row)) <= 0.5 + ROUNDING).all()


def test_only_a_program_with_pixel_operations_has_kernels_of_its_own():
    assert color_kernels(program_of([ColorJitter(0.4)], (4, 4))) == ("color_sum", "color")
    first, again = (color_kernels(program_of(["position"], size)) for size in ((4, 4), (30, 9)))
    assert first == again, "one for all sizes"
    assert not set(first) & set(color_kernels(program_of(["one parameter"], (4, 4))))
    assert [function_of(kernel) for kernel in first] == ["color_sum", "color"]


def test_the_statements_stand_under_a_name_of_their_own():
    operation = PixelOperation("r *= gain;\ng = 3;", parameters={"gain": 2.0}, name='my "best"\n\\one')
    lines = source_of(KernelVariant("color", source_of_operations([operation]))).splitlines()
    at = lines.index('#line 1 "PixelOperation my _best___one, cuda"')
    assert lines[at + 1 : at + 3] == ["r *= gain;", "g = 3;"]
    assert lines.index('#line 1 "kernels/color.cu"') > at


COMPILERS = compilers()
needs_nvrtc = pytest.mark.skipif(not COMPILERS, reason="no NVRTC: pip install nvidia-cuda-nvrtc")


@needs_nvrtc
def test_the_kernel_compiles_for_a_gpu_without_a_warning():
    made = KernelVariant("color", source_of_operations(operations(CASES)))
    for compiler in COMPILERS:
        compiled = compiler.compile(source_of(made), "color", "sm_90")
        assert b"color" in compiled.code
        assert compiled.log == ""


@needs_nvrtc
def test_a_mistake_in_the_statements_is_told_with_its_line():
    program = program_of(["position"], (4, 4))
    wrong = PixelOperation("r *= gain;\ng = gian;", parameters={"gain": 2.0}, name="warm")
    kernel = KernelVariant("color", source_of_operations([program.colors[0][0], wrong]))
    with pytest.raises(KernelError, match=r'PixelOperation warm, cuda\(2\): error: identifier "gian" is undefined'):
        nvrtc.load().compile(source_of(kernel), kernel, "sm_90")


def test_a_program_draws_the_same_parameters_on_both_executors():
    on_gpu, cpu = (program_of(IN_ORDER["among others"], (8, 8), device) for device in ("cuda:0", "cpu"))
    rows = on_gpu.draw_colors(4, 1, SAMPLES)
    assert np.array_equal(rows, cpu.draw_colors(4, 1, SAMPLES))
    assert np.array_equal(rows[[4, 2]], cpu.draw_colors(4, 1, SAMPLES[[4, 2]])), "whatever the batch"
    assert not np.array_equal(rows, cpu.draw_colors(4, 2, SAMPLES))
    state = State(True, "cpu", (8, 8, 3), np.dtype("uint8"))
    assert CASES["position"].make().draw(lambda count, _=None: np.zeros((2, count)), 2, state).shape == (2, 6)
