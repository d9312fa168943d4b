#!/usr/bin/env bash
# Print constraints.txt: the newest versions that fit pyproject.toml, for every supported Python.
set -euo pipefail
cd "$(dirname "$0")/.."

cat <<'END'
# The versions that gpubeton is tested with, for Python 3.10 to 3.14. Written by `make constraints`.
# Users are free of them: pyproject.toml has the ranges.
END
# torch stays at the version that the benchmarks name; NVIDIA's libraries are torch's business, except nvJPEG and the tests' binding of NVRTC.
printf '%s\n' 'torch==2.13.0' 'numpy<2.5' |
    uv pip compile pyproject.toml --extra dev --constraint - --universal --python-version 3.10 \
        --no-annotate --no-header --quiet |
    sed -E '/^(nvidia-nvjpeg|cuda-bindings)=/b; /^(cuda-|nvidia-|triton|colorama)/d'
