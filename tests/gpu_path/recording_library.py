"""A library that notes how it is called, in place of nvJPEG's: for what a binding does before and after the call."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.gpu_path.gpu_room import IMAGE


class RecordingLibrary:
    """All functions succeed and create their objects; `statuses` and `missing` change that."""

    def __init__(self):
        self.calls = []
        self.statuses = {}
        self.missing = set()
        self._made = 0x1000

    def __getitem__(self, name):
        if name in self.missing:
            raise AttributeError(f"undefined symbol: {name}")
        return _Function(self, name)

    def names(self):
        return [name for name, _ in self.calls]

    def arguments(self, name):
        """The arguments of the latest call of a function."""
        return [arguments for called, arguments in self.calls if called == name][-1]

    def make(self, pointer):
        self._made += 16
        pointer._obj.value = self._made


class _Function:
    argtypes = restype = None

    def __init__(self, library, name):
        self.library = library
        self.name = name

    def __call__(self, *arguments):
        assert len(arguments) == len(self.argtypes)
        for argument, kind in zip(arguments, self.argtypes, strict=True):
            kind.from_param(argument)  # as ctypes would; raises where it would
        self.library.calls.append((self.name, arguments))
        status = self.library.statuses.get(self.name, 0)
        if status == 0 and self.argtypes[-1] is ctypes.POINTER(ctypes.c_void_p):
            self.library.make(arguments[-1])
        return status


def batch(count=3):
    """Addresses of some JPEGs and of their pixels; nothing reads there."""
    addresses = np.arange(1, count + 1, dtype=np.uint64) * 4096
    sizes = np.full(count, 100, np.uint64)
    targets = np.zeros(count, IMAGE)
    targets["channel"][:, 0] = addresses + np.uint64(1 << 20)
    targets["pitch"][:, 0] = 96
    return addresses, sizes, targets
