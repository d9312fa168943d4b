"""The kernels as a library for the host: the files of `kernels/`, compiled by g++ as they are."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gpubeton._gpu.kernels import function_of

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
SHIM = Path(__file__).with_name("host") / "cuda_shim.h"
CACHE = ROOT / ".pytest_cache" / "gpubeton-host"

FLAGS = ["-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-g1", "-pthread"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unknown-pragmas"]
SANITIZERS = {
    "memory": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"],
}

#: Orders in which blocks and threads run.
FORWARD, REVERSED, RANDOM = range(3)
ORDERS = (FORWARD, REVERSED, RANDOM)

# What `letters_of_` calls the types of parameters.
_TYPES = {"P": np.uint64, "i": np.int32, "I": np.uint32, "f": np.float32}


def compiler():
    """Path of the C++ compiler, or None."""
    return shutil.which(os.environ.get("CXX", "g++"))


needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler: install g++, or set CXX")


def kernel_names(folder=KERNELS):
    """Every kernel of a folder; by default of the checkout."""
    return sorted(path.stem for path in folder.glob("*.cu"))


@cache
def _compiler_version(path):
    return subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout


def build(kernels=None, *, sanitize=None, folder=KERNELS, defines=()):
    """Compile kernels, unless it was done before; path of the shared library.

    Parameters
    ----------
    kernels : sequence of str, optional
        Their names; by default all of the folder.
    sanitize : str, optional
        "memory" to find bad accesses and undefined behavior.
    folder : Path
        Where the kernels are; headers that are not there are those of the checkout.
    defines : sequence of str
        Macros that are defined.
    """
    names = kernel_names(folder) if kernels is None else sorted(kernels)
    path = compiler()
    if path is None:
        pytest.skip("no C++ compiler: install g++, or set CXX")
    command = [path, *FLAGS, *WARNINGS, f"-I{KERNELS}", *(SANITIZERS[sanitize] if sanitize else [])]
    command += [f"-D{macro}" for macro in defines]
    content = hashlib.sha256(repr((names, command, _compiler_version(path))).encode())
    for source in sorted([SHIM, *KERNELS.glob("*.cuh"), *(folder / f"{name}.cu" for name in names)]):
        content.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    target = CACHE / f"kernels-{content.hexdigest()[:24]}.so"
    if not target.exists():
        _compile(command, {name: folder / f"{name}.cu" for name in names}, target)
    return target


def _compile(command, kernels, target):
    """Compile into a temporary folder, then rename: tests that run at the same time see all of the file or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        sources = [Path(folder) / f"{name}_host.cpp" for name in kernels]
        for (name, kernel), source in zip(kernels.items(), sources, strict=True):
            # Kernels define the same names; a namespace without name keeps them apart.
            source.write_text(f'#include "{SHIM}"\nnamespace {{\n#include "{kernel}"\n}}\nEXPORT_KERNEL({name})\n')
        result = Path(folder) / "made.so"
        done = subprocess.run(
            [*command, *map(str, sources), "-o", str(result)], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} could not compile {', '.join(kernels)} for the host:\n{done.stderr}")
        result.rename(target)


class HostKernels:
    """The kernels, run on the host.

    Parameters
    ----------
    path : Path, optional
        A library of `build`; by default all kernels.
    """

    def __init__(self, path=None):
        self.path = build() if path is None else path
        self._library = ctypes.CDLL(str(self.path))

    def parameters(self, name):
        """The numpy type of each of a kernel's parameters."""
        letters = getattr(self._library, f"letters_of_{name}")
        letters.restype = ctypes.c_char_p
        return [_TYPES[letter] for letter in letters().decode()]

    def launch(self, name, grid, block, arguments, order=FORWARD, seed=0):
        """Run a kernel to its end; `arguments` as for `gpubeton._gpu.cuda.Device.launch`."""
        name = function_of(name)
        types, expected = [type(argument) for argument in arguments], self.parameters(name)
        if types != expected:
            raise TypeError(
                f"{name} takes {[kind.__name__ for kind in expected]}, not {[kind.__name__ for kind in types]}"
            )
        memory = [np.array([argument]) for argument in arguments]
        addresses = (ctypes.c_void_p * len(memory))(*[array.ctypes.data for array in memory])
        sides = ctypes.c_uint * 3
        run = getattr(self._library, f"run_{name}")
        run.restype = None
        run(sides(*grid), sides(*block), addresses, ctypes.c_int(order), ctypes.c_uint(seed))


@cache
def kernels_of(name):
    """A library with one kernel, which may be one for signed weights."""
    return HostKernels(build([function_of(name)], defines=() if function_of(name) == name else ("SIGNED_WEIGHTS",)))


@cache
def host_kernels():
    """All kernels, compiled and loaded once for each process; skips the test where there is no compiler."""
    return HostKernels()
