"""The shim implements CUDA's documentation of each function, and its orders of threads are different."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.host_build import FORWARD, ORDERS, RANDOM, REVERSED, HostKernels, build, needs_compiler
from tests.kernels.launching import address, ints

pytestmark = needs_compiler

THREADS = """
extern "C" __global__ void threads(int* counter, int* seen, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    seen[(z * height + y) * width + x] = atomicAdd(counter, 1);
}
"""

STEPS = """
#include "steps.cuh"
extern "C" __global__ void steps(int* out, int count) {
    __shared__ int reversed[64], sums[2];
    if (block_is_done()) return;
    block_step([&](int thread) { reversed[63 - thread] = (int)blockIdx.x * 64 + thread; });
    block_step([&](int thread) { if (thread < 2) sums[thread] = 0; });
    each_warp([&](int warp) {
        warp_step([&](int lane) { atomicAdd(&sums[warp], lane + 1); });
        warp_step([&](int lane) {
            int place = (int)blockIdx.x * 64 + warp * 32 + lane;
            if (place < count) out[place] = reversed[warp * 32 + lane] * 1000 + sums[warp];
        });
    });
}
"""

NUMBERS = """
#include "half.cuh"
extern "C" __global__ void numbers(const float* a, const float* b, const float* c, int count, float* down,
                                   float* nearest, unsigned* halves, float* wide) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    down[i] = __fmaf_rd(a[i], b[i], c[i]);
    nearest[i] = __fmaf_rn(a[i], b[i], c[i]);
    halves[i] = float_to_half(a[i]) | (unsigned)float_to_bfloat16(a[i]) << 16;
    wide[i] = half_to_float((unsigned short)i) + 0.0f * bfloat16_to_float((unsigned short)(i & 0x7f00));
}
"""

BYTES = """
extern "C" __global__ void bytes(const unsigned* low, const unsigned* high, const unsigned* selector, int count,
                                 unsigned* permuted, unsigned* shifted) {
    for (int i = 0; i < count; i++) {
        permuted[i] = __byte_perm(low[i], high[i], selector[i]);
        shifted[i] = __funnelshift_r(low[i], high[i], selector[i]);
    }
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernels above, beside the headers of the real ones."""
    folder = tmp_path_factory.mktemp("kernels")
    for source in (THREADS, STEPS, NUMBERS, BYTES):
        name = source.partition("void ")[2].partition("(")[0]
        (folder / f"{name}.cu").write_text(source)
    return HostKernels(build(folder=folder))


def order_of_threads(kernels, order, seed=0):
    """When each thread of a grid of 2 x 3 x 2 blocks of 4 x 2 x 1 threads ran, (z, y, x)."""
    counter, seen = np.zeros(1, np.int32), np.full((2, 6, 8), -1, np.int32)
    kernels.launch("threads", (2, 3, 2), (4, 2, 1), [address(counter), address(seen), *ints(8, 6)], order, seed)
    return seen


def within_blocks(order):
    """The order of the threads in each block, apart from other blocks."""
    blocks = order.reshape(2, 3, 2, 2, 4).transpose(0, 1, 3, 2, 4).reshape(12, 8)
    return np.argsort(blocks, axis=1)


@pytest.mark.parametrize("order", ORDERS)
def test_each_thread_of_the_grid_runs_once(kernels, order):
    assert np.array_equal(np.sort(order_of_threads(kernels, order), axis=None), np.arange(96))


def test_threads_run_in_the_requested_order(kernels):
    forward = order_of_threads(kernels, FORWARD)
    assert forward[0, :2, :4].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert forward[0, 0, 4] == 8
    assert np.array_equal(order_of_threads(kernels, REVERSED), 95 - forward)
    random = [order_of_threads(kernels, RANDOM, seed) for seed in range(50)]
    assert len({order.tobytes() for order in random}) > 40
    # Every pair of threads is met in both orders.
    assert all(
        0 < np.mean([order.ravel()[i] < order.ravel()[j] for order in random]) < 1 for i, j in [(0, 1), (0, 95), (3, 4)]
    )
    # Blocks run at the same time, so that the seed alone decides the order of each block's threads.
    assert np.array_equal(within_blocks(random[7]), within_blocks(order_of_threads(kernels, RANDOM, 7)))
    assert not np.array_equal(within_blocks(random[7]), within_blocks(random[8]))


@pytest.mark.parametrize("order", ORDERS)
def test_all_threads_read_the_writes_of_the_step_before(kernels, order):
    out = np.zeros(190, np.int32)
    kernels.launch("steps", (3, 1, 1), (64, 1, 1), [address(out), *ints(190)], order)
    place = np.arange(192)
    expected = (place // 64 * 64 + 63 - place % 64) * 1000 + 32 * 33 // 2
    assert np.array_equal(out, expected[:190])


def run_numbers(kernels, a, b, c):
    """Rounded down, to nearest, as (half, bfloat16), and the half floats of 0, 1 .. as float."""
    a, b, c = (np.ascontiguousarray(np.broadcast_to(np.float32(operand), np.shape(a))) for operand in (a, b, c))
    down, nearest, wide = (np.zeros(len(a), np.float32) for _ in range(3))
    halves = np.zeros(len(a), np.uint32)
    arrays = [address(down), address(nearest), address(halves), address(wide)]
    grid = -(-len(a) // 64)
    kernels.launch("numbers", (grid, 1, 1), (64, 1, 1), [*map(address, (a, b, c)), *ints(len(a)), *arrays])
    return down, nearest, (halves.astype(np.uint16), (halves >> 16).astype(np.uint16)), wide


def floats():
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 1 << 32, 200_000, np.uint32)
    # Half floats and what lies between them, to either side.
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    middles = ((halves.astype(np.float64) + np.nextafter(halves.astype(np.float16), np.float16(0))) / 2).astype("f4")
    near = [np.nextafter(middles, np.float32(sign * np.inf)) for sign in (-1, 1)]
    special = np.float32([0, -0.0, 65504, 65519.996, 65520, -65520, 1e30, np.inf, -np.inf, 2**-24, 2**-25, 1e-40])
    return np.concatenate([bits.view(np.float32), halves, middles, *near, special])


def test_half_floats_are_rounded_as_numpy_does(kernels):
    values = floats()
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore", under="ignore"):
        expected = values.astype(np.float16).view(np.uint16)
    assert np.array_equal(run_numbers(kernels, values, 0, 0)[2][0], expected)
    not_a_number = run_numbers(kernels, np.float32([np.nan, -np.nan]), 0, 0)[2]
    assert np.isnan(not_a_number[0].view(np.float16)).all()


def test_bfloat16_is_rounded_as_torch_does(kernels):
    import torch

    values = floats()
    values = values[~np.isnan(values)]
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(run_numbers(kernels, values, 0, 0)[2][1], expected)


def test_half_floats_become_the_floats_that_they_are(kernels):
    wide = run_numbers(kernels, np.zeros(65536), 0, 0)[3]
    expected = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    assert np.array_equal(wide, expected, equal_nan=True)


finite = st.floats(-(2.0**60), 2.0**60, width=32)


@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=20))
def test_fused_products_are_rounded_once(kernels, numbers):
    from fractions import Fraction

    a, b, c = (np.float32(column) for column in zip(*numbers, strict=True))
    down, nearest = run_numbers(kernels, a, b, c)[:2]
    for i in range(len(a)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        assert Fraction(float(down[i])) <= exact
        assert exact < Fraction(float(np.nextafter(down[i], np.float32(np.inf))))
        above = np.nextafter(down[i], np.float32(np.inf))
        assert nearest[i] in (down[i], above)
        assert abs(Fraction(float(nearest[i])) - exact) <= abs(Fraction(float(above)) - exact)
        assert abs(Fraction(float(nearest[i])) - exact) <= abs(Fraction(float(down[i])) - exact)


@pytest.mark.parametrize("weight", [0, 1, 255, 256, 257, 40000, 65535])
def test_a_level_times_a_weight_is_rounded_down_to_units_of_a_256th(kernels, weight):
    """What levels.cuh counts on: a level's bits as a denormal number, a sum between 2**-118 and 2**-117."""
    level, total = (axis.ravel() for axis in np.meshgrid(np.arange(256), [0, 1, 128, 60000]))
    sums = (np.uint32(0x04800000) + total.astype(np.uint32)).view(np.float32)
    down = run_numbers(kernels, level.astype(np.uint32).view(np.float32), weight, sums)[0]
    assert np.array_equal(down.view(np.uint32) - np.uint32(0x04800000), total + (level * weight >> 8))


def test_denormal_numbers_count_where_the_process_has_switched_them_off(kernels):
    import torch

    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot switch denormal numbers off")
    try:
        down = run_numbers(kernels, np.uint32([77]).view(np.float32), 1000.0, np.uint32([0x04800000]).view(np.float32))[
            0
        ]
    finally:
        torch.set_flush_denormal(False)
    assert down.view(np.uint32)[0] - 0x04800000 == 77 * 1000 >> 8


def test_bytes_are_permuted_and_shifted_as_in_cuda(kernels):
    generator = np.random.default_rng(1)
    low, high, selector = generator.integers(0, 1 << 32, (3, 500), np.uint32)
    permuted, shifted = np.zeros((2, 500), np.uint32)
    arrays = [address(low), address(high), address(selector), *ints(500), address(permuted), address(shifted)]
    kernels.launch("bytes", (1, 1, 1), (1, 1, 1), arrays)
    for i in range(500):
        both = int(high[i]) << 32 | int(low[i])
        assert shifted[i] == (both >> (int(selector[i]) & 31)) & 0xFFFFFFFF
        for digit in range(4):
            chosen = int(selector[i]) >> 4 * digit & 15
            byte = both >> 8 * (chosen & 7) & 0xFF
            expected = byte if chosen < 8 else 0xFF * (byte >> 7)
            assert int(permuted[i]) >> 8 * digit & 0xFF == expected


def test_arguments_of_another_type_or_number_are_refused(kernels):
    out = np.zeros(4, np.int32)
    for arguments in ([address(out)], [address(out), np.int64(4)], [np.int32(0), np.int32(4)], [address(out), 4]):
        with pytest.raises(TypeError, match="steps takes"):
            kernels.launch("steps", (1, 1, 1), (64, 1, 1), arguments)


def test_a_kernel_that_does_not_compile_raises_the_compilers_message(tmp_path):
    (tmp_path / "broken.cu").write_text('extern "C" __global__ void broken(int* out) { *out = nothing; }')
    with pytest.raises(RuntimeError, match=r"(?s)broken.*broken\.cu:1.*nothing"):
        build(folder=tmp_path)


def test_the_library_is_made_once_for_each_content(tmp_path):
    source = tmp_path / "one.cu"
    source.write_text('extern "C" __global__ void one(int* out) { *out = 1; }')
    first = build(folder=tmp_path)
    result = first.stat().st_mtime_ns
    assert build(folder=tmp_path) == first
    assert first.stat().st_mtime_ns == result
    source.write_text('extern "C" __global__ void one(int* out) { *out = 2; }')
    assert build(folder=tmp_path) != first
