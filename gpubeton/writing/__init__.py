"""Writing ``.beton`` files: encode in several processes, place in order, show the result only when it is whole.

A chunk of samples is encoded by one process, which keeps the bytes. The
calling process learns their sizes only and decides, in the order of the
samples, where they go; the process that has them writes them there. So no
image passes through a pipe, and the file is the same to the byte however many
processes there are.
"""

from __future__ import annotations
