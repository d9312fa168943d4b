from __future__ import annotations

import pytest
import torch

from benchmarks.harness import demo
from gpubeton.errors import DeviceError


@pytest.mark.campaign
def test_where_there_is_a_gpu_the_demo_uses_it_and_compares_it_with_the_cpu(gpus, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(demo, "choose_device", lambda: ("cuda:0", "Loading on a simulated GPU"))
    demo.run_demo(tmp_path, 40, 1, passes=1)
    printed = capsys.readouterr().out
    assert "Loading on a simulated GPU" in printed
    assert "gpubeton, cuda:0" in printed
    assert "gpubeton, cpu" in printed
    assert (tmp_path / "batch.png").exists()
    assert gpus[0].streams


def test_a_gpu_is_found_where_torch_cupy_and_nvjpeg_are(gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    device, remark = demo.choose_device()
    assert device == "cuda:0"
    assert "Simulated GPU with nvJPEG " in remark


def test_a_gpu_with_a_missing_part_is_not_used_and_the_part_is_named(monkeypatch):
    def refuse(name):
        raise DeviceError(f"{name}: CuPy is missing")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr("gpubeton._gpu.cuda.open_device", refuse)
    device, remark = demo.choose_device()
    assert device == "cpu"
    assert remark.endswith("cuda:0: CuPy is missing")
