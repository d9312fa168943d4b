from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubeton._cpu import taps
from gpubeton._cpu.taps import fill_axis, fill_axis_pair, most_taps
from gpubeton.pipeline.interpolation import INTERPOLATIONS, filter_radius
from tests.reference.weights import resize_weights

#: A weight of one, by rule.
ONES = {taps.BICUBIC: 1 << 14}
ONE = 65536
NAMES = {number: name for name, number in INTERPOLATIONS.items()}

RULES = [taps.BILINEAR, taps.AREA, taps.ANTIALIAS, taps.AREA_ENLARGING, taps.NEAREST, taps.BICUBIC]

sides = st.integers(1, 90)
rules = st.sampled_from(RULES)


@numba.njit(cache=True)
def run_axis(rule, start, size, output, resized, shift, flip, first, words, row):
    return fill_axis(rule, start, size, output, resized, shift, flip, first, words, row)


@numba.njit(cache=True)
def run_pair(rule, start, size, output, resized, shift, flip, limit, fancy, first, words, row):
    return fill_axis_pair(rule, start, size, output, resized, shift, flip, limit, fancy, first, words, row)


def axis(rule, size, output, *, start=0, shift=0, flip=False, padded=None):
    """First source samples and integer weights (padded output, most taps), canaries checked."""
    padded = output if padded is None else padded
    most = most_taps(size / output * filter_radius(rule))
    first = np.full(padded + 2, -77, np.int32)
    words = np.full((padded + 2, most), -0xDEAD, np.int32)
    row = np.full(most + 1, -1.5)
    count = run_axis(rule, start, size, output, output, shift, flip, first[1:-1], words[1:-1], row[:-1])
    assert count <= most
    assert first[0] == first[-1] == -77
    assert (words[[0, -1]] == -0xDEAD).all()
    assert row[-1] == -1.5
    weights = read(words[1:-1], rule)
    assert not weights[:, count:].any()
    return first[1:-1], weights, count


def read(words, rule):
    """Each weight is stored twice; a signed one with the next."""
    low, high = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2).transpose(2, 0, 1)
    if rule == taps.BICUBIC:
        assert np.array_equal(high[:, :-1], low[:, 1:])
        assert not high[:, -1].any()
        return low.view(np.int16).astype(int)
    assert np.array_equal(high, low)
    return low.astype(int)


def assert_sums_to_one(weights, rule):
    # One itself does not fit into 16 bits without sign.
    alone = ((weights > 0).sum(axis=1) == 1) & (rule != taps.BICUBIC)
    assert np.array_equal(weights.sum(axis=1), np.where(alone, ONE - 1, ONES.get(rule, ONE)))


def matrix(first, weights, source):
    """Weights laid out as the reference has them; those of nothing must lie nowhere."""
    whole = np.zeros((len(first), source))
    for i, (begin, row) in enumerate(zip(first, weights, strict=True)):
        used = np.flatnonzero(row)
        assert begin + used.max(initial=0) < source
        whole[i, begin + used] = row[used]
    return whole


def reference(rule, size, output):
    if rule in (taps.AREA, taps.AREA_ENLARGING):
        return resize_weights(size, output, "area", shrinks=rule == taps.AREA)
    return resize_weights(size, output, NAMES[rule])


def fits(rule, size, output):
    """Area averages only where nothing is enlarged; its other rule may meet any side."""
    return rule != taps.AREA or size >= output


@given(rules, sides | st.integers(90, 3000), sides | st.integers(90, 300))
@example(taps.ANTIALIAS, 3000, 32)
@example(taps.AREA, 3000, 32)
@example(taps.AREA, 4000, 1)
@example(taps.ANTIALIAS, 4000, 1)
@example(taps.BICUBIC, 4000, 1)
@example(taps.BICUBIC, 1, 4000)
@settings(max_examples=300)
def test_weights_are_the_references_and_sum_to_one(rule, size, output):
    if not fits(rule, size, output):
        return
    first, weights, _ = axis(rule, size, output)
    assert_sums_to_one(weights, rule)
    # Each is rounded once, or twice where one is cut to 65535; slivers that OpenCV drops fall to the largest.
    allowed = 1.01 if rule != taps.AREA else 1.01 + 2e-3 * ONE / max(1.0, size / output)
    assert np.abs(matrix(first, weights, size) - reference(rule, size, output) * ONES.get(rule, ONE)).max() <= allowed


@given(rules, sides, sides, st.integers(0, 500), st.integers(-30, 30), st.booleans())
def test_start_shift_flip_and_padding_only_move_rows(rule, size, output, start, shift, flip):
    if not fits(rule, size, output):
        return
    padded = -(-output // 16) * 16
    plain_first, plain_weights, _ = axis(rule, size, output)
    first, weights, _ = axis(rule, size, output, start=start, shift=shift, flip=flip, padded=padded)
    index = np.clip(np.minimum(np.arange(padded), output - 1) + shift, 0, output - 1)
    index = output - 1 - index if flip else index
    assert np.array_equal(first, plain_first[index] + start)
    assert np.array_equal(weights, plain_weights[index])


def upsampling(chroma, *, fancy):
    """What libjpeg makes of a line of chroma samples: (2 * chroma, chroma)."""
    weights = np.zeros((2 * chroma, chroma))
    for i in range(2 * chroma):
        nearest = i // 2
        other = min(max(nearest + (1 if i % 2 else -1), 0), chroma - 1) if fancy else nearest
        weights[i, nearest] += 0.75
        weights[i, other] += 0.25
    return weights


@given(rules, st.integers(1, 60), st.integers(1, 60), st.integers(0, 9), st.integers(0, 9), st.booleans())
@settings(max_examples=200)
def test_chroma_weights_are_those_of_upsampling_and_then_resampling(rule, size, output, before, after, fancy):
    if not fits(rule, size, output):
        return
    whole = before + size + after
    chroma = (whole + 1) // 2
    most = most_taps(size / output * filter_radius(rule))
    first, words = np.zeros((2, output), np.int32), np.zeros((2, output, most), np.int32)
    row = np.zeros(most)
    counts = run_pair(rule, before, size, output, output, 0, False, chroma, fancy, first, words, row)
    luma_first, luma_weights, count = axis(rule, size, output, start=before)
    assert counts[0] == count
    assert np.array_equal(first[0], luma_first)
    assert np.array_equal(read(words[0], rule), luma_weights)
    weights = read(words[1], rule)
    assert not weights[:, counts[1] :].any()
    assert_sums_to_one(weights, rule)
    exact = np.zeros((output, 2 * chroma))
    exact[:, before : before + size] = reference(rule, size, output) * ONES.get(rule, ONE)
    allowed = 2.1 if rule != taps.AREA else 2.1 + 2e-3 * ONE / max(1.0, size / output)
    assert np.abs(matrix(first[1], weights, chroma) - exact @ upsampling(chroma, fancy=fancy)).max() <= allowed


@pytest.mark.parametrize("rule", RULES)
def test_every_small_side_gets_the_references_weights(rule):
    for size in range(1, 41):
        for output in range(1, 41):
            if fits(rule, size, output):
                first, weights, _ = axis(rule, size, output)
                off = np.abs(matrix(first, weights, size) - reference(rule, size, output) * ONES.get(rule, ONE)).max()
                assert off <= 1.01, (size, output)
