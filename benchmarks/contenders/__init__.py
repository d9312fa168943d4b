"""The loaders that are compared; each runs in a process of its own, perhaps with an interpreter of its own."""

from __future__ import annotations
