"""The loaders that are compared; each runs in its own process, some with another interpreter."""

from __future__ import annotations
