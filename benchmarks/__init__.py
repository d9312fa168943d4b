"""Benchmarks: gpubeton beside other loaders."""

from __future__ import annotations
