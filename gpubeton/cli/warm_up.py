"""``gpubeton warm-up``: the machine code of loaders, ahead of the first one."""

from __future__ import annotations

from gpubeton.cli.options import Json
from gpubeton.cli.screen import progress, result_console, show_json, size_text

__all__ = ["warm_up"]


def warm_up(json: Json = False) -> None:
    """Compile all machine code that loaders need on this CPU, so that no first batch waits for it; half a minute.

    Run it when a container image or a node is set up. Code for another type of CPU is compiled on that CPU.
    """
    from gpubeton.cpu.warm_up import warm_up as compile_all

    with progress("Compiling") as advance:
        folder = compile_all(advance)
    size = sum(path.stat().st_size for path in folder.iterdir())
    if json:
        show_json({"folder": folder, "bytes": size})
    else:
        result_console().print(f"{folder}: {size_text(size)} of machine code")
