"""The loaders that are compared on a GPU, one module each; `benchmarks.gpu.contenders.service` runs them."""

from __future__ import annotations
