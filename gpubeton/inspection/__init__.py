"""Inspecting ``.beton`` files: summary, values, extraction and verification, as the ``gpubeton`` command shows them."""

from __future__ import annotations

from gpubeton.inspection.contents import Contents, StoredImage
from gpubeton.inspection.extraction import Extraction, extract
from gpubeton.inspection.summary import FieldSummary, ImageSummary, Spread, Summary, summarize
from gpubeton.inspection.verification import Finding, Verification, verify

__all__ = [
    "Contents",
    "Extraction",
    "FieldSummary",
    "Finding",
    "ImageSummary",
    "Spread",
    "StoredImage",
    "Summary",
    "Verification",
    "extract",
    "summarize",
    "verify",
]
