"""macOS and Windows, as far as Linux can show it: a process without the functions that they lack."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.campaign

LACKING = {
    "darwin": """
for name in ("sched_getaffinity", "posix_fadvise", "memfd_create", "SEEK_DATA", "SEEK_HOLE", "O_DIRECT"):
    hide(os, name)
for name in ("MADV_HUGEPAGE", "MADV_POPULATE_READ"):
    hide(mmap, name)
for name in ("F_OFD_SETLK", "F_OFD_SETLKW"):
    hide(fcntl, name)
""",
    "win32": """
sys.modules["fcntl"] = sys.modules["resource"] = None
for name in (
    "sched_getaffinity", "posix_fadvise", "memfd_create", "SEEK_DATA", "SEEK_HOLE", "O_DIRECT", "O_CLOEXEC",
    "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "preadv", "pread", "pwrite", "pwritev", "getuid", "geteuid", "uname",
    "register_at_fork", "sysconf", "fork", "getpgid", "killpg", "fchmod",
):
    hide(os, name)
for name in ("MAP_PRIVATE", "MAP_SHARED", "MAP_ANONYMOUS", "PROT_READ", "PROT_WRITE", "MADV_HUGEPAGE"):
    hide(mmap, name)
for name in ("CLOCK_MONOTONIC", "CLOCK_THREAD_CPUTIME_ID", "clock_gettime", "clock_gettime_ns"):
    hide(time, name)
for name in ("pthread_sigmask", "SIGKILL", "SIGALRM", "setitimer"):
    hide(signal, name)
""",
}

PROGRAM = """
import ctypes, importlib, mmap, os, pkgutil, signal, sys, time
import fcntl, multiprocessing.pool, tempfile, concurrent.futures.process, pathlib, shutil
import llvmlite.binding, numba, numpy as np, PIL.Image, rich.console, rich.progress
import simplejpeg, torch, tqdm, typer.testing

def hide(module, name):
    if hasattr(module, name):
        delattr(module, name)

{lacking}
class Library(ctypes.CDLL):
    def __init__(self, name, *args, **options):
        if name is None:
            raise TypeError("no program has a name of None")
        super().__init__(name, *args, **options)

ctypes.CDLL = Library
sys.platform = {system!r}

import gpubeton
for module in pkgutil.walk_packages(gpubeton.__path__, "gpubeton."):
    # Libraries of others read the system as they begin, and CUDA is Linux's here.
    # As do the libraries of the integrations.
    if not module.name.startswith(("gpubeton.__main__", "gpubeton._gpu.", "gpubeton.integrations.")):
        importlib.import_module(module.name)

from gpubeton.fields import IntField, RGBImageField
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from gpubeton.cli.app import app

class Pictures:
    def __len__(self):
        return 20
    def __getitem__(self, i):
        noise = np.random.default_rng(i).integers(0, 255, (5, 5, 3), np.uint8)
        return np.kron(noise, np.ones((9, 9, 1), np.uint8)), i

for mode in ("raw", "jpg"):
    path = f"{{sys.argv[1]}}/{{mode}}.beton"
    for attempt in range(2):  # the second one replaces a file
        DatasetWriter(path, {{"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()}},
                      num_workers=1, progress=False).from_indexed_dataset(Pictures())
    assert Reader(path).num_samples == 20
    for os_cache in (True, False):
        with Loader(path, batch_size=4, num_workers=2, os_cache=os_cache, device="cpu") as loader:
            for epoch in range(2):
                rows = 0
                for images, labels in loader:
                    rows += len(images)
                    for image, label in zip(images, labels.ravel().tolist()):
                        off = np.abs(np.asarray(image).astype(int) - Pictures()[label][0]).mean()
                        assert off <= (0 if mode == "raw" else 16), off
                assert rows == 20
    for command in (["info", path], ["verify", path]):
        result = typer.testing.CliRunner().invoke(app, command)
        assert result.exit_code == 0, (result.output, result.exception)
print("done")
"""


@pytest.mark.parametrize("system", LACKING)
def test_a_file_is_written_read_and_loaded_with_what_another_system_has(system, tmp_path):
    program = PROGRAM.format(lacking=LACKING[system], system=system)
    ran = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
