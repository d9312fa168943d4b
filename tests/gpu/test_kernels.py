"""The kernels' own tests, on the GPU: bit for bit what the CPU's executor and the kernels' host build give."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = sorted({path.stem for path in (ROOT / "kernels").glob("*.cu*")})
MODULES = [f"tests.kernels.test_{name}" for name in KERNELS if (ROOT / f"tests/kernels/test_{name}.py").exists()]
# Their assertions are to be explained here, too.
pytest.register_assert_rewrite(*MODULES)

from importlib import import_module  # noqa: E402

from tests.gpu.relocated import Relocated  # noqa: E402
from tests.kernels import host_device  # noqa: E402
from tests.kernels.host_build import HostKernels  # noqa: E402


@pytest.fixture(autouse=True)
def on_the_gpu(gpu, monkeypatch):
    """Have what the tests launch on the host run on the GPU."""
    relocated = Relocated(gpu.device)
    guarded = host_device.guarded
    monkeypatch.setattr(host_device, "guarded", lambda *arguments, **more: relocated.note(guarded(*arguments, **more)))
    monkeypatch.setattr(HostKernels, "launch", lambda _, *arguments, **more: relocated.launch(*arguments, **more))
    yield
    relocated.free()


def _tests():
    for name in MODULES:
        module = import_module(name)
        kernel = name.rpartition("_")[2]
        for test, body in vars(module).items():
            if test.startswith("test_") and callable(body):
                yield f"test_{kernel}_{test.removeprefix('test_')}", body


globals().update(_tests())


def test_launches_of_the_host_tests_run_on_the_device(gpu, monkeypatch):
    launched, kind = [], type(gpu.device)
    launch = kind.launch

    def noting(device, kernel, *arguments):
        launched.append(kernel)
        launch(device, kernel, *arguments)

    monkeypatch.setattr(kind, "launch", noting)
    import_module("tests.kernels.test_gather").test_nothing_is_copied_of_no_rows_or_empty_ones()
    assert launched == ["gather"]
