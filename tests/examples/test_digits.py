"""The digits example reads handwriting."""

from __future__ import annotations

import re

from examples import digits


def test_more_than_97_percent_of_real_digits_are_read_rightly(capsys):
    accuracy = digits.main([])
    assert accuracy >= 0.97
    printed = capsys.readouterr().out
    assert len(re.findall(r"epoch \d+: loss \d.\d+; [\d,]+ images/s, \d+% of the time waiting for data", printed)) == 12
    assert f"{accuracy:.2%} of 360 test images right" in printed
