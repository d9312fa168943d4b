"""The grid example: networks that are trained at once are trained as if each were alone."""

from __future__ import annotations

import pytest

from examples import grid
from tests.examples.example import write_beton

OPTIONS = ["--epochs", "2", "--batch-size", "8", "--side", "32", "--num-classes", "2", "--rates"]


@pytest.fixture
def beton(tmp_path):
    return str(write_beton(tmp_path, write_mode="raw"))


def test_networks_in_threads_reach_the_same_loss_as_alone_and_with_shared_batches(beton, capsys):
    alone = [grid.main([beton, *OPTIONS, rate])[float(rate)] for rate in ("0.1", "0.01", "0.001")]
    capsys.readouterr()
    threads = grid.main([beton, *OPTIONS, "0.1", "0.01", "0.001"])
    printed = capsys.readouterr().out
    shared = grid.main([beton, *OPTIONS, "0.1", "0.01", "0.001", "--share"])
    assert list(threads) == [0.1, 0.01, 0.001]
    assert list(threads.values()) == alone
    assert threads == shared
    assert len(set(alone)) == 3
    assert printed.count("of the time waiting for data") == 6
    assert capsys.readouterr().out.count("of the time waiting for data") == 2


def test_an_error_in_one_of_the_threads_reaches_the_caller(beton):
    with pytest.raises(IndexError, match="Target 1 "):
        grid.main([beton, *OPTIONS, "0.1", "0.01", "--num-classes", "1"])
