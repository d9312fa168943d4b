"""Columns and sizes of the arrays through which the steps of decoding pass their state; `Scratch` has the arrays."""

from __future__ import annotations

from gpubeton.format.layout import ENTRY_DTYPE

# Zero bytes after an interval: missing data read as zeros, and the bit reader may look ahead.
PADDING = 16
# How far one MCU can read past the end of an interval before the decoder checks: 10 blocks of 64 codes of 27 bits.
OVERRUN = 2304

# Bytes of an entry point.
ENTRY_BYTES = ENTRY_DTYPE.itemsize

# Most blocks of an MCU of several components (T.81 B.2.3).
MAX_BLOCKS = 10

# Columns of a block, int64 (MAX_BLOCKS, BLOCK_FIELDS): all that the inner loop needs, so that it looks nothing up. The
# first four are addresses of tables.
DC_LOOKUP = 0
AC_LOOKUP = 1
PAIR_LOOKUP = 2
SKIP_LOOKUP = 3
MULTIPLIERS = 4
PREDICTOR = 5  # address of the component's last DC value
STRIP = 6  # address of the block's samples in the first MCU
STRIP_STEP = 7  # bytes to those of the next MCU
DC_SLOT = 8
AC_SLOT = 9
BLOCK_FIELDS = 10

# Columns of `Scratch.cursor`, int64: first the intervals of an image, then how far the open one is read.
DATA = 0  # address of the JPEG
DATA_SIZE = 1
SCAN_START = 2  # offset of its scan
ENTRIES = 3  # address of an ENTRY_DTYPE for each interval
COUNT = 4  # number of intervals
LENGTH = 5  # MCUs of each but the last
MCUS = 6  # of the image
IS_INDEXED = 7  # 1 if the entry points come from an index
OPEN = 8  # number of the open interval; -1: none
NEXT_MCU = 9  # the first that is not read
WINDOW = 10  # the bit reader, see `entropy`
FILLED = 11
POSITION = 12
END = 13  # address of the byte after the interval's copy
LEAST_LEFT = 14  # bits of the copy that are left after the interval's last MCU
MOST_LEFT = 15
CURSOR_FIELDS = 16
