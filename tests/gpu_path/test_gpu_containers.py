"""Images of a tar file on a simulated GPU: with and without entry points, the CPU's batches to the bit."""

from __future__ import annotations

import pytest

from gpubeton.dataset import index_source, open_source
from tests.gpu_path.image_samples import assert_same, epochs, gpu_loader
from tests.gpu_path.test_entry_decoder import MIXED, launches
from tests.gpu_path.test_gpu_loader import PIPELINES
from tests.picture_folders import write_tar

__all__ = ["launches"]


@pytest.mark.parametrize("with_entries", [True, False])
@pytest.mark.parametrize("os_cache", [True, False])
def test_batches_of_a_tar_are_those_of_the_cpu(gpus, launches, tmp_path, with_entries, os_cache):
    members = [
        (f"{number:04}.{ending}", content)
        for number, image in enumerate(MIXED)
        for ending, content in (("jpg", image.data), ("cls", b"%d" % number))
    ]
    source = open_source(write_tar(tmp_path / "a.tar", members))
    index_source(source, tmp_path / "a.index", entry_points=with_entries, num_workers=1)
    options = {"os_cache": os_cache, "order": "random", "custom_fields": {}}
    for path in (tmp_path / "a.index", tmp_path / "a.tar"):
        launches.clear()
        batches = epochs(gpu_loader(path, PIPELINES["half"], decoder="entries", **options), 2)
        # The last three have restart markers, which do without.
        assert sum(launches) == 2 * (len(MIXED) if with_entries and path.suffix == ".index" else 3)
        assert_same(batches, epochs(gpu_loader(path, PIPELINES["half"], device="cpu", **options), 2))
