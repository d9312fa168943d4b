"""Plans: what will be done for a batch, decided and not yet done. Nothing here opens a file."""

from __future__ import annotations
