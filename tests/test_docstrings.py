"""Every public name is documented in numpydoc's form: what goes in, what comes out."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from numpydoc.validate import validate

from tests.public_names import FFCV, PUBLIC

#: Besides the checks of pyproject.toml, which look at every docstring one by one.
CHECKS = {"GL08", "PR01", "PR02", "PR03", "PR07", "PR10", "RT01", "RT03", "YD01"}
#: Those about the parameters of a constructor, where nobody calls one.
PARAMETERS = {"PR01", "PR02"}


def public_names() -> Iterator[tuple[str, Any]]:
    """Give the name and the object of every class, method and function that users may call."""
    seen: set[str] = set()
    for module in PUBLIC:
        found = importlib.import_module(module)
        for name in getattr(found, "__all__", FFCV.get(module.removeprefix("gpubeton."), {})):
            thing = getattr(found, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not thing.__module__.startswith("gpubeton"):
                continue
            for path, part in [(f"{thing.__module__}.{name}", thing), *methods(thing)]:
                if path not in seen:
                    seen.add(path)
                    yield path, part


def methods(thing: Any) -> Iterator[tuple[str, Any]]:
    """Give the public methods that a class defines; one that overrides another says what both do only if it differs."""
    if not inspect.isclass(thing):
        return
    for name, part in vars(thing).items():
        if name.startswith("_") or not callable(getattr(thing, name)) or inspect.isclass(part):
            continue
        inherited = any(hasattr(base, name) for base in thing.__mro__[1:])
        if not inherited:
            yield f"{thing.__module__}.{thing.__name__}.{name}", part


@pytest.mark.parametrize(("path", "thing"), [pytest.param(*name, id=name[0]) for name in public_names()])
def test_a_public_name_is_documented(path: str, thing: Any) -> None:
    checks = CHECKS if users_call(thing) else CHECKS - PARAMETERS
    assert [f"{code}: {message}" for code, message in validate(path)["errors"] if code in checks] == []


def users_call(thing: Any) -> bool:
    """Tell whether it is for users to call; not so exceptions, enumerations and what comes out of other calls."""
    if inspect.isclass(thing) and issubclass(thing, Enum | Exception):
        return False
    return "Made by" not in (inspect.getdoc(thing) or "")
