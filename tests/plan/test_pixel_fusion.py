"""Where pixel operations of users are fused, and what becomes of those that are not."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.engine.run_batch_ops import finish_images
from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import CenterCropRGBImageDecoder
from gpubeton.plan.fusion import compile_image_program
from gpubeton.transforms import (
    Cutout,
    NormalizeImage,
    PixelOperation,
    RandAugment,
    RandomBrightness,
    RandomHorizontalFlip,
    RandomTranslate,
    ToDevice,
    ToTensor,
)
from tests.transforms.pixel_operations import CASES, THRESHOLD, threshold

NORMALIZE = NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)
BOTH, ON_CPU, ON_GPU = PixelOperation(THRESHOLD, threshold), PixelOperation(numba=threshold), PixelOperation(THRESHOLD)
EXECUTORS = pytest.mark.parametrize("device", ["cpu", "cuda:0"])


def program_of(*operations, device="cpu"):
    sizes = np.array([40, 30])
    return compile_image_program(
        "image", 0, [CenterCropRGBImageDecoder((8, 9), 1.0), *operations], sizes, sizes, device
    )


def notes(program):
    return [note for _, note in program.notes]


@EXECUTORS
def test_both_halves_are_fused_among_the_librarys_own(device):
    program = program_of(
        RandomHorizontalFlip(), RandomBrightness(0.5), BOTH, Cutout(3), NORMALIZE, ToTensor(), device=device
    )
    assert notes(program)[:6] == ["fused"] * 6
    assert "PixelOperation('threshold', p=1.0)  " in program.explain()
    assert [type(one).__name__ for one, _ in program.colors] == ["RandomBrightness", "PixelOperation"]


@EXECUTORS
@pytest.mark.parametrize("geometry", [RandomHorizontalFlip(), RandomTranslate(2)])
def test_a_place_in_the_image_is_that_before_it_is_flipped_or_moved(device, geometry):
    assert notes(program_of(BOTH, geometry, device=device))[2] == "fused"
    program = program_of(CASES["position"].make(), geometry, NORMALIZE, device=device)
    assert program.colors
    assert not program.steps
    assert program.table is None


def test_without_the_cuda_half_a_gpu_hands_the_batch_back():
    program = program_of(RandomHorizontalFlip(), ON_CPU, NORMALIZE, ToTensor(), ToDevice("cuda:0"), device="cuda:0")
    assert program.returns_to_cpu
    assert program.notes[2] == ("(copy to the CPU)", "after, on the finished batch")
    assert program.notes[3] == ("PixelOperation('threshold', p=1.0)", "after, on the finished batch")
    assert notes(program_of(ON_CPU, NORMALIZE)) == ["fused"] * 3


def test_without_the_numba_half_there_is_nothing_for_the_cpu():
    assert notes(program_of(ON_GPU, NORMALIZE, device="cuda:0"))[:3] == ["fused"] * 3
    for device, before in (("cpu", []), ("cuda:0", [RandAugment()])):
        with pytest.raises(PipelineError, match=r"'image': PixelOperation.* numba="):
            program_of(*before, ON_GPU, device=device)


def test_behind_todevice_and_not_fused_the_cuda_half_cannot_run():
    assert notes(program_of(ToTensor(), ToDevice("cuda:0"), BOTH, device="cuda:0"))[3] == "fused"
    with pytest.raises(PipelineError, match=r"finished batch, .*CUDA"):
        program_of(RandAugment(), ToTensor(), ToDevice("cuda:0"), BOTH, device="cuda:0")


def test_behind_what_is_not_fused_it_runs_on_the_finished_batch():
    program = program_of(RandAugment(), BOTH)
    assert notes(program)[1:] == ["after, on the finished batch"] * 2
    levels = np.full((1, 8, 9, 3), 200, np.uint8)
    assert (finish_images(program, levels, 0, 0, np.array([3], np.uint64))[..., 2] == 255).all()
