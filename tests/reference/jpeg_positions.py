"""Where each MCU of a baseline JPEG begins, and the DC values before it: decoded bit by bit, as in T.81."""

from __future__ import annotations


def _word(data, at):
    return 256 * data[at] + data[at + 1]


def _codes(lengths, symbols):
    """The symbol of each code, which is a text of bits (Annex C)."""
    table, code, symbols = {}, 0, iter(symbols)
    for length, count in enumerate(lengths, 1):
        for _ in range(count):
            table[format(code, f"0{length}b")] = next(symbols)
            code += 1
        code *= 2
    return table


class _Bits:
    """The bits of a scan, and where in the stuffed data each of them is."""

    def __init__(self, data, at):
        self.bits, self.places = [], []
        while True:
            byte = data[at]
            if byte == 0xFF and data[at + 1] != 0:
                break
            self.bits += format(byte, "08b")
            self.places += range(8 * at, 8 * at + 8)
            at += 2 if byte == 0xFF else 1
        self.at = 0

    def symbol(self, table):
        for length in range(1, 17):
            code = "".join(self.bits[self.at : self.at + length])
            if code in table:
                self.at += length
                return table[code]
        raise AssertionError(code)

    def number(self, size):
        bits = "".join(self.bits[self.at : self.at + size])
        self.at += size
        if not size:
            return 0
        return int(bits, 2) if bits[0] == "1" else int(bits, 2) - 2**size + 1


def mcu_positions(data):
    """Position of the first bit of each MCU, counted from the first byte of `data`, and the three DC values before."""
    tables, components, scan = {}, {}, None
    at = 2
    while scan is None:
        marker, size = data[at + 1], _word(data, at + 2)
        body = data[at + 4 : at + 2 + size]
        if marker == 0xC4:
            while body:
                count = sum(body[1:17])
                tables[body[0]] = _codes(body[1:17], body[17 : 17 + count])
                body = body[17 + count :]
        elif marker in (0xC0, 0xC1):
            height, width = _word(body, 1), _word(body, 3)
            components = {body[6 + 3 * i]: divmod(body[7 + 3 * i], 16) for i in range(body[5])}
        elif marker == 0xDA:
            scan = [(body[1 + 2 * i], body[2 + 2 * i]) for i in range(body[0])]
        at += 2 + size
    if len(components) == 1:
        components = dict.fromkeys(components, (1, 1))
    across, down = (max(component[i] for component in components.values()) for i in (0, 1))
    bits, values, results = _Bits(data, at), [0, 0, 0], []
    for _ in range(-(-width // (8 * across)) * -(-height // (8 * down))):
        results.append((bits.places[bits.at], tuple(values)))
        for i, (name, selectors) in enumerate(scan):
            for _ in range(components[name][0] * components[name][1]):
                values[i] += bits.number(bits.symbol(tables[selectors >> 4]))
                k = 1
                while k < 64:
                    run, size = divmod(bits.symbol(tables[16 + selectors % 16]), 16)
                    if (run, size) == (0, 0):
                        break
                    bits.number(size)
                    k += run + 1
    assert len(bits.bits) - bits.at < 8
    return results
