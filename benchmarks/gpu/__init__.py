"""Measurements on a GPU: what nvJPEG can do, what gpubeton makes of it, and what its peers do on the same bytes."""

from __future__ import annotations
