"""Sequential JPEG by the book (ITU-T T.81), bit by bit: writes what no library writes, and reads coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tests.cpu.making import joined, segments
from tests.cpu.pictures import jpeg, noise

_ORDER = sorted(range(64), key=lambda k: (k // 8 + k % 8, k // 8 if (k // 8 + k % 8) % 2 else k % 8))
#: Row-major place of the k-th coefficient of a scan (figure A.6).
ZIGZAG = np.array(_ORDER)

#: Segments that fix the colors.
JFIF = (0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")


@dataclass
class Component:
    """One color: `across` x `down` blocks of each MCU, quantized coefficients (rows, columns, 64), row-major."""

    identifier: int
    across: int
    down: int
    blocks: np.ndarray
    quantization: np.ndarray


class DamagedError(Exception):
    """A plain reader's verdict."""


# --- Huffman tables (Annex C) ------------------------------------------------------------------------------------


def symbols_of(lengths, symbols):
    """The symbol of each code: {(code, length): symbol}. A table may give a symbol several codes."""
    table, code, k = {}, 0, 0
    for length, count in enumerate(lengths, 1):
        for _ in range(count):
            table[code, length] = int(symbols[k])
            code, k = code + 1, k + 1
        code *= 2
    return table


def codes_of(lengths, symbols):
    """A code of each symbol: {symbol: (code, length)}."""
    return {symbol: code for code, symbol in symbols_of(lengths, symbols).items()}


def tables_of(content):
    """The tables of a DHT segment: {class and number: (16 lengths, symbols)}."""
    tables = {}
    while content:
        lengths = list(content[1:17])
        tables[content[0]] = lengths, list(content[17 : 17 + sum(lengths)])
        content = content[17 + sum(lengths) :]
    return tables


@cache
def usual_tables():
    """The tables of Annex K.3, as libjpeg-turbo writes them, in one segment."""
    parts = segments(jpeg(noise(8, 8), 90, "4:4:4"))
    return b"".join(content for marker, content in parts if marker == 0xC4)


# --- writing -----------------------------------------------------------------------------------------------------


