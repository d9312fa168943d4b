"""Checks of what the design assumes about a GPU and nvJPEG, or protects against, each with a verdict."""

from __future__ import annotations
