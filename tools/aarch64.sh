#!/usr/bin/env bash
# Run Python as on aarch64 (Graviton, Grace), emulated by QEMU. Needs Debian and uv:
#   tools/aarch64.sh -m tests.cpu.made_pictures FOLDER
# The first run fetches an emulator, a Python and packages into build/aarch64 (1 GB); the system stays as it is.
# Compiling the decoder takes minutes. Programs that start Python processes do not work.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
folder=$source/build/aarch64

if [ ! -e "$folder/complete" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"/apt/{state/lists,cache/archives}/partial "$folder/root"
    touch "$folder/apt/status"
    emulated() {
        apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root \
            -o "Dir::State=$folder/apt/state" -o "Dir::State::status=$folder/apt/status" \
            -o "Dir::Cache=$folder/apt/cache" "$@"
    }
    emulated update
    emulated --yes --no-install-recommends --download-only install python3 libgomp1 libstdc++6
    for package in "$folder"/apt/cache/archives/*.deb; do dpkg -x "$package" "$folder/root"; done
    (cd "$folder/apt" && apt-get -qq -o APT::Sandbox::User=root download qemu-user-static && dpkg -x qemu-user-static_*.deb .)
    mv "$folder/apt/usr/bin/qemu-aarch64-static" "$folder/qemu"
    version=$(basename "$(readlink "$folder/root/usr/bin/python3")")
    # Newer wheels of torch for aarch64 are for CUDA.
    grep -Ev '^(torch|sympy)==' "$source/constraints.txt" >"$folder/constraints.txt"
    uv pip install --quiet --python-platform aarch64-manylinux_2_28 --python-version "${version#python}" \
        --target "$folder/packages" --only-binary :all: --constraint "$folder/constraints.txt" \
        numba numpy pillow simplejpeg tqdm 'torch>=2.5,<2.7'
    rm -rf "$folder/apt"
    touch "$folder/complete"
fi

export PYTHONHOME=$folder/root/usr PYTHONPATH=$folder/packages:$source PYTHONDONTWRITEBYTECODE=1
export NUMBA_CACHE_DIR=$folder/code
exec "$folder/qemu" -L "$folder/root" "$folder/root/usr/bin/python3" "$@"
