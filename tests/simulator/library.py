"""The simulator's library: its functions with their prototypes."""

from __future__ import annotations

import atexit
import ctypes
from ctypes import POINTER, c_char_p, c_int, c_long, c_longlong, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from functools import cache

from tests.simulator.build import build


class Entry(ctypes.Structure):
    """One line of the journal; `Entry` of journal.h."""

    _fields_ = (
        ("sequence", c_uint64),
        ("kind", ctypes.c_char * 16),
        ("name", ctypes.c_char * 48),
        ("status", ctypes.c_int32),
        ("stream", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("backend", ctypes.c_int32),
        ("images", ctypes.c_int32),
        ("was_busy", ctypes.c_int32),
        ("owner", c_uint64),
        ("address", c_uint64),
        ("thread", c_uint64),
    )


class ImageFault(ctypes.Structure):
    """What goes wrong with which image; `ImageFault` of image_fault.h."""

    _fields_ = (
        ("hash", c_uint64),
        ("index", c_int),
        ("every", c_int),
        ("is_batched", c_int),
        ("backend", c_int),
        ("times", c_long),
        ("status", c_int),
        ("is_skipped", c_int),
        ("more_height", c_int),
        ("more_width", c_int),
    )


#: int decode(data, size, rgb, pitch, width, height); 0 is success.
DECODER = ctypes.CFUNCTYPE(c_int, POINTER(c_ubyte), c_size_t, POINTER(c_ubyte), c_size_t, c_int, c_int)

_PROTOTYPES = {
    # name: (result, arguments...)
    "simulated_test_begin": (None,),
    "simulated_use_device": (c_int, c_int),
    "simulated_device_fail": (None, c_int, c_int),
    "simulated_stream_make": (c_void_p, c_int, c_int),
    "simulated_stream_number": (c_int, c_void_p),
    "simulated_stream_is_urgent": (c_int, c_void_p),
    "simulated_stream_is_idle": (c_int, c_void_p),
    "simulated_stream_is_settled": (c_int, c_void_p),
    "simulated_stream_hold": (None, c_void_p),
    "simulated_stream_release": (None, c_void_p),
    "simulated_stream_slow_down": (None, c_void_p, c_long, c_long, c_uint64),
    "simulated_streams_slow_down": (None, c_long, c_long, c_uint64),
    "simulated_stream_synchronize": (c_int, c_void_p),
    "simulated_stream_wait": (c_int, c_void_p, c_void_p),
    "simulated_stream_fail": (c_int, c_void_p, c_int),
    "simulated_streams_recycle": (c_int, c_long),
    "simulated_event_make": (c_void_p, c_int),
    "simulated_event_drop": (None, c_void_p),
    "simulated_event_record": (c_int, c_void_p, c_void_p),
    "simulated_event_synchronize": (c_int, c_void_p),
    "simulated_event_query": (c_int, c_void_p),
    "simulated_memory_make": (c_int, c_int, c_int, c_uint64, POINTER(c_uint64)),
    "simulated_memory_free": (c_int, c_uint64),
    "simulated_memory_free_in_order": (c_int, c_uint64, c_void_p),
    "simulated_memory_live": (c_uint64, c_int),
    "simulated_memory_left": (c_uint64, c_int),
    "simulated_memory_used": (c_uint64, c_int),
    "simulated_memory_count": (c_uint64,),
    "simulated_memory_check": (None,),
    "simulated_faults_explain": (None, c_int),
    "simulated_copy": (c_int, c_uint64, c_uint64, c_uint64, c_void_p),
    "simulated_launch": (
        c_int, c_char_p, c_void_p, POINTER(c_uint), POINTER(c_uint), POINTER(c_void_p), POINTER(c_uint64), c_int,
        c_void_p,
    ),
    "simulated_switch": (c_int, c_char_p, c_longlong),
    "simulated_switch_value": (c_longlong, c_char_p),
    "simulated_switches_reset": (None,),
    "simulated_journal_length": (c_uint64,),
    "simulated_journal_read": (c_uint64, c_uint64, c_uint64, POINTER(Entry)),
    "simulated_journal_clear": (None,),
    "simulated_misuses": (c_uint64,),
    "simulated_misuse_read": (c_uint64, c_uint64, c_char_p, c_uint64),
    "simulated_misuses_clear": (None,),
    "simulated_hash": (c_uint64, c_char_p, c_uint64),
    "simulated_decoder": (None, c_void_p),
    "simulated_pixels_forget": (None,),
    "simulated_image_fault": (None, POINTER(ImageFault)),
    "simulated_call_fault": (None, c_char_p, c_int, c_long, c_long),
    "simulated_call_count": (c_uint64, c_char_p),
    "simulated_faults_clear": (None,),
    "simulated_nvjpeg_live": (c_uint64, c_char_p),
}  # fmt: skip


@cache
def library() -> ctypes.CDLL:
    """The library, built if need be. Calls let other Python threads run while they wait."""
    loaded = ctypes.CDLL(str(build()))
    for name, (result, *arguments) in _PROTOTYPES.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    loaded.simulated_faults_explain(2)
    # Streams may still be decoding when the interpreter ends, and must not call into it then.
    atexit.register(loaded.simulated_decoder, None)
    return loaded
