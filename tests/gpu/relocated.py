"""Kernels on the GPU for tests that were written for the host.

Such a test has its arrays in the host's memory, and addresses of them among a kernel's arguments and in the tables that
these point to. Here every array has a twin on the device, which it keeps: contents are copied there, addresses changed,
and the written bytes are copied back. Addresses are the same modulo 256.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpubeton._gpu.kernels import function_of
from gpubeton._gpu.launch import GATHER, JPEG, PICTURE
from gpubeton.format.layout import ENTRY_DTYPE

_ALIGNMENT = 256
_BLOCK = 32 << 20
# Kernels may read whole pieces of 16 bytes.
_MARGIN = 16

#: Kernels whose first argument points to a table of addresses: its type, and which of its fields are addresses.
_JPEGS = JPEG, ["bytes", "entries", "quantization", "coefficients", "samples", "resampled"]
_TABLES = {
    "canary": (PICTURE, ["address"]),
    "resample": (PICTURE, ["address"]),
    "gather": (GATHER, ["source", "target"]),
    **dict.fromkeys(("jpeg_taps", "jpeg_huffman", "jpeg_idct", "jpeg_across", "jpeg_down"), _JPEGS),
}


def _first_bytes(rows, field):
    """Number of the first byte that is there, from each address of a table: JPEGs have what their window needs."""
    if rows.dtype != JPEG or field not in ("bytes", "entries"):
        return [0] * len(rows)
    if field == "bytes":
        return rows["begin"].tolist()
    across = -(-rows["width"] // np.maximum(8 * rows["luma_across"], 1))
    first = (rows["first_row"] * across + rows["first_column"]) // np.maximum(rows["every"], 1)
    return (ENTRY_DTYPE.itemsize * first).tolist()


@dataclass(eq=False)
class Twin:
    """An array of the host, and where its twin is on the device."""

    start: int
    nbytes: int
    owner: Any
    address: int = 0

    def bytes(self):
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.start))


class Relocated:
    """Launches kernels on a device as `tests.kernels.host_build.HostKernels.launch` does on the host.

    Parameters
    ----------
    device : Device
        Where.
    """

    def __init__(self, device):
        self._device = device
        self._stream = device.make_stream()
        self._twins = {}
        self._blocks = []
        self._left = 0
        self._nothing = self._room(_ALIGNMENT, 0)

    def note(self, array):
        """Remember an array as long as its memory lives."""
        owner = array if array.base is None else array.base
        self._twins[array.ctypes.data] = Twin(array.ctypes.data, array.nbytes, weakref.ref(owner))
        return array

    def launch(self, name, grid, block, arguments, order=0, seed=0):
        """Run a kernel to its end; in which order its threads run is the device's business."""
        used = {}
        moved = [
            np.uint64(self._moved(int(argument), used)) if type(argument) is np.uint64 else argument
            for argument in arguments
        ]
        contents = {twin.start: twin.bytes().copy() for twin in used.values()}
        table = None
        if function_of(name) in _TABLES:
            dtype, fields = _TABLES[function_of(name)]
            table = self._find(int(arguments[0]))
            rows = contents[table.start][: table.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
            referenced = {}
            for field in fields:
                pairs = zip(rows[field].tolist(), _first_bytes(rows, field), strict=True)
                rows[field] = [(self._moved(address + first, referenced) - first) % 2**64 for address, first in pairs]
            contents = {**{twin.start: twin.bytes().copy() for twin in referenced.values()}, **contents}
            used = {**referenced, **used}
        staging = self._device.allocate_pinned(max(sum(twin.nbytes for twin in used.values()), 1))
        self._copy(used, staging, contents, is_there=False)
        self._device.launch(name, grid, block, moved, self._stream)
        written = self._copy(used, staging, contents, is_there=True)
        for twin in used.values():
            if twin is table:
                assert np.array_equal(written[twin.start], contents[twin.start]), "a kernel wrote into its table"
            else:
                twin.bytes()[:] = written[twin.start]
        staging.free()

    def free(self):
        """Free the memory of the device."""
        for block in self._blocks:
            block.free()

    def _find(self, address):
        """The array that an address is in; None if there is none."""
        for start, twin in list(self._twins.items()):
            if twin.owner() is None:
                del self._twins[start]
            elif start <= address < start + twin.nbytes:
                return twin
        return None

    def _moved(self, address, used):
        """Where on the device that is which is at an address of the host; notes whose twin it is."""
        if address == 0:
            return 0
        twin = self._find(address)
        if twin is None:
            return self._nothing
        if not twin.address:
            twin.address = self._room(twin.nbytes, twin.start % _ALIGNMENT)
        used[twin.start] = twin
        return twin.address + address - twin.start

    def _room(self, nbytes, remainder):
        expected = remainder + nbytes + _MARGIN
        expected += -expected % _ALIGNMENT
        if expected > self._left:
            self._blocks.append(self._device.allocate(max(_BLOCK, expected)))
            self._left = self._blocks[-1].nbytes
        block = self._blocks[-1]
        place = block.nbytes - self._left
        place += -place % _ALIGNMENT
        self._left = block.nbytes - place - expected
        return block.address + place + remainder

    def _copy(self, used, staging, contents, *, is_there):
        """Copy the arrays to the device, or their present contents back to the host."""
        places = np.cumsum([0, *(twin.nbytes for twin in used.values())]).tolist()
        for place, twin in zip(places, used.values(), strict=False):
            part = staging.array[place : place + twin.nbytes]
            if not is_there:
                part[:] = contents[twin.start]
                self._device.copy(twin.address, staging.address + place, twin.nbytes, self._stream)
            else:
                self._device.copy(staging.address + place, twin.address, twin.nbytes, self._stream)
        self._stream.synchronize()
        return {
            twin.start: staging.array[place : place + twin.nbytes].copy()
            for place, twin in zip(places, used.values(), strict=False)
        }
