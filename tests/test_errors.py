from __future__ import annotations

import builtins
import inspect
import pickle
import re

import pytest

from gpubeton import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
]


def test_the_tree_in_the_documentation_is_the_tree_of_the_classes():
    drawn = re.findall(r"^    ([|` -]*)(\w+Error)(?: {2,}(\w+Error))?", errors.__doc__, re.MULTILINE)
    parents: list[str] = []
    for indent, name, builtin in drawn:
        depth = len(indent) // 3
        del parents[depth:]
        error = getattr(errors, name)
        if parents:
            assert issubclass(error, getattr(errors, parents[-1]))
            assert getattr(errors, parents[-1]) in error.__bases__
        if builtin:
            assert getattr(builtins, builtin) in error.__bases__
        parents.append(name)
    assert sorted(name for _, name, _ in drawn) == sorted(error.__name__ for error in CLASSES)
    assert sorted(errors.__all__) == sorted(error.__name__ for error in CLASSES)


@pytest.mark.parametrize("error", CLASSES)
def test_errors_keep_their_message_between_processes(error):
    takes_sample = error in (errors.SampleError, errors.RegionTooLargeError, errors.WorkerDiedError)
    raised = error("a sample was bad", 7) if takes_sample else error("a sample was bad")
    returned = pickle.loads(pickle.dumps(raised))
    assert type(returned) is error
    assert str(returned) == str(raised) == "a sample was bad"
    assert getattr(returned, "sample", None) == (7 if takes_sample else None)


def test_a_bad_image_error_carries_samples_and_reasons():
    raised = errors.BadImageError("two images", [3, 5], ["truncated", "12 bits"])
    returned = pickle.loads(pickle.dumps(raised))
    assert (returned.samples, returned.reasons) == ((3, 5), ("truncated", "12 bits"))


def test_a_storage_error_keeps_the_number_of_the_system():
    assert errors.StorageError(28, "full").errno == 28
