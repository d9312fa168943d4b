from __future__ import annotations

import os

import pytest

from gpubeton._machine import Machine, count_cores, read_machine
from gpubeton.fields import IntField
from gpubeton.pipeline.compiler import Compiler
from gpubeton.writer import DatasetWriter


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_quota_of_a_container_counts_not_only_the_cores_that_it_sees(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/kubepods/pod7/main\n",
            "sys/fs/cgroup/kubepods/pod7/main/cpu.max": "max 100000\n",
            "sys/fs/cgroup/kubepods/pod7/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/kubepods/cpu.max": "800000 100000\n",
            "sys/fs/cgroup/kubepods/pod7/main/memory.max": "8589934592\n",
            "sys/fs/cgroup/kubepods/memory.max": "max\n",
            "proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   16777216 kB\n",
        },
    )
    machine = read_machine(root)
    assert machine.core_limit == 2.5
    assert machine.cores == len(os.sched_getaffinity(0))
    assert (machine.memory_bytes, machine.memory_limit_bytes) == (16 << 30, 8 << 30)
    assert machine.usable_memory_bytes == 8 << 30


def test_older_control_groups_are_understood(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "400000\n",
            "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    machine = read_machine(root)
    assert (machine.core_limit, machine.memory_limit_bytes, machine.memory_bytes) == (4.0, None, None)


def test_a_machine_without_control_groups_has_no_limits(tmp_path):
    machine = read_machine(tmp_path)
    assert (machine.core_limit, machine.usable_memory_bytes) == (None, None)


@pytest.mark.parametrize(("cores", "limit", "usable"), [(8, None, 8), (8, 2.5, 2), (8, 0.5, 1), (2, 4.0, 2)])
def test_threads_that_get_a_core_each(cores, limit, usable):
    assert Machine(cores, limit).usable_cores == usable


@pytest.mark.parametrize(("quota", "cores"), [("200000", 2), ("max", 64), ("50000", 1)])
def test_cores_are_counted_by_the_quota_of_the_container(tmp_path, monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    root = tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"})
    assert count_cores(root) == cores


def test_a_writer_has_as_many_processes_as_cores_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("gpubeton._machine.count_cores", lambda: 3)
    assert DatasetWriter(tmp_path / "some.beton", {"label": IntField()}).num_workers == 3


def test_compiled_code_has_no_more_threads_than_cores_are_counted(monkeypatch):
    monkeypatch.setattr("gpubeton.pipeline.compiler.count_cores", lambda: 1)
    monkeypatch.setattr(Compiler, "num_threads", 2)
    Compiler.set_num_threads(-1)
    assert Compiler.num_threads == 1
