from __future__ import annotations

from tests.gpu_path.executor_bench import cpu_services, open_gpu, program_of
from tests.simulator.active_device import device

__all__ = ["device"]


def test_closing_a_gpu_that_is_stuck_with_an_error_closes_all_that_it_can(device, faults):
    """The error was raised where it appeared; in the finally-clause of a training script it would hide another."""
    gpu = open_gpu(device)
    executors = [gpu.start_executor([program_of()], cpu_services()) for _ in range(2)]
    for executor in executors:
        executor.close()
    faults.fail_device()
    gpu.close()
    faults.fail_device(status=0)
    assert gpu._free == []
