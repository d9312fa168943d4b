"""Buffers: the memory in which a state that decodes step by step keeps one image."""

from __future__ import annotations

from ctypes import addressof, byref, c_size_t, c_void_p

from gpubeton.gpu.nvjpeg.allocators import DeviceAllocator, PinnedAllocator, StreamAllocator, is_second_version
from gpubeton.gpu.nvjpeg.resource import Resource


class Buffer(Resource):
    """Memory that grows as images need it; used by one state at a time. Made by `Handle`.

    Parameters
    ----------
    handle : Resource
        The handle.
    kind : str
        "Pinned" for page-locked memory of the host, "Device" for memory of the device.
    allocator : DeviceAllocator, PinnedAllocator, StreamAllocator or None
        Where the memory comes from; nvJPEG's own if None.
    """

    def __init__(
        self, handle: Resource, kind: str, allocator: DeviceAllocator | PinnedAllocator | StreamAllocator | None
    ) -> None:
        version = "V2" if is_second_version(allocator) else ""
        super().__init__(
            handle.calls,
            f"nvjpegBuffer{kind}Create{version}",
            f"nvjpegBuffer{kind}Destroy",
            handle.pointer,
            addressof(allocator) if allocator is not None else None,
            parent=handle,
            keep=allocator,
        )
        self.kind = kind

    def resize(self, nbytes: int, stream: int) -> None:
        """Make it this large now, in the stream's order."""
        self.calls(f"nvjpegBuffer{self.kind}Resize", self.pointer, nbytes, stream)

    def retrieve(self) -> tuple[int, int]:
        """Give its size in bytes and its address, 0 as long as it has none."""
        size, address = c_size_t(), c_void_p()
        self.calls(f"nvjpegBuffer{self.kind}Retrieve", self.pointer, byref(size), byref(address))
        return size.value, address.value or 0


class PinnedBuffer(Buffer):
    """Page-locked memory of the host. Made by `Handle.make_pinned_buffer`.

    Parameters
    ----------
    handle : Resource
        The handle.
    allocator : PinnedAllocator, StreamAllocator, optional
        Where the memory comes from; nvJPEG's own by default.
    """

    def __init__(self, handle: Resource, allocator: PinnedAllocator | StreamAllocator | None = None) -> None:
        super().__init__(handle, "Pinned", allocator)


class DeviceBuffer(Buffer):
    """Memory of the device. Made by `Handle.make_device_buffer`.

    Parameters
    ----------
    handle : Resource
        The handle.
    allocator : DeviceAllocator, StreamAllocator, optional
        Where the memory comes from; nvJPEG's own by default.
    """

    def __init__(self, handle: Resource, allocator: DeviceAllocator | StreamAllocator | None = None) -> None:
        super().__init__(handle, "Device", allocator)
