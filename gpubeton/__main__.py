"""``python -m gpubeton`` is the ``gpubeton`` command."""

from __future__ import annotations

from gpubeton.cli import main

main()
