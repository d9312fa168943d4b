from __future__ import annotations

from benchmarks.mixing import class_distances, main
from benchmarks.results import latest
from benchmarks.table import fill


def test_orders_that_follow_pages_mix_nearly_as_well_as_random():
    distance = class_distances()
    assert distance["random"] < distance["window"] < distance["quasi_random"] < 1.3 * distance["random"]
    assert distance["random"] < distance["window, 64 virtual nodes"] < 1.1 * distance["random"]
    assert distance["window, 1 stream of 16 pages"] > 2 * distance["random"]
    assert distance["sequential"] > 0.95


def test_a_training_with_each_order_is_written_and_drawn_beside_random(tmp_path):
    main(train=1200, test=64, seeds=2, epochs=1, data=tmp_path, results=tmp_path)
    accuracy = (latest("mixing", tmp_path) or {})["accuracy"]
    assert {len(runs) for runs in accuracy.values()} == {2}
    drawn = fill("<!-- table: mixing -->\n<!-- end of table -->", tmp_path)
    rows = [line for line in drawn.splitlines() if line.startswith("| WINDOW, 64")]
    assert len(rows) == 2
    assert all(" to " in line for line in rows)
