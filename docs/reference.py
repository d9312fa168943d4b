"""Write the pages of the API reference: one for each module that users import from, one for each name in it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.public_names import FFCV, PUBLIC

__all__ = ["public_names", "write_reference"]

#: Modules in the order of the reference; a name of several modules is listed in the first. Other modules follow.
_ORDER = (
    *("gpubeton.loader", "gpubeton.writer", "gpubeton.fields", "gpubeton.fields.decoders", "gpubeton.transforms"),
    "gpubeton.recipes",
    *("gpubeton.traversal_order", "gpubeton.pipeline", "gpubeton.reader", "gpubeton.format", "gpubeton.libffcv"),
)
_LAST = ("gpubeton.errors",)


def public_names() -> dict[str, tuple[str, Any]]:
    """List the public names.

    Returns
    -------
    dict of str to tuple of (str, object)
        Full name, ``gpubeton.loader.Loader``: the module to import it from, and the object. Each object is listed
        once.
    """
    found: dict[str, tuple[str, Any]] = {}
    seen: set[int] = set()
    for module in _modules():
        for name, thing in _exported(module):
            if id(thing) not in seen and getattr(thing, "__module__", module).startswith("gpubeton"):
                seen.add(id(thing))
                found[f"{module}.{name}"] = (module, thing)
    return found


def write_reference(folder: Path) -> None:
    """Write the pages.

    Parameters
    ----------
    folder : Path
        The folder for the pages. Unchanged pages are not written, so that Sphinx need not read them again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = public_names()
    modules = list(dict.fromkeys(module for module, _ in names.values()))
    pages = {"index": "\n".join([_heading("API reference"), *_listed(modules, modules)])}
    for module in modules:
        own = [full.rpartition(".")[2] for full, (place, _) in names.items() if place == module]
        pages[module] = _module_page(module, own)
    for full, (module, thing) in names.items():
        pages[full] = _name_page(full, module, thing)
    for page, text in pages.items():
        path = folder / f"{page}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def _modules() -> list[str]:
    first = [module for module in _ORDER if module in PUBLIC]
    return [*first, *(module for module in PUBLIC if module not in (*first, *_LAST)), *_LAST]


def _exported(module: str) -> Iterator[tuple[str, Any]]:
    found = importlib.import_module(module)
    for name in getattr(found, "__all__", FFCV.get(module.removeprefix("gpubeton."), {})):
        yield name, getattr(found, name)


def _module_page(module: str, names: list[str]) -> str:
    # Long names may break after their dots.
    lines = [_heading(module.replace(".", ".\u200b")), f".. automodule:: {module}", "   :no-members:", ""]
    lines += [f".. currentmodule:: {module}", "", *_listed(names, [f"{module}.{name}" for name in names])]
    return "\n".join(lines)


def _listed(names: list[str], pages: list[str]) -> list[str]:
    """List names with the first sentence of each, and put their pages into the sidebar."""
    table = [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""]
    return [*table, ".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""]


def _name_page(full: str, module: str, thing: Any) -> str:
    name = full.rpartition(".")[2]
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        directive, options = "autoexception", ["   :show-inheritance:"]
    elif inspect.isclass(thing):
        directive, options = "autoclass", ["   :members:", "   :member-order: bysource"]
        if _inherits_what_has_no_page(thing):
            options.append("   :inherited-members:")
    else:
        directive, options = ("autofunction" if callable(thing) else "autodata"), []
    return "\n".join([_heading(name), f".. currentmodule:: {module}", "", f".. {directive}:: {name}", *options, ""])


def _inherits_what_has_no_page(thing: type) -> bool:
    """True if a class has methods of a base class without a page; operations share theirs."""
    from gpubeton.pipeline.operation import Operation

    shown = {id(other) for _, other in public_names().values()}
    own = [base for base in thing.__mro__[1:] if base.__module__.startswith("gpubeton") and id(base) not in shown]
    return bool(own) and not issubclass(thing, Operation)


def _heading(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n\n"
