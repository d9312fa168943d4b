"""Write ``.beton`` files: encode in several processes, place samples in order, show the file only when it is complete.

One process encodes a chunk of samples and keeps its bytes. The calling process learns only their sizes, and decides in
the order of the samples where they go; the encoding process writes them there. So no image passes through a pipe, and
the bytes of the file do not depend on the number of processes.
"""

from __future__ import annotations
