from __future__ import annotations

import json
from functools import partial

from tests.cli.command import run
from tests.small_files import damage, write_photos

verify = partial(run, "verify")


def test_a_sound_file_ends_with_0_and_one_that_cannot_be_opened_is_not_reported_as_sound(tmp_path):
    done = verify(write_photos(tmp_path / "a.beton", 6), code=0)
    assert "sound. 6 samples" in done.stdout
    assert "no checksums recorded" in done.stdout
    path = tmp_path / "b.beton"
    path.write_bytes(b"hello")
    assert verify(path, code=1).stdout.splitlines()[-1].startswith(f"{path}: 1 fault;")


def test_bad_samples_are_named_and_end_with_1(tmp_path):
    path = write_photos(tmp_path / "a.beton", 6)
    damage(path, 4)
    done = verify(path, code=1)
    assert "sample 4, field 'image': a JPEG file of" in done.stdout
    assert "1 bad sample." in done.stdout
    result = json.loads(verify(path, "--json", "--workers", 2, code=1).stdout)
    assert (result["sound"], result["bad_samples"], result["findings"][0]["field"]) == (False, [4], "image")
