"""Ranks as torchrun starts them, by its own functions, but forked from a process that has imported the libraries."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

#: To import Lightning takes a process seven seconds.
LIBRARIES = ["accelerate", "gpubeton.loader", "lightning.pytorch"]


def run_ranks(module, *arguments, processes=2, fails=False):
    """Run ``main(*arguments)`` of a module as several processes; return their output. `fails`: one is killed."""
    multiprocessing.set_forkserver_preload(LIBRARIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # read when torch is imported
        forkserver.ensure_running()
    group = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": uuid4().hex, "max_restarts": 0}
    launch = elastic_launch(LaunchConfig(1, 1, processes, start_method="forkserver", **group), _run)
    with TemporaryDirectory() as folder, pytest.raises(ChildFailedError) if fails else contextlib.nullcontext():
        launch(folder, module, *arguments)
        return "".join(path.read_text() for path in Path(folder).iterdir())


def _run(folder, module, *arguments):
    with open(Path(folder) / os.environ["RANK"], "w") as printed, contextlib.redirect_stdout(printed):
        import_module(module).main(*arguments)
