"""Measurements: gpubeton beside its peers."""

from __future__ import annotations
