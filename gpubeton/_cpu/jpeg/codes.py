"""Codes of what became of an image, with the reason why the decoder did not decode it."""

from __future__ import annotations

REASONS = {
    (OK := 0): "decoded",
    # libjpeg-turbo or Pillow may still decode it.
    (NOT_BASELINE := 1): "not a baseline JPEG",  # progressive, lossless, arithmetic, hierarchical
    (NOT_YCBCR := 2): "its colors are neither YCbCr nor gray",  # CMYK, RGB or two components
    (ODD_SAMPLING := 3): "its chroma sampling is unusual",  # anything but 4:4:4, 4:2:2, 4:4:0, 4:2:0 and gray
    (ODD_PRECISION := 4): "its samples or quantization tables have more than 8 bits",
    (SEPARATE_SCANS := 5): "its components come in separate scans",
    (MANY_INTERVALS := 11): "it has thousands of restart intervals",  # more than the decoder has memory for
    # It looks damaged; libjpeg-turbo decides.
    (DAMAGED_HEADER := 6): "its headers are damaged",
    (DAMAGED_TABLE := 7): "its Huffman or quantization tables are damaged",
    (DAMAGED_SCAN := 8): "its compressed data are damaged",
    (CUT_SHORT := 9): "it ends before its last marker",
    # Its codec decodes it as a whole.
    (NOT_UNPACKED := 13): "it is a file that is decoded as a whole",
    # Final.
    (WRONG_SIZE := 10): "its own width and height differ from the file's metadata",
    (WRONG_CROP := 12): "its crop box is empty or passes its border",
    (WRONG_CHECKSUM := 14): "its bytes differ from their checksum",
    (NO_MEMORY := 15): "there is not enough memory to make it",
}
