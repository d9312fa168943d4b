"""How the simulated GPU behaves and misbehaves, and its journal."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tests.simulator.library import DECODER, Entry, ImageFault, library

_UNKNOWN_ADDRESS = 700  # cudaErrorIllegalAddress


class _Switch:
    """A behavior of the library, under the attribute's name."""

    def __init__(self, kind=bool):
        self._kind = kind

    def __set_name__(self, owner, name):
        self._name = name.encode()

    def __get__(self, faults, owner):
        return self._kind(library().simulated_switch_value(self._name))

    def __set__(self, faults, value):
        assert library().simulated_switch(self._name, int(value)) == 0


@dataclass(frozen=True)
class Note:
    """One line of the journal; journal.h describes the attributes."""

    sequence: int
    kind: str
    name: str
    status: int
    stream: int
    device: int
    backend: int
    images: int
    was_busy: bool
    owner: int
    address: int
    thread: int


class Faults:
    """The switches of the simulator. Everything is as usual again when a test ends."""

    #: Off: every call returns at once and nothing is decoded, copied or run, which leaves the host's own cost.
    pixels = _Switch()
    #: Whether calls and work are noted.
    journal = _Switch()
    #: Whether new memory is full of garbage.
    garbage = _Switch()
    #: Bytes of each device.
    device_memory = _Switch(int)
    #: Whether work in memory that was freed, or outside of an allocation, is misuse and does not end the process.
    stray_work = _Switch()
    #: In which order the threads of kernels run: 0 ascending, 1 descending, 2 shuffled with `thread_seed`.
    thread_order = _Switch(int)
    thread_seed = _Switch(int)
    #: Whether the hardware decoder writes when it is called (as on Hopper) instead of at the stream's turn.
    early_write = _Switch()
    #: JPEG engines; with none, nvjpegCreateEx(HARDWARE) returns 7.
    engines = _Switch(int)
    cores = _Switch(int)
    #: What a batch returns that the engines do not take: 4 or 9.
    unsupported_status = _Switch(int)
    #: Status for damaged entropy-coded data; 0 is nvJPEG's behaviour: it decodes the part before the damage.
    damaged_status = _Switch(int)
    #: Whether the process ends where the real nvJPEG would crash.
    crash = _Switch()
    #: Whether bytes of JPEGs have to be in pinned memory.
    pinned_input = _Switch()
    #: nvJPEG's version, 130001 for 13.0.1.
    version = _Switch(int)

    def __init__(self):
        self._decoder = None
        self.decoder = _decode_with_the_fallback

    # --- time

    def slow_down(self, most, *, least=0, seed=0, stream=None):
        """Sleep `least` to `most` microseconds before each piece of work of one stream, or of all."""
        if stream is None:
            library().simulated_streams_slow_down(least, most, seed)
        else:
            library().simulated_stream_slow_down(stream.handle, least, most, seed)

    @contextmanager
    def held(self, stream):
        """Let nothing more begin in a stream for a while."""
        library().simulated_stream_hold(stream.handle)
        try:
            yield
        finally:
            library().simulated_stream_release(stream.handle)

    # --- errors

    def fail_stream(self, stream, status=_UNKNOWN_ADDRESS):
        """From the stream's turn on, its device is stuck with an error: every call reports it, no work is done."""
        library().simulated_stream_fail(stream.handle, status)

    def fail_device(self, number=0, status=_UNKNOWN_ADDRESS):
        """As `fail_stream`, at once. Status 0 ends an error, when all work that was queued before has been dropped."""
        library().simulated_device_fail(number, status)

    def fail_call(self, function, status, *, after=0, times=-1):
        """Have a function of nvJPEG return a status without doing anything, once `after` calls were well."""
        library().simulated_call_fault(function.encode(), status, after, times)

    def leave_memory(self, nbytes, number=0):
        """Let a device have no more than so many free bytes."""
        self.device_memory = library().simulated_memory_used(number) + nbytes

    # --- images: `data` are the bytes of the image meant, or any; `index` its place in a batch; of those that remain,
    # every so many-th; only in batched calls, or only alone; only with one backend; so many times.

    def fail_image(self, status, data=None, **which):
        """Have the call that holds the image return a status."""
        self._plant(data, status=status, **which)

    def skip_image(self, data=None, **which):
        """Return success without having written the image."""
        self._plant(data, is_skipped=True, **which)

    def enlarge_image(self, data=None, *, more_height=0, more_width=0, **which):
        """Write more rows or columns than the image's header has."""
        self._plant(data, more_height=more_height, more_width=more_width, **which)

    def _plant(self, data, *, index=-1, every=1, batched=None, backend=-1, times=-1, **what):
        fault = ImageFault(
            hash=0 if data is None else hash_of(data),
            index=index,
            every=every,
            is_batched=-1 if batched is None else int(batched),
            backend=backend,
            times=times,
            **{name: int(value) for name, value in what.items()},
        )
        library().simulated_image_fault(ctypes.byref(fault))

    # --- pixels

    @property
    def decoder(self):
        """A function from the bytes of a JPEG to an array of uint8, (height, width, 3); an exception means damage."""
        return self._decoder

    @decoder.setter
    def decoder(self, decode):
        self._decoder = decode
        callback = _callback(decode)
        library().simulated_decoder(ctypes.cast(callback, ctypes.c_void_p))
        self._callback = callback  # not before: no thread is in the former one now
        library().simulated_pixels_forget()

    # --- observations

    def notes(self, kind=None, name=None):
        """The journal, in order; all of it, or of one kind ("call", "work", "image", "grow") or name."""
        count = library().simulated_journal_length()
        entries = (Entry * count)()
        count = library().simulated_journal_read(0, count, entries)
        notes = [_note(entry) for entry in entries[:count]]
        return [note for note in notes if kind in {None, note.kind} and name in {None, note.name}]

    def forget_notes(self):
        library().simulated_journal_clear()

    def count(self, function):
        """How often a function of nvJPEG was called; counted without the journal too."""
        return library().simulated_call_count(function.encode())

    def misuses(self):
        """What no correct program does. A test at whose end there are any fails."""
        texts = []
        for index in range(library().simulated_misuses()):
            text = ctypes.create_string_buffer(1000)
            library().simulated_misuse_read(index, text, len(text))
            texts.append(text.value.decode())
        return texts

    def take_misuses(self):
        """As `misuses`, and forgets them."""
        library().simulated_memory_check()
        texts = self.misuses()
        library().simulated_misuses_clear()
        return texts

    @staticmethod
    def live(kind):
        """How many things of nvJPEG this test has made and not destroyed.

        Of "handle", "state" or "jpeg stream".
        """
        return library().simulated_nvjpeg_live(kind.encode())

    @staticmethod
    def live_memory(kind):
        """Bytes of `device.DEVICE`, `PINNED` or `TENSOR` memory that this test has allocated and not freed."""
        return library().simulated_memory_live(kind)

    @staticmethod
    def allocations():
        """How often memory was allocated since the test began."""
        return library().simulated_memory_count()

    # --- the end of a test

    def reset(self):
        """Make everything usual again; returns the number of streams that were still at work after 20 seconds."""
        busy = library().simulated_streams_recycle(20_000)
        self.make_usual()
        return busy

    def make_usual(self):
        """As `reset`, but for streams: CuPy and torch keep theirs for ever."""
        self.slow_down(0)
        library().simulated_decoder(None)
        for number in range(8):
            library().simulated_device_fail(number, 0)
        library().simulated_switches_reset()
        library().simulated_faults_clear()
        library().simulated_journal_clear()


def hash_of(data):
    """What images are known by in the journal."""
    return library().simulated_hash(bytes(data), len(data))


def _note(entry):
    values = {name: getattr(entry, name) for name, _ in Entry._fields_}
    values.update(kind=entry.kind.decode(), name=entry.name.decode(), was_busy=bool(entry.was_busy))
    return Note(**values)


def _callback(decode):
    def call(data, size, rgb, pitch, width, height):
        try:
            pixels = decode(ctypes.string_at(data, size))
            if pixels.shape != (height, width, 3):
                return 2
            rows = np.ctypeslib.as_array(rgb, (height, pitch))
            rows[:, : 3 * width] = pixels.reshape(height, 3 * width)
        except Exception:  # noqa: BLE001 - any error of the decoder means damage; C cannot take an exception
            return 1
        return 0

    return DECODER(call)


def _decode_with_the_fallback(data):
    from gpubeton.fields.jpeg import decode_rgb

    return decode_rgb(data)
