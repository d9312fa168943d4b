"""Every public name is documented in numpydoc's form: parameters, returned values and errors."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any

from numpydoc.validate import validate

from gpubeton import transforms
from tests.public_names import FFCV, PUBLIC

#: Besides the checks of pyproject.toml, which look at every docstring one by one.
CHECKS = {"GL08", "PR01", "PR02", "PR03", "PR07", "PR10", "RT01", "RT03", "YD01"}
#: Those about the parameters of a constructor, where users do not call it.
PARAMETERS = {"PR01", "PR02"}
#: Examples that need a machine or a package that is not here.
NEEDS_MORE = {
    "gpubeton.integrations.accelerate.AccelerateLoader": "accelerate's processes",
    "gpubeton.integrations.lightning.BetonDataModule": "a model",
    "gpubeton.loader.warm_up": "half a minute",
}
#: Transforms that come from nowhere else.
OUR_OWN = {"TransformBoxes"}


def public_names() -> Iterator[tuple[str, Any]]:
    """Give the name and the object of every class, method and function that users may call."""
    seen: set[str] = set()
    for module in PUBLIC:
        result = importlib.import_module(module)
        for name in getattr(result, "__all__", FFCV.get(module.removeprefix("gpubeton."), {})):
            thing = getattr(result, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not thing.__module__.startswith("gpubeton"):
                continue
            for path, part in [(f"{thing.__module__}.{name}", thing), *methods(thing)]:
                if path not in seen:
                    seen.add(path)
                    yield path, part


def names_of_modules() -> list[tuple[str, Any]]:
    """List the classes and functions, without their methods."""
    return [
        (path, thing)
        for path, thing in public_names()
        if path == f"{thing.__module__}.{thing.__qualname__}" and "." not in thing.__qualname__
    ]


def methods(thing: Any) -> Iterator[tuple[str, Any]]:
    """Give the public methods that a class defines; one that overrides another is documented only if it differs."""
    if not inspect.isclass(thing):
        return
    for name, part in vars(thing).items():
        if name.startswith("_") or not callable(getattr(thing, name)) or inspect.isclass(part):
            continue
        inherited = any(hasattr(base, name) for base in thing.__mro__[1:])
        if not inherited:
            yield f"{thing.__module__}.{thing.__name__}.{name}", part


def test_a_public_name_is_documented() -> None:
    faults = []
    for path, thing in public_names():
        checks = CHECKS if users_call(thing) else CHECKS - PARAMETERS
        faults += [f"{path}: {code}: {message}" for code, message in validate(path)["errors"] if code in checks]
    assert faults == []


def test_a_public_class_or_function_has_an_example_that_runs() -> None:
    without, skipped = [], []
    for path, thing in names_of_modules():
        examples = [line for line in (inspect.getdoc(thing) or "").splitlines() if line.lstrip().startswith(">>> ")]
        if users_call(thing):
            without += [path] if not examples else []
            skipped += [path] if path not in NEEDS_MORE and all("+SKIP" in line for line in examples) else []
    assert (without, skipped) == ([], [])


def test_the_list_of_examples_that_need_more_names_no_other() -> None:
    assert set(NEEDS_MORE) - {path for path, _ in names_of_modules()} == set()


def test_a_transform_cites_its_source() -> None:
    documented = {name: inspect.getdoc(getattr(transforms, name)) or "" for name in transforms.__all__}
    sources = "arXiv", "torch", "FFCV", "Pillow"
    silent = {name for name, text in documented.items() if not any(source in text for source in sources)}
    assert silent - OUR_OWN == set()


def users_call(thing: Any) -> bool:
    """Return whether users call it; not so exceptions, enumerations and results of other calls."""
    if inspect.isclass(thing) and issubclass(thing, Enum | Exception):
        return False
    return "Made by" not in (inspect.getdoc(thing) or "")
