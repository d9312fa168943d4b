"""Reasons why the decoder did not decode an image."""

from __future__ import annotations

OK = 0
# libjpeg-turbo or Pillow may still decode it.
NOT_BASELINE = 1  # progressive, lossless, arithmetic, hierarchical
NOT_YCBCR = 2  # CMYK, RGB or two components
ODD_SAMPLING = 3  # anything but 4:4:4, 4:2:2, 4:4:0, 4:2:0 and gray
ODD_PRECISION = 4  # 12 bits a sample, 16-bit quantization tables
SEPARATE_SCANS = 5  # one component a scan
MANY_INTERVALS = 11  # more restart intervals than the decoder has memory for
# It looks damaged; libjpeg-turbo decides.
DAMAGED_HEADER = 6
DAMAGED_TABLE = 7
DAMAGED_SCAN = 8
CUT_SHORT = 9
# Its codec decodes it as a whole.
NOT_UNPACKED = 13
# Final.
WRONG_SIZE = 10
WRONG_CROP = 12
WRONG_CHECKSUM = 14
NO_MEMORY = 15

REASONS = {
    OK: "decoded",
    NOT_BASELINE: "not a baseline JPEG",
    NOT_YCBCR: "its colors are neither YCbCr nor gray",
    ODD_SAMPLING: "its chroma sampling is unusual",
    ODD_PRECISION: "its samples or quantization tables have more than 8 bits",
    SEPARATE_SCANS: "its components come in separate scans",
    NOT_UNPACKED: "it is a file that is decoded as a whole",
    MANY_INTERVALS: "it has thousands of restart intervals",
    DAMAGED_HEADER: "its headers are damaged",
    DAMAGED_TABLE: "its Huffman or quantization tables are damaged",
    DAMAGED_SCAN: "its compressed data are damaged",
    CUT_SHORT: "it ends before its last marker",
    WRONG_SIZE: "its own width and height differ from the file's metadata",
    WRONG_CHECKSUM: "its bytes differ from their checksum",
    NO_MEMORY: "there is not enough memory to make it",
    WRONG_CROP: "its crop box is empty or passes its border",
}
