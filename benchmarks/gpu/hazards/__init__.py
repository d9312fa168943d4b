"""What the design takes for granted, or guards against, measured on the GPU at hand: each with a verdict."""

from __future__ import annotations
