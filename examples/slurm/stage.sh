#!/usr/bin/env bash
# Copy a file to a disk of this node, once for any number of tasks; print the path of the copy.
#
#     stage.sh /shared/train.beton "$TMPDIR"
#
# The copy gets its name when it is complete. An existing copy is used if its size, its time and the bytes of its
# beginning and end (a .beton file's header and tables) are equal to the original's. Other tasks wait meanwhile. The
# operating system releases the lock when the process that holds it ends or is killed.
set -euo pipefail
if [ $# -ne 2 ]; then
    echo "usage: stage.sh FILE FOLDER" >&2
    exit 2
fi
file=$1
folder=$2
copy=$folder/$(basename "$file")

# A fingerprint of a file's state, without reading all of it.
fingerprint() {
    stat --dereference --format '%s %Y' "$1"
    head --bytes 16M "$1" | cksum
    tail --bytes 16M "$1" | cksum
}

[ -r "$file" ] || { echo "stage.sh: $file cannot be read on $(hostname)" >&2; exit 1; }
mkdir -p "$folder"
exec 9> "$copy.lock"
flock 9
if [ ! -e "$copy" ] || [ "$(fingerprint "$copy")" != "$(fingerprint "$file")" ]; then
    rm -f "$copy" "$copy.part"
    need=$(stat --dereference --format %s "$file")
    free=$(df --output=avail --block-size=1 "$folder" | tail -n 1)
    if [ "$free" -lt "$need" ]; then
        echo "stage.sh: $file has $need bytes, but $folder on $(hostname) has room for $free. Choose another folder." >&2
        exit 1
    fi
    echo "stage.sh: copying $file to $copy on $(hostname)" >&2
    cp --dereference --preserve=timestamps "$file" "$copy.part"
    if [ "$(fingerprint "$copy.part")" != "$(fingerprint "$file")" ]; then
        rm -f "$copy.part"
        echo "stage.sh: the copy of $file differs from it. Was it written to meanwhile?" >&2
        exit 1
    fi
    mv "$copy.part" "$copy"
fi
echo "$copy"
