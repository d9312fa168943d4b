"""The machine code of kernels: instructions, and the loops that they are in, by NVIDIA's disassembler."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Block", "Loop", "disassemble", "figures", "find_disassembler", "find_loops", "find_partings",
           "operations_of", "read_blocks"]  # fmt: skip

_LABEL = re.compile(r"^(\.L\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_BARRIER = re.compile(r"\bB\d+\b")

#: First letters of an instruction, by its kind.
_KINDS = {
    "shared memory": ("LDS", "STS", "ATOMS"), "global memory": ("LD", "ST", "RED", "ATOM"),
    "branches": ("BRA", "BRX", "BSSY", "BSYNC", "EXIT", "CALL", "RET", "WARPSYNC", "BREAK"),
    "floating point": ("FADD", "FMUL", "FFMA", "FSET", "FMNMX", "FSEL", "DADD", "DMUL", "DFMA", "DSET", "H", "MUFU"),
    "conversions": ("I2F", "F2I", "F2F", "I2I", "FRND"),
}  # fmt: skip


class Block(NamedTuple):
    """Instructions without a jump between them."""

    operations: list[str]
    successors: list[int]


class Loop(NamedTuple):
    """A loop of blocks."""

    head: int
    blocks: frozenset[int]
    shortest: int  # instructions of the shortest way around
    depth: int  # loops around it


def find_disassembler(path: Path | None = None) -> Path:
    """Return nvdisasm: of the wheel nvidia-cuda-nvdisasm, or of a CUDA toolkit."""
    wheels = [file for entry in sys.path for file in Path(entry).glob("nvidia/*/bin/nvdisasm")]
    result = path or next(iter(wheels), None) or shutil.which("nvdisasm")
    if result is None:
        raise FileNotFoundError("nvdisasm: not found; pip install nvidia-cuda-nvdisasm, or name it by --nvdisasm")
    return Path(result)


def disassemble(code: bytes, disassembler: Path) -> str:
    """Return the text of a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        command = [str(disassembler), "-c", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def read_blocks(text: str) -> list[Block]:
    """Divide the text of a kernel into blocks.

    A BSYNC continues at the address in its BSSY: there the lanes of a warp meet again.
    """
    lines: list[tuple[str, str, str, str]] = []  # label, predicate, operation, operands
    labels: list[str] = []
    for line in text.splitlines():
        if begin := _LABEL.match(line):
            labels.append(begin[1])
        elif result := _INSTRUCTION.match(line):
            lines.append((" ".join(labels), (result[1] or "").strip(), result[2], result[3]))
            labels = []
    meetings: dict[str, str] = {}
    starts = [0]
    for number, (label, _, operation, _) in enumerate(lines):
        if label and number != starts[-1]:
            starts.append(number)
        if _leaves(operation) and number + 1 < len(lines):
            starts.append(number + 1)
    numbers = {name: starts.index(at) for at in starts for name in lines[at][0].split()}
    blocks = []
    for first, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        for _, _, operation, operands in lines[first:end]:
            if operation.startswith("BSSY"):
                meetings[_BARRIER.findall(operands)[0]] = _TARGET.findall(operands)[0]
        _, predicate, operation, operands = lines[end - 1]
        successors = [numbers[name] for name in _TARGET.findall(operands) if _leaves(operation) and name in numbers]
        if operation.startswith("BSYNC"):
            successors = [numbers[meetings[_BARRIER.findall(operands)[0]]]]
        elif (predicate or not _ends(operation)) and end < len(lines):
            successors.append(starts.index(end))
        blocks.append(Block([operation for _, _, operation, _ in lines[first:end]], successors))
    return blocks


def find_loops(blocks: list[Block]) -> list[Loop]:
    """Find the loops, each with the blocks inside and the shortest way around; the largest first."""
    before: dict[int, list[int]] = {}
    for number, block in enumerate(blocks):
        for successor in block.successors:
            before.setdefault(successor, []).append(number)
    bodies: dict[int, set[int]] = {}
    for number, block in enumerate(blocks):
        for head in block.successors:
            if head <= number:  # the compiler puts the end of a loop after its beginning
                bodies.setdefault(head, {head}).update(_body(head, number, before))
    loops = [
        Loop(head, frozenset(body), _shortest(blocks, head, body), sum(head in other for other in bodies.values()) - 1)
        for head, body in bodies.items()
    ]
    # Not loops: code that was put after its continuation, and the jump to itself at the end.
    real = [loop for loop in loops if loop.shortest > 1]
    return sorted(real, key=lambda loop: -_size(blocks, loop))


def operations_of(blocks: list[Block], loop: Loop) -> list[str]:
    """List the instructions of a loop, and of those inside it."""
    return [operation for number in sorted(loop.blocks) for operation in blocks[number].operations]


def find_partings(blocks: list[Block], loop: Loop) -> list[int]:
    """Find the branches of a loop whose ways do not meet at a BSYNC before its beginning comes again.

    Lanes of a warp that take different ways there may go on apart, turn after turn.
    """
    after = {
        number: [successor for successor in blocks[number].successors if successor in loop.blocks]
        for number in loop.blocks
    }
    ends = [number for number in loop.blocks if loop.head in after[number]]
    if len(ends) != 1:
        return ends
    after[ends[0]] = []
    branches = [number for number, ways in after.items() if len(ways) > 1]
    meetings = {number: _meeting(after, number, ends[0]) for number in branches}
    return [number for number in branches if not blocks[meetings[number]].operations[-1].startswith("BSYNC")]


def figures(blocks: list[Block]) -> dict[str, Any]:
    """Return the instructions of a kernel and of its loops, by their kind."""
    return {
        "instructions": sum(len(block.operations) for block in blocks),
        "loops": [
            {
                "instructions": _size(blocks, loop),
                "shortest_way_around": loop.shortest,
                "depth": loop.depth,
                "kinds": dict(Counter(map(_kind, operations_of(blocks, loop))).most_common()),
            }
            for loop in find_loops(blocks)
        ],
    }


def _meeting(after: dict[int, list[int]], start: int, end: int) -> int:
    """Return the first block that is on all ways from one block to another."""
    before = {block: _reached(after, start, block) for block in _reached(after, start) - {start}}
    return min((block for block, result in before.items() if end not in result), key=lambda value: len(before[value]))


def _reached(after: dict[int, list[int]], start: int, without: int = -1) -> set[int]:
    """Return the blocks on all ways from one, as far as another one."""
    results, waiting = {start}, [start]
    while waiting:
        more = set(after[waiting.pop()]) - results - {without}
        results |= more
        waiting += more
    return results


def _size(blocks: list[Block], loop: Loop) -> int:
    return len(operations_of(blocks, loop))


def _body(head: int, end: int, before: dict[int, list[int]]) -> set[int]:
    """Return the blocks from which the end of a loop is reached without its beginning."""
    results, open_ones = {end}, [end]
    while open_ones:
        number = open_ones.pop()
        if number != head:
            more = set(before.get(number, [])) - results
            results |= more
            open_ones += more
    return {number for number in results if number >= head}


def _shortest(blocks: list[Block], head: int, body: set[int]) -> int:
    """Return the instructions of the shortest way from the beginning of a loop to itself."""
    least: dict[int, int] = {}
    waiting = [(len(blocks[head].operations), head)]
    while waiting:
        cost, number = heappop(waiting)
        for successor in blocks[number].successors:
            if successor == head:
                return cost
            if successor in body and cost + len(blocks[successor].operations) < least.get(successor, 1 << 30):
                least[successor] = cost + len(blocks[successor].operations)
                heappush(waiting, (least[successor], successor))
    return 0


def _leaves(operation: str) -> bool:
    # A call of a label in the same kernel is how lanes leave a loop one after another.
    return operation.startswith(("BRA", "BRX", "EXIT", "RET", "BSYNC", "JMP", "CALL.REL.NOINC"))


def _ends(operation: str) -> bool:
    return operation.startswith(("BRA", "BRX", "EXIT", "RET", "JMP"))


def _kind(operation: str) -> str:
    return next((kind for kind, starts in _KINDS.items() if operation.startswith(starts)), "integers")
