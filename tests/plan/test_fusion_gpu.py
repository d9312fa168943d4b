"""Where fusion puts operations when the one pass runs on a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton._plan.fusion import compile_image_program
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.pipeline import Operation, State
from gpubeton.transforms import (
    Convert,
    Cutout,
    NormalizeImage,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomTranslate,
    ToDevice,
    ToTensor,
    ToTorchImage,
    View,
)

SIZES = np.array([30, 40]), np.array([50, 20])
CROP = CenterCropRGBImageDecoder((6, 5), 1)
GEOMETRY = [RandomHorizontalFlip(), Cutout(3, (1, 2, 3)), RandomTranslate(2, (4, 5, 6))]
THERE = ToDevice("cuda:0")


def normalize(dtype=np.float16):
    return NormalizeImage((123, 116, 103), (58, 57, 57), dtype)


class Own(Operation):
    """A user's operation."""

    def generate_code(self):
        return lambda batch, _memory: batch

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None


def program_of(*operations, device="cuda:0"):
    return compile_image_program("image", 2, [CROP, *operations], *SIZES, device)


def tail(program):
    return [type(step.operation).__name__ for step in program.ops.steps]


WHOLE = [ToTensor(), *GEOMETRY, ToTorchImage(), normalize()]


@pytest.mark.parametrize("there", [THERE, ToDevice("cuda")])
@pytest.mark.parametrize("position", range(1, len(WHOLE) + 1))
def test_the_one_pass_is_that_of_the_cpu_for_any_position_of_todevice(there, position):
    program, cpu = program_of(*WHOLE[:position], there, *WHOLE[position:]), program_of(*WHOLE, device="cpu")
    assert (program.device, program.returns_to_cpu) == ("cuda:0", False)
    assert (program.dtype, program.max_paints, program.rng_stream) == (cpu.dtype, cpu.max_paints, cpu.rng_stream)
    assert np.array_equal(program.table, cpu.table)
    assert np.array_equal(program.fills, cpu.fills)
    assert [(type(step), rng_stream) for step, rng_stream in program.folds] == [
        (type(step), rng_stream) for step, rng_stream in cpu.folds
    ]
    assert tail(program) == ["ToTensor", "ToTorchImage"]
    samples = np.array([3, 1], np.uint64)
    assert np.array_equal(program.draw(1, 2, samples, *SIZES), cpu.draw(1, 2, samples, *SIZES))
    assert program.state.device == there.device


CPU, GPU, IDENTITY = ToDevice("cpu"), THERE, torch.nn.Identity()


@pytest.mark.parametrize(
    ("operations", "after", "device", "returns"),
    [
        # A ToDevice of the same GPU needs no separate step.
        ([ToTensor(), GPU, ToTorchImage(), normalize()], "ToTensor ToTorchImage", "cuda:0", False),
        # Loaders append a ToDevice where they leave everything on the GPU.
        ([normalize(), ToTensor()], "ToTensor", "cpu", False),
        ([normalize("bfloat16")], "", "cpu", False),
        ([normalize(), ToTensor(), ToDevice("cuda:1")], "ToTensor ToDevice", "cuda:1", True),
        # The weights of a module are where its ToDevice is.
        ([ToTensor(), GPU, IDENTITY, CPU], "ToTensor ModuleWrapper ToDevice", "cpu", False),
        ([ToTensor(), GPU, IDENTITY, CPU, IDENTITY], "ToTensor ModuleWrapper ToDevice ModuleWrapper", "cpu", False),
        ([ToTensor(), GPU, Own(), CPU, Own(), GPU, Own()], "ToTensor Own ToDevice Own ToDevice Own", "cuda:0", False),
        # A user's operation in front of it gets the batch on the CPU.
        ([Own(), ToTensor(), GPU, normalize()], "Own ToTensor ToDevice NormalizeImage", "cuda:0", True),
        ([ToTensor(), IDENTITY, GPU, normalize()], "ToTensor ModuleWrapper ToDevice NormalizeImage", "cuda:0", True),
        # Arrays are brought back.
        ([], "", "cpu", True),
        ([*GEOMETRY, normalize()], "", "cpu", True),
        ([View(np.int8)], "View", "cpu", True),
        ([Convert(np.float32)], "Convert", "cpu", True),
        # The library's operations take arrays and tensors alike, so that none of them makes the batch travel.
        ([normalize(np.float64), ToTensor()], "NormalizeImage ToTensor", "cpu", False),
        ([normalize(np.float32), Cutout(3, (-1, -1, -1)), ToTensor()], "Cutout ToTensor", "cpu", False),
        ([normalize(), View(np.int16), ToTensor()], "View ToTensor", "cpu", False),
        # Operations after a ToDevice of the CPU are fused all the same.
        ([ToTensor(), CPU, ToTorchImage(), *GEOMETRY, normalize()], "ToTensor ToDevice ToTorchImage", "cpu", True),
    ],
)
def test_batches_travel_where_todevice_and_users_operations_ask_for_it(operations, after, device, returns):
    program = program_of(*operations)
    assert (" ".join(tail(program)), str(program.state.device), program.returns_to_cpu) == (after, device, returns)


def test_explain_marks_the_copy_to_the_cpu():
    program = program_of(RandomHorizontalFlip(), ToTensor(), Own(), ToDevice("cuda:0"))
    head, *lines = program.explain().splitlines()
    assert head.endswith("written as uint8 on cuda:0")
    names = [line.split()[0].split("(")[0] for line in lines[:2]]
    assert names == ["CenterCropRGBImageDecoder", "RandomHorizontalFlip"]
    assert lines[2].split("  ")[1] == "(copy to the CPU)"
    assert len(lines) == 6
    assert "(copy to the CPU)" not in program_of(RandomHorizontalFlip(), ToTensor(), THERE, Own()).explain()


@pytest.mark.parametrize("before", [[], [RandomHorizontalFlip()], [RandomHorizontalFlip(), ToTensor()]])
def test_a_crop_after_other_operations_runs_on_the_device_that_decoded(before):
    program = program_of(*before, RandomResizedCrop((0.1, 0.9), (0.7, 1.4), 4), ToTensor(), THERE, ToTorchImage())
    assert not program.returns_to_cpu
    assert "copy to the CPU" not in program.explain()
    assert program.state == State(False, torch.device("cuda:0"), (3, 4, 4), torch.uint8)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_crop_may_follow_to_device(device):
    crop = RandomResizedCrop((0.1, 0.9), (0.7, 1.4), 4)
    program = program_of(RandomHorizontalFlip(), ToTensor(), THERE, crop, device=device)
    assert program.state == State(False, torch.device("cuda:0"), (4, 4, 3), torch.uint8)
