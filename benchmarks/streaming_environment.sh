#!/usr/bin/env bash
# Make a virtual environment with LitData, MosaicML Streaming and WebDataset, to be measured beside gpubeton.
#   benchmarks/streaming_environment.sh [FOLDER]
#   GPUBETON_STREAMING_PYTHON=FOLDER/bin/python python -m benchmarks.remote_peers
set -euo pipefail
folder=${1:-.venv-streaming}
python=${PYTHON:-python3.11}

"$python" -m venv "$folder"
"$folder/bin/pip" install torch==2.13.0 litdata==0.2.76 mosaicml-streaming==0.13.0 webdataset==1.0.2 pillow numpy
if ! "$folder/bin/python" -c 'import torchvision' 2>/dev/null; then
    # PyPI's torchvision does not load beside a torch for CPUs. MosaicML Streaming imports two names of it, for
    # datasets that are not used here.
    "$folder/bin/pip" uninstall --yes torchvision
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    mkdir -p "$site/torchvision/transforms"
    touch "$site/torchvision/__init__.py" "$site/torchvision/transforms/__init__.py"
    echo 'class VisionDataset: ...' >"$site/torchvision/datasets.py"
    echo 'to_tensor = None' >"$site/torchvision/transforms/functional.py"
fi
"$folder/bin/python" -c 'import litdata, streaming, webdataset'
echo "Done: export GPUBETON_STREAMING_PYTHON=$(cd "$folder" && pwd)/bin/python"
