"""What executors have to do, written plainly in float64, for tests to hold them to."""

from __future__ import annotations
