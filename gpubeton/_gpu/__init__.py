"""The GPU executor: nvJPEG decodes, raw kernels augment. The only room that knows CUDA."""

from __future__ import annotations
