"""Work that takes long reports how much of it is done."""

from __future__ import annotations

import pytest

from gpubeton.dataset import convert, copy_samples, extract, index_images, open_source, verify
from tests.picture_folders import write_folder
from tests.small_files import write_photos


def converted(path, report):
    photos = write_folder(path.parent / "photos")
    return convert(open_source(photos), path.with_name("b.beton"), num_workers=1, on_progress=report)


@pytest.mark.parametrize(
    "work",
    [
        converted,
        lambda path, report: copy_samples(path, path.with_name("b.beton"), on_progress=report),
        lambda path, report: extract(path, path.with_name("out"), num_workers=1, on_progress=report),
        lambda path, report: index_images(path, on_progress=report),
        lambda path, report: verify(path, on_progress=report),
    ],
    ids=["convert", "copy", "extract", "index", "verify"],
)
def test_progress_never_goes_back_and_reaches_the_end(work, tmp_path):
    seen = []
    work(write_photos(tmp_path / "a.beton", 9), lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] == seen[0][1] >= 9
