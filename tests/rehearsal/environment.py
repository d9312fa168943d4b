"""What a rehearsal runs in, under build/rehearsal: torch and CuPy of PyPI, and libraries in the place of CUDA's.

torch is the newest when the folder is made: remove it for the versions of today.

Each step writes a file when it is done, with a hash of what went into it, and is left out while that stays the same.
Only Python's own library is used: this runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "rehearsal"

_PYTHON = BUILD / "venv" / "bin" / "python"
_LIBRARIES = BUILD / "lib"
_OVERLAY = BUILD / "overlay"  # before site-packages: CuPy's wheel with one extension module linked again
_HEADERS = BUILD / "headers" / "nvidia" / "cu13" / "include"
_VERSION_NODE = "libcudart.so.13"
_CUPY_VERSION = "14.2.0"
_CUPY_CUDA = 13020  # what CuPy's wheel was compiled for

# As CuPy's own build has them (install/cupy_builder/_command.py).
_CYTHON = "Cython==3.2.9"
_DIRECTIVES = {
    "embedsignature": True, "c_api_binop_methods": True, "binding": False, "warn.deprecated.IF": False,
    "freethreading_compatible": True,
}  # fmt: skip
_CONSTANTS = {
    "CUPY_USE_CUDA_PYTHON": False, "CUPY_CUFFT_STATIC": False, "CUPY_CYTHON_VERSION": f"'{_CYTHON[8:]}'",
    "CUPY_CUDA_VERSION": _CUPY_CUDA, "CUPY_HIP_VERSION": 0,
}  # fmt: skip


def prepare():
    """Download and build the missing parts; return the environment variables of a rehearsal."""
    BUILD.mkdir(parents=True, exist_ok=True)
    _once("venv", [HERE / "requirements.txt"], _make_venv)
    _once("headers", [HERE / "headers.txt"], _install_headers)
    _once("cupy", [HERE / "requirements.txt"], _translate_cupy)
    simulator = ROOT / "tests" / "simulator"
    sources = [HERE / "cudart.cpp", HERE / "cuda_driver.cpp"]
    _once("lib", [*sources, *simulator.glob("*.cpp"), *simulator.glob("*.h"), Path(__file__)], _build_libraries)
    return {
        **os.environ,
        "GPUBETON_REHEARSAL": "1",
        "GPUBETON_SIMULATOR": str(_LIBRARIES / "libcudart.so.13"),
        "GPUBETON_NVJPEG": str(_LIBRARIES / "libcudart.so.13"),
        "GPUBETON_CACHE_DIR": str(BUILD / "kernels"),
        "LD_PRELOAD": f"{_LIBRARIES}/libcudart.so.13 {_LIBRARIES}/libcuda.so.1",
        "PYTHONPATH": f"{_OVERLAY}{os.pathsep}{ROOT}",
    }


def python():
    """The interpreter of the rehearsal."""
    return str(_PYTHON)


def functions():
    """Functions of CUDA's runtime that torch and CuPy ask for: how many are there, and how many only fail."""
    lacking = (_LIBRARIES / "missing.cpp").read_text().count("rehearsal_lacks(") - 1
    return {"simulated": len(_public(_defined(_LIBRARIES / "cudart.o"))), "failing": lacking}


def _public(names):
    return {name for name in names if re.match("(__)?cuda", name)}


def _once(step, sources, make):
    digest = hashlib.sha256(sys.version.encode())
    for source in sorted(sources):
        digest.update(source.name.encode() + source.read_bytes())
    done = BUILD / f"{step}.done"
    if not done.exists() or done.read_text() != digest.hexdigest():
        print(f"rehearsal: {make.__doc__}", flush=True)
        done.unlink(missing_ok=True)
        make()
        done.write_text(digest.hexdigest())


def _make_venv():
    """Install torch for CUDA and CuPy (some 3 GB to download, once)"""
    shutil.rmtree(BUILD / "venv", ignore_errors=True)  # an older one would be kept
    subprocess.run([sys.executable, "-m", "venv", BUILD / "venv"], check=True)
    _pip(*installed(BUILD / "constraints.txt"))


def installed(constraints):
    """The arguments of pip; writes the constraints."""
    # The versions of the tests, but for torch: theirs is a build for processors, users get the newest.
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in pins if not re.match("(torch|nvidia-)", line)))
    requirements = ["--requirement", HERE / "requirements.txt", "--editable", f"{ROOT}[cuda13]", _CYTHON]
    return ["install", "--constraint", constraints, *requirements]


def _install_headers():
    """Install the headers of CUDA's runtime"""
    shutil.rmtree(BUILD / "headers", ignore_errors=True)
    _pip("install", "--no-deps", "--target", BUILD / "headers", "--requirement", HERE / "headers.txt")


