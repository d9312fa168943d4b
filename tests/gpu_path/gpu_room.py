"""What tests of the GPU path name of private rooms: one place to change when something moves."""

from __future__ import annotations

from gpubeton._cpu.jpeg.entries import JpegReader
from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._gpu.batch import DecodedImages, Slot, lay_out_batch
from gpubeton._gpu.entry_decoder import EntryDecoder, JpegHeaders, send_piece
from gpubeton._gpu.nvjpeg import HARDWARE, IMAGE, INTERPOLATED, PROTOTYPES, Handle, Library, State, Status, bind, load
from gpubeton._gpu.nvjpeg_backends import BatchedBackend, open_nvjpeg_backends, with_entries
from gpubeton._plan.arena_layout import ALIGNMENT, lay_out_images
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.image_job import CpuServices, ImageJob
from gpubeton._plan.routes import DecodeRoute

__all__ = [
    "ALIGNMENT",
    "HARDWARE",
    "IMAGE",
    "INTERPOLATED",
    "PROTOTYPES",
    "BatchedBackend",
    "CpuServices",
    "DecodeRoute",
    "DecodedImages",
    "EntryDecoder",
    "Handle",
    "ImageJob",
    "JpegHeaders",
    "JpegReader",
    "Library",
    "Slot",
    "State",
    "Status",
    "bind",
    "compile_image_program",
    "lay_out_batch",
    "lay_out_images",
    "load",
    "open_nvjpeg_backends",
    "probe_jpegs",
    "send_piece",
    "with_entries",
]
