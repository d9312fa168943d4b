#!/usr/bin/env bash
# Prove and measure gpubeton on the GPU of this machine, in one command and a given time, into one file.
#   benchmarks/gpu_session.sh [--out FILE] [--seconds 560] [--steps sanitizer,tests,race,kernels,cores,training]
#   benchmarks/gpu_session.sh --simulated     # without a GPU: shows that everything runs, measures nothing
#
# Needs a checkout and, for PYTHON (python3 by default), torch, CuPy, nvJPEG, numba, simplejpeg, Pillow, pytest with
# pytest-xdist and pytest-timeout, and the packages of the extra `demo`; what is not installed may be in folders of PYTHONPATH. No network is used.
# If the CUDA toolkit's compute-sanitizer is there, the tests of our own decoder run under its tools first.
# Other decoders are compared where they are installed: torchvision, DALI, pynvjpeg; nvidia-ml-py shows the engines' use.
# FFCV and DALI may be in environments of their own: GPUBETON_FFCV_PYTHON, GPUBETON_DALI_PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
exec "$python" -m benchmarks.gpu.session "$@"