def _translate_cupy():
    """Translate CuPy's binding of CUDA's runtime to C++"""
    folder = BUILD / "cupy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # CuPy's own variable: no CUDA is needed to name the version of the sources.
    _pip(
        "download",
        "--no-deps",
        "--no-binary",
        "cupy",
        "--dest",
        folder,
        f"cupy=={_CUPY_VERSION}",
        CUPY_INSTALL_USE_STUB="1",
    )
    shutil.unpack_archive(folder / f"cupy-{_CUPY_VERSION}.tar.gz", folder)
    flags = [word for name, value in _DIRECTIVES.items() for word in ("-X", f"{name}={value}")]
    constants = ",".join(f"{name}={value}" for name, value in _CONSTANTS.items())
    subprocess.run(
        [_PYTHON, "-m", "cython", "-3", "--cplus", *flags, "-E", constants, "cupy_backends/cuda/api/runtime.pyx",
         "-o", folder / "runtime.cpp"],
        cwd=folder / f"cupy-{_CUPY_VERSION}", check=True,
    )  # fmt: skip


def _build_libraries():
    """Build libcudart.so.13 and libcuda.so.1 over the simulator, and link CuPy's binding to the former"""
    shutil.rmtree(_LIBRARIES, ignore_errors=True)
    _LIBRARIES.mkdir()
    site = Path(_ask("import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    binding = _LIBRARIES / "runtime.o"
    sources = BUILD / "cupy" / f"cupy-{_CUPY_VERSION}" / "cupy_backends" / "cuda"
    include = _ask("import sysconfig; print(sysconfig.get_paths()['include'])")
    _compile("-O1", "-w", "-c", f"-I{include}", f"-I{sources.parents[1]}", f"-I{sources}", f"-I{sources / 'api'}",
             BUILD / "cupy" / "runtime.cpp", "-o", binding)  # fmt: skip

    runtime = _LIBRARIES / "libcudart.so.13"
    script = _LIBRARIES / "versions"
    script.write_text(
        f"{_VERSION_NODE} {{ global: cuda*; __cuda*; simulated_*; nvjpeg*; run_*; rehearsal_*; local: *; }};"
    )
    files = [*(ROOT / "tests" / "simulator").glob("*.cpp"), HERE / "cudart.cpp"]
    objects = [_LIBRARIES / f"{source.stem}.o" for source in files]
    for source, target in zip(files, objects, strict=True):
        _compile("-O2", "-g1", "-Wall", "-Wextra", "-c", source, "-o", target)
    missing = _LIBRARIES / "missing.cpp"
    asked = set().union(*map(_undefined, [binding, *(site / "torch" / "lib").glob("*.so")]))
    lacking = sorted(asked - _defined(_LIBRARIES / "cudart.o"))
    missing.write_text(
        'extern "C" {\nint rehearsal_lacks(const char*);\n'
        + "".join(f'int {name}() {{ return rehearsal_lacks("{name}"); }}\n' for name in lacking)
        + "}\n"
    )
    _compile(
        "-shared", missing, *objects, "-ldl", f"-Wl,-soname,{runtime.name},--version-script={script}", "-o", runtime
    )
    _compile("-shared", "-O2", "-g1", "-Wall", "-Wextra", HERE / "cuda_driver.cpp", runtime, "-Wl,-soname,libcuda.so.1",
             "-o", _LIBRARIES / "libcuda.so.1")  # fmt: skip

    shutil.rmtree(_OVERLAY, ignore_errors=True)
    shutil.copytree(site / "cupy_backends", _OVERLAY / "cupy_backends")
    (replaced,) = (_OVERLAY / "cupy_backends" / "cuda" / "api").glob("runtime.*.so")
    _compile("-shared", binding, runtime, "-o", replaced)


def _compile(*arguments):
    flags = ["-std=c++17", "-fPIC", "-pthread", f"-I{_HEADERS}"]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, *arguments], check=True)


def _undefined(file):
    """The functions of CUDA's runtime that a file wants of others."""
    expected = subprocess.run(
        ["nm", *_dynamic(file), "--undefined-only", file], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"\bU ((?:__)?cuda[A-Z]\w*)", expected.stdout))


def _defined(file):
    result = subprocess.run(["nm", "--defined-only", file], capture_output=True, text=True, check=True)
    return set(re.findall(r"\bT (\w+)", result.stdout))


def _dynamic(file):
    return ["-D"] if file.suffix == ".so" else []


def _pip(*arguments, **variables):
    command = [_PYTHON, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **variables})


def _ask(statement):
    return subprocess.run([_PYTHON, "-c", statement], capture_output=True, text=True, check=True).stdout.strip()