def ceiling(number, divisor):
    return -(-number // divisor)


def _dct():
    k, n = np.mgrid[0:8, 0:8]
    return np.where(k == 0, np.sqrt(1 / 8), 0.5) * np.cos((2 * n + 1) * k * np.pi / 16)


def component_of(plane, identifier, across, down, most, quantization):
    """Subsample a whole plane, whose MCUs are `most` (across, down) blocks, transform and quantize it."""
    step_x, step_y = most[0] // across, most[1] // down
    height, width = (
        -(-side // (8 * blocks)) * 8 * blocks for side, blocks in zip(plane.shape, most[::-1], strict=True)
    )
    padded = np.pad(plane, ((0, height - plane.shape[0]), (0, width - plane.shape[1])), "edge").astype(np.float64)
    small = padded.reshape(height // step_y, step_y, width // step_x, step_x).mean(axis=(1, 3)) - 128
    blocks = small.reshape(small.shape[0] // 8, 8, small.shape[1] // 8, 8).swapaxes(1, 2)
    matrix = _dct()
    coefficients = (matrix @ blocks @ matrix.T).reshape(*blocks.shape[:2], 64)
    quantized = np.rint(coefficients / quantization).astype(int)
    return Component(identifier, across, down, quantized, np.asarray(quantization))


def components_of(planes, sampling, quantization=None, identifiers=(1, 2, 3, 4)):
    """Components of planes (h, w, C), with (across, down) for each; by default, flat quantization by 4."""
    table = np.full(64, 4) if quantization is None else quantization
    most = max(across for across, _ in sampling), max(down for _, down in sampling)
    return [
        component_of(planes[..., i], identifiers[i], across, down, most, table)
        for i, (across, down) in enumerate(sampling)
    ]


def _size_of(value):
    return int(abs(value)).bit_length()


def _bits_of(value):
    size = _size_of(value)
    return format(value if value >= 0 else value + (1 << size) - 1, f"0{size}b") if size else ""


def _block_bits(block, predictor, dc, ac):
    """The bits of one block (F.1.2)."""
    scan = block[ZIGZAG].tolist()
    difference = scan[0] - predictor
    bits = [format(dc[_size_of(difference)][0], f"0{dc[_size_of(difference)][1]}b"), _bits_of(difference)]
    last = max((k for k in range(64) if scan[k] and k), default=0)
    run = 0
    for value in scan[1 : last + 1]:
        if value == 0:
            run += 1
            continue
        while run > 15:
            bits.append(format(ac[0xF0][0], f"0{ac[0xF0][1]}b"))
            run -= 16
        code, length = ac[16 * run + _size_of(value)]
        bits += [format(code, f"0{length}b"), _bits_of(value)]
        run = 0
    if last < 63:
        bits.append(format(ac[0][0], f"0{ac[0][1]}b"))
    return "".join(bits)


def packed(bits):
    """Bits as bytes, filled up with ones and stuffed (F.1.2.3)."""
    bits += "1" * (-len(bits) % 8)
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:].replace(b"\xff", b"\xff\0") if bits else b""


def mcus_of(components, height, width):
    """The blocks of each MCU, as (component, row, column)."""
    if len(components) == 1:
        # One component: an MCU is a block, and blocks that hold nothing of the image are left out (A.2.2).
        rows, columns = components[0].blocks.shape[:2]
        return [[(0, y, x)] for y in range(min(rows, height)) for x in range(min(columns, width))]
    rows = components[0].blocks.shape[0] // components[0].down
    columns = components[0].blocks.shape[1] // components[0].across
    return [
        [
            (i, y * c.down + v, x * c.across + h)
            for i, c in enumerate(components)
            for v in range(c.down)
            for h in range(c.across)
        ]
        for y in range(rows)
        for x in range(columns)
    ]


def scan_of(components, mcus, restart_interval=0, dht=None):
    """A scan's header and its entropy-coded data; luma uses table 0, all else table 1."""
    tables = {key: codes_of(*value) for key, value in tables_of(dht or usual_tables()).items()}
    numbers = [0 if component.identifier == 1 else 1 for component in components]
    out, bits, predictors, count = bytearray(), [], [0] * len(components), 0
    for index, mcu in enumerate(mcus):
        if restart_interval and index and index % restart_interval == 0:
            out += packed("".join(bits)) + bytes([0xFF, 0xD0 + count % 8])
            bits, predictors, count = [], [0] * len(components), count + 1
        for i, y, x in mcu:
            block = components[i].blocks[y, x]
            bits.append(_block_bits(block, predictors[i], tables[numbers[i]], tables[16 + numbers[i]]))
            predictors[i] = int(block[0])
    out += packed("".join(bits))
    header = bytes([len(components)])
    for component, number in zip(components, numbers, strict=True):
        header += bytes([component.identifier, 17 * number])
    return 0xDA, header + b"\0\x3f\0" + bytes(out)


def frame_of(components, height, width, precision=8, tables=()):
    """The content of a frame header; `tables` numbers each component's quantization table."""
    content = bytes([precision]) + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([len(components)])
    for i, component in enumerate(components):
        table = tables[i] if tables else 0
        content += bytes([component.identifier, 16 * component.across + component.down, table])
    return content


def quantization_of(table, number=0, *, wide=False):
    """The content of a DQT segment; `wide` tables have 16 bits an entry."""
    values = np.asarray(table)[ZIGZAG]
    return bytes([16 * wide + number]) + values.astype(">u2" if wide else "u1").tobytes()


def write(components, height, width, *, restart_interval=0, separate=False, wide=False, colors=(JFIF,), dht=None):
    """A whole file. `separate`: each component in its own scan. All components share one quantization table."""
    parts = [(0xD8, b""), *colors, (0xDB, quantization_of(components[0].quantization, wide=wide))]
    parts.append((0xC0, frame_of(components, height, width)))
    parts.append((0xC4, dht or usual_tables()))
    if restart_interval:
        parts.append((0xDD, restart_interval.to_bytes(2, "big")))
    if separate:
        most = max(c.across for c in components), max(c.down for c in components)
        for component in components:
            rows = ceiling(ceiling(height * component.down, most[1]), 8)
            columns = ceiling(ceiling(width * component.across, most[0]), 8)
            parts.append(scan_of([component], mcus_of([component], rows, columns), restart_interval, dht))
    else:
        rows, columns = ceiling(height, 8), ceiling(width, 8)
        parts.append(scan_of(components, mcus_of(components, rows, columns), restart_interval, dht))
    return joined([*parts, (0xD9, b"")])


# --- reading -----------------------------------------------------------------------------------------------------


class _Bits:
    """The bits of one restart interval, and the codes in them."""

    def __init__(self, content):
        self.bits = "".join(format(byte, "08b") for byte in content.replace(b"\xff\0", b"\xff"))
        self.position = 0

    def take(self, count):
        if self.position + count > len(self.bits):
            raise DamagedError("the data end")
        self.position += count
        return self.bits[self.position - count : self.position]

    def symbol(self, table):
        code, length = 0, 0
        while length < 16:
            code, length = 2 * code + int(self.take(1)), length + 1
            if (code, length) in table:
                return table[code, length]
        raise DamagedError("no such code")

    def value(self, size):
        if size == 0:
            return 0
        value = int(self.take(size), 2)
        return value if value >> (size - 1) else value + 1 - (1 << size)


def _read_block(bits, predictor, dc, ac):
    block, k = np.zeros(64, int), 1
    block[0] = predictor + bits.value(bits.symbol(dc))
    while k < 64:
        run, size = divmod(bits.symbol(ac), 16)
        if size == 0 and run != 15:
            break
        k += run
        if k > 63:
            raise DamagedError("coefficients pass the end of the block")
        block[ZIGZAG[k]] = bits.value(size)
        k += 1
    return block


def read(data):
    """The dequantized coefficients of an interleaved file: {component number: (rows, columns, 64)}."""
    quantization, tables, interval = {}, {}, 0
    for marker, content in segments(data):
        if marker == 0xDB:
            for start in range(0, len(content), 65):
                quantization[content[start]] = np.zeros(64, int)
                quantization[content[start]][ZIGZAG] = list(content[start + 1 : start + 65])
        elif marker == 0xC4:
            tables |= {key: symbols_of(*table) for key, table in tables_of(content).items()}
        elif marker == 0xDD:
            interval = int.from_bytes(content, "big")
        elif marker == 0xC0:
            frame = content
        elif marker == 0xDA:
            scan = content
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    fields = [frame[6 + 3 * i : 9 + 3 * i] for i in range(frame[5])]
    sampling = [(1, 1)] if len(fields) == 1 else [divmod(field[1], 16) for field in fields]
    most = max(across for across, _ in sampling), max(down for _, down in sampling)
    rows, columns = ceiling(height, 8 * most[1]), ceiling(width, 8 * most[0])
    components = [
        Component(field[0], across, down, np.zeros((rows * down, columns * across, 64), int), quantization[field[2]])
        for field, (across, down) in zip(fields, sampling, strict=True)
    ]
    intervals = _intervals(scan[4 + 2 * len(fields) :])
    mcus = mcus_of(components, rows, columns)
    step = interval or len(mcus)
    for number, start in enumerate(range(0, len(mcus), step)):
        bits, predictors = _Bits(intervals[number]), [0] * len(components)
        for mcu in mcus[start : start + step]:
            for i, y, x in mcu:
                dc, ac = divmod(scan[2 + 2 * i], 16)
                block = _read_block(bits, predictors[i], tables[dc], tables[16 + ac])
                predictors[i] = block[0]
                components[i].blocks[y, x] = block
    return {i: component.blocks * component.quantization for i, component in enumerate(components)}


def _intervals(content):
    """Split entropy-coded data at restart markers."""
    results, start = [], 0
    for i in range(len(content) - 1):
        if content[i] == 0xFF and 0xD0 <= content[i + 1] <= 0xD7:
            results.append(content[start:i])
            start = i + 2
    return [*results, content[start:]]
