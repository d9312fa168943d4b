#!/usr/bin/env bash
# Make or refresh the virtual environment of a make target.
#   tools/environment.sh PYTHON VENV EXTRA
set -euo pipefail
python=$1 venv=$2 extra=$3
cd "$(dirname "$0")/.."

say() { printf '\033[1m%s\033[0m\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

version=$("$python" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) ||
    die "'$python' does not run. Name a Python of 3.10 to 3.14: make PYTHON=/path/to/python3"
case $version in
    3.1[0-4].*) ;;
    *) die "'$python' is Python $version; gpubeton needs 3.10 to 3.14. Name another: make PYTHON=/path/to/python3" ;;
esac

if [ "$(cat "$venv/.gpubeton" 2>/dev/null)" != "$version" ]; then
    [ ! -e "$venv" ] || [ -e "$venv/.gpubeton" ] || [ -z "$(ls -A "$venv")" ] ||
        die "$venv exists and was not made from here, so it is left alone. Name another folder: make VENV=..."
    say "Making a virtual environment in $venv with Python $version"
    rm -rf "$venv"
    mkdir -p "$venv"
    echo "unfinished" >"$venv/.gpubeton"
    "$python" -m venv "$venv" ||
        die "'$python -m venv' failed. Debian's and Ubuntu's python3 lack it unless python3-venv is installed;" \
            "a Python from python.org, uv, pyenv or conda has it: make PYTHON=/path/to/python3"
    echo "$version" >"$venv/.gpubeton"
fi

# Version of the NVIDIA driver; empty without one. WSL2 has the driver of Windows, and no file about it.
driver=
if [ -e /proc/driver/nvidia/version ]; then
    driver=$(sed -n '1s/.* \([0-9]\{3,\}\)\.[0-9].*/\1/p' /proc/driver/nvidia/version)
    driver=${driver:-unknown}
elif [ -e /dev/dxg ] && [ -e /usr/lib/wsl/lib/libcuda.so.1 ]; then
    driver=$(/usr/lib/wsl/lib/nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null |
        sed -n '1s/^\([0-9]*\)\..*/\1/p') || true
    driver=${driver:-unknown}
fi

# PyPI's torch for Linux brings some gigabytes of CUDA libraries. Without an NVIDIA driver the CPU build does the same.
index=${TORCH_INDEX-}
if [ -z "${TORCH_INDEX+set}" ] && [ "$(uname -s)" = Linux ] && [ -z "$driver" ]; then
    cpu_builds=https://download.pytorch.org/whl/cpu
    if "$venv/bin/python" -c "import urllib.request as u; u.urlopen('$cpu_builds/torch/', timeout=5)" 2>/dev/null; then
        index=$cpu_builds
    fi
fi

# A GPU decodes if CuPy and nvJPEG are there; those of today are made for drivers from 580 on.
if [ -n "$driver" ] && [ "$driver" -ge 580 ] 2>/dev/null; then
    extra=$extra,cuda13
elif [ -n "$driver" ]; then
    say "The NVIDIA driver is $driver; decoding on the GPU takes 580 or later. For older ones, in an environment of your own:" \
        "pip install torch --index-url https://download.pytorch.org/whl/cu126 && pip install -e '.[cuda12]'"
fi

say "Installing gpubeton[$extra] and what it needs (several minutes the first time: torch is large)"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-warn-script-location --constraint constraints.txt \
    ${index:+--extra-index-url "$index"} --editable ".[$extra]" |
    grep --line-buffered -vE '^(Requirement already satisfied|Looking in)' || [ "${PIPESTATUS[0]}" -eq 0 ] ||
    die "pip could not install gpubeton's requirements; its own words stand above." \
        "Without a network, point PIP_FIND_LINKS at a folder of wheels."
