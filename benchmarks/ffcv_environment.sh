#!/usr/bin/env bash
# Make a virtual environment with FFCV 1.0.2, as it comes from PyPI, to be measured beside gpubeton.
#   benchmarks/ffcv_environment.sh [FOLDER]
#   GPUBETON_FFCV_PYTHON=FOLDER/bin/python make bench
#
# FFCV is compiled on installation. It needs Python 3.11 or older (PYTHON names another one than python3.11), a C++
# compiler, pkg-config, OpenCV 4 and libjpeg-turbo. Debian and Ubuntu:
#   apt-get install build-essential pkg-config libopencv-dev libturbojpeg0-dev libjpeg62-turbo-dev
set -euo pipefail
folder=${1:-.venv-ffcv}
python=${PYTHON:-python3.11}

for library in opencv4 libturbojpeg; do
    pkg-config --exists "$library" || {
        echo "pkg-config does not find $library. On Debian and Ubuntu:" >&2
        echo "  apt-get install build-essential pkg-config libopencv-dev libturbojpeg0-dev libjpeg62-turbo-dev" >&2
        exit 1
    }
done

"$python" -m venv "$folder"
# What FFCV imports, in the last versions that it works with.
"$folder/bin/pip" install torch==2.13.0 numpy==1.26.4 numba==0.60.0 opencv-python-headless==4.11.0.86 \
    terminaltables==3.1.10 fastargs==1.2.0 tqdm pillow "setuptools<80" wheel
# Its own list names packages that only its GPU operations need.
"$folder/bin/pip" install --no-deps --no-build-isolation ffcv==1.0.2
"$folder/bin/python" -c 'import ffcv.loader'
echo "Done: export GPUBETON_FFCV_PYTHON=$(cd "$folder" && pwd)/bin/python"
