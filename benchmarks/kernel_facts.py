"""Write down what can be known of the kernels without a GPU.

    python -m benchmarks.kernel_facts          # writes benchmarks/results/DATE-kernel_facts-....json

Of each kernel and architecture: registers, shared memory, the share of a multiprocessor's warps that are there at a
time, instructions, and loops with the shortest way around. Of the JPEG decoder on photographs: symbols, how many lanes
of a warp work in three orders of its intervals, and sectors of memory. Needs a C++ compiler, NVRTC and nvdisasm:
``pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-nvdisasm``. None of it is a measurement of a GPU.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.corpus import make_corpus
from benchmarks.gpu.machine_code import disassemble, figures, find_disassembler, read_blocks
from benchmarks.results import DATA, RESULTS, save
from gpubeton._gpu.kernels import kernel_names

_tool: Any = import_module("tools.kernel_resources")  # mypy does not look at tools

__all__ = ["lanes_at_work", "occupancy", "symbols_of_blocks"]

_THREADS = 128
_LANES = 32
_SECTOR = 32  # bytes
_REGISTERS = 65536
_RESERVED = 1024  # bytes of shared memory of each block that CUDA keeps, from Ampere on

# Of a multiprocessor (CUDA's programming guide): warps, blocks, kB of shared memory for blocks.
_LIMITS = {
    "sm_75": (32, 16, 64), "sm_80": (64, 32, 164), "sm_86": (48, 16, 100), "sm_89": (48, 24, 100),
    "sm_90": (64, 32, 228), "sm_100": (64, 32, 228), "sm_120": (48, 24, 100),
}  # fmt: skip

# Of the pixels that the largest loop of a kernel makes, a thread has so many.
_PIXELS_OF_LOOP = {"jpeg_idct": 8}

_ZIGZAG = np.array(
    [0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
     28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
     47, 55, 62, 63]
)  # fmt: skip


def main(
    images: Annotated[int, typer.Option(help="Photographs.")] = 60,
    nvdisasm: Annotated[Path | None, typer.Option(help="The disassembler; by default that of NVIDIA's wheel.")] = None,
    data: Annotated[Path, typer.Option(help="Folder for the photographs.")] = DATA,
    out: Annotated[Path, typer.Option(help="Folder for the result.")] = RESULTS,
) -> None:
    """Write down what can be known of the kernels without a GPU."""
    console = Console()
    compiler, disassembler = _tool.nvrtc.load(), find_disassembler(nvdisasm)
    kernels: dict[str, Any] = {}
    for kernel in kernel_names():
        kernels[kernel] = {
            architecture: _kernel(compiler, kernel, architecture, disassembler) for architecture in _tool.ARCHITECTURES
        }
        own = kernels[kernel]["sm_90"]
        console.print(
            f"{kernel}: sm_90: {own['warps_there']} of {own['warps']} warps, {own['instructions']} instructions"
        )
    photos = make_corpus(data, images, console)
    decoder = {**_decoder(photos.jpg, images), "instructions": _decoder_instructions(kernels)}
    for name, value in decoder.items():
        console.print(f"{name}: {value}", soft_wrap=True)
    version = ".".join(map(str, compiler.version))
    facts = {"nvrtc": version, "kernels": kernels, "corpus": photos.facts["jpg"], "decoder": decoder}
    console.print(str(save("kernel_facts", facts, out)), soft_wrap=True)


def occupancy(architecture: str, threads: int, registers: int, shared: int) -> tuple[int, int]:
    """Return the warps of a kernel that a multiprocessor has at a time, and those that it has room for.

    Examples
    --------
    >>> occupancy("sm_90", 128, 40, 10000)
    (48, 64)
    """
    warps, blocks, kilobytes = _LIMITS[architecture]
    of_block = -(-threads // _LANES)
    # Registers are given to a warp by 256, shared memory to a block by 128 bytes.
    by_registers = _REGISTERS // (-(-registers * _LANES // 256) * 256) // of_block
    reserved = 0 if architecture == "sm_75" else _RESERVED
    by_shared = kilobytes * 1024 // max(-(-(shared + reserved) // 128) * 128, 1)
    return min(blocks, warps // of_block, by_registers, by_shared) * of_block, warps


def symbols_of_blocks(coefficients: NDArray[np.int16]) -> NDArray[np.int64]:  # (N, 64) by rows
    """Count Huffman's symbols of blocks: one for the first coefficient, then runs of zeros and their ends.

    Examples
    --------
    >>> block = np.zeros((1, 64), np.int16)
    >>> block[0, 63] = 1
    >>> symbols_of_blocks(block)  # three runs of 16 zeros, and one of 14 that ends with the last coefficient
    array([5])
    """
    present = coefficients[:, _ZIGZAG] != 0
    present[:, 0] = True
    places = np.where(present, np.arange(64), 0)
    before = np.maximum.accumulate(places, axis=1)[:, :-1]
    zeros = np.where(present[:, 1:], np.arange(1, 64) - before - 1, 0)
    result: NDArray[np.int64] = present.sum(1) + (zeros // 16).sum(1) + ~present[:, 63]
    return result


def lanes_at_work(symbols: NDArray[np.int64]) -> float:
    """Return the share of a warp's lanes that work, if each goes on until the longest of its intervals is done.

    Examples
    --------
    >>> round(lanes_at_work(np.array([10] * 32 + [5] * 31 + [10])), 3)
    0.758
    """
    padded = np.append(symbols, np.zeros(-len(symbols) % _LANES, np.int64)).reshape(-1, _LANES)
    return float(padded.sum() / (_LANES * padded.max(1)).sum())


def _kernel(compiler: Any, kernel: str, architecture: str, disassembler: Path) -> dict[str, Any]:
    """Return what one kernel is on one architecture."""
    compiled = _tool.measured(compiler, kernel, architecture)
    result = _tool.resources_of(compiled.log)
    occupied, room = occupancy(architecture, _THREADS, result["registers"], result["shared"])
    return {
        **result,
        "threads": _THREADS,
        "warps_there": occupied,
        "warps": room,
        **figures(read_blocks(disassemble(compiled.code, disassembler))),
    }


def _decoder_instructions(kernels: dict[str, Any]) -> dict[str, Any]:
    """Return the instructions of a thread for a symbol, and for a pixel of the inverse DCT."""
    result: dict[str, Any] = {}
    for architecture in _tool.ARCHITECTURES:
        symbol = kernels["jpeg_huffman"][architecture]["loops"][0]
        transform = kernels["jpeg_idct"][architecture]["loops"][0]
        result[architecture] = {
            "of_a_symbol_at_least": symbol["shortest_way_around"],
            "of_a_symbol_at_most": symbol["instructions"],
            "of_a_pixel_at_most": transform["instructions"] / _PIXELS_OF_LOOP["jpeg_idct"],
        }
    return result


def _decoder(beton: str, count: int) -> dict[str, Any]:
    """Count what the JPEG decoder does for whole photographs, by its kernels on the host."""
    blocks = _Intervals(beton, count)
    symbols, nbytes = blocks.symbols, blocks.nbytes
    rng = np.random.default_rng(0)
    orders = {
        "random": rng.permutation(len(symbols)),
        "as in the file": np.arange(len(symbols)),
        "by bytes": np.argsort(nbytes, kind="stable"),
    }
    # A lane reads its interval alone: each sector once, if the cache keeps it, and one more for its unaligned begin.
    sectors = (nbytes // _SECTOR + 2).sum()
    return {
        "images": count,
        "intervals_of_an_image": len(symbols) / count,
        "symbols_of_an_image": int(symbols.sum()) / count,
        "symbols_of_an_interval": {"mean": float(symbols.mean()), "p99": float(np.percentile(symbols, 99))},
        "bits_of_a_symbol": float(8 * nbytes.sum() / symbols.sum()),
        "lanes_at_work": {name: round(lanes_at_work(symbols[order]), 3) for name, order in orders.items()},
        "sectors_read_of_an_interval": float(sectors / len(symbols)),
        "bytes_used_of_a_sector_read": float(nbytes.sum() / sectors),
        "coefficients_stored_of_a_block": blocks.stored,
    }


class _Intervals:
    """The intervals of 8 MCUs of photographs: symbols and bytes of each."""

    def __init__(self, beton: str, count: int) -> None:
        from gpubeton.fields.registry import open_index

        making: Any = import_module("tests.cpu.making")  # tests have no types
        launching: Any = import_module("tests.kernels.jpeg_launching")
        regions = open_index(beton)[0].regions("image")
        file = np.memmap(beton, np.uint8, "r")
        program = making.program_of(8, 8, "bilinear")
        device = _only_huffman()
        symbols, nbytes, stored, blocks = [], [], 0, 0
        for number in range(count):
            start = int(regions.offset[number])
            image = making.stored_jpeg(bytes(file[start : start + int(regions.size[number])]))
            batch = launching.batch_of([image])
            draw = making.draw_of(program, (0, 0, image.height, image.width))
            result = launching.make_jpegs(program, batch, [draw], device=device)
            own_symbols, coefficients = _symbols(result.jpegs[0], result.window)
            first = np.append(np.asarray(batch.keep.entries["bit"], np.int64) // 8, len(image.data))
            symbols.append(own_symbols)
            nbytes.append(np.diff(first))
            stored += int((coefficients != 0).sum())
            blocks += len(coefficients)
        self.symbols: NDArray[np.int64] = np.concatenate(symbols)  # (M,)
        self.nbytes: NDArray[np.int64] = np.concatenate(nbytes)  # (M,)
        self.stored = stored / blocks


def _only_huffman() -> Any:
    """Return a device of the host that decodes coefficients, and leaves out the later kernels."""
    device = import_module("tests.kernels.host_device").HostDevice()
    launch = device.launch

    def launch_huffman(kernel: str, *arguments: Any) -> None:
        if kernel == "jpeg_huffman":
            launch(kernel, *arguments)

    device.launch = launch_huffman
    return device


def _symbols(jpeg: Any, window: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int16]]:
    """Return the symbols of each interval of a whole JPEG, and the coefficients of its blocks."""
    across, down, columns, rows = (int(jpeg[name]) for name in ("luma_across", "luma_down", "columns", "rows"))
    chroma = rows * columns * (int(jpeg["components"]) - 1)
    luma = rows * down * columns * across
    start = int(jpeg["coefficients"]) - window.ctypes.data
    coefficients = window[start : start + 128 * (luma + chroma)].view(np.int16).reshape(-1, 64)
    result = symbols_of_blocks(coefficients)
    of_mcu = result[:luma].reshape(rows, down, columns, across).sum((1, 3)).reshape(-1)
    of_mcu = of_mcu + result[luma:].reshape(-1, rows * columns).sum(0)
    return np.add.reduceat(of_mcu, np.arange(0, rows * columns, int(jpeg["every"]))), coefficients


if __name__ == "__main__":
    typer.run(main)
