from __future__ import annotations

from benchmarks.mixing import class_distances


def test_orders_that_follow_pages_mix_nearly_as_well_as_random():
    distance = class_distances()
    assert distance["random"] < distance["window"] < distance["quasi_random"] < 1.3 * distance["random"]
    assert distance["window, 1 stream of 16 pages"] > 2 * distance["random"]
    assert distance["sequential"] > 0.95
