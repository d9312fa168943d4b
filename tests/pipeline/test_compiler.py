from __future__ import annotations

from types import ModuleType

import numba
import numpy as np
import pytest

from gpubeton.libffcv import memcpy
from gpubeton.pipeline.compiler import Compiler

OFFSET = 1


@pytest.fixture(autouse=True)
def settings_of_the_process():
    enabled, threads, numba_threads = Compiler.is_enabled, Compiler.num_threads, numba.get_num_threads()
    yield
    Compiler.is_enabled, Compiler.num_threads = enabled, threads
    numba.set_num_threads(numba_threads)


def adder(amount):
    def add(x):
        return x + amount

    return add


def test_the_same_code_with_the_same_values_is_compiled_once_and_with_others_again():
    first = Compiler.compile(adder(5))
    assert first(4) == 9
    assert Compiler.compile(adder(5)) is first
    assert all(Compiler.compile(adder(amount)) is not first for amount in (6, 5.0, True))
    Compiler.set_enabled(False)
    code = adder(5)
    assert Compiler.compile(code) is code


@pytest.mark.parametrize(("one", "other"), [((5,), (5.0,)), (((5, 1), 2), ((5, True), 2)), (0.0, -0.0)], ids=str)
def test_captured_values_that_are_equal_but_not_the_same_are_compiled_apart(one, other):
    def giver(value):
        def give():
            return value

        return give

    first, second = Compiler.compile(giver(one)), Compiler.compile(giver(other))
    assert (repr(first()), repr(second())) == (repr(one), repr(other))
    assert Compiler.compile(giver(one)) is first


def test_a_changed_global_is_seen(monkeypatch):
    def add_offset(x):
        return x + OFFSET

    assert Compiler.compile(add_offset)(1) == 2
    monkeypatch.setitem(globals(), "OFFSET", 10)
    assert Compiler.compile(add_offset)(1) == 11


def test_a_captured_array_is_compiled_each_time_and_right():
    for values in (np.array([1.0, 2.0]), np.array([3.0, 4.0])):
        assert Compiler.compile(adder(values))(1.0).tolist() == (values + 1).tolist()


def test_a_loop_runs_in_parallel_only_with_several_threads_of_those_that_numba_has():
    Compiler.num_threads = 1
    assert Compiler.get_iterator() is range
    Compiler.num_threads = 2
    assert Compiler.get_iterator() is numba.prange
    Compiler.set_num_threads(0)
    assert 1 <= Compiler.num_threads <= numba.config.NUMBA_NUM_THREADS
    Compiler.set_num_threads(10_000)
    assert Compiler.num_threads == numba.config.NUMBA_NUM_THREADS


def test_more_functions_than_are_remembered_still_compile(monkeypatch):
    monkeypatch.setattr(Compiler, "max_compiled", 2)
    assert [Compiler.compile(adder(amount))(0) for amount in (101, 102, 103, 101)] == [101, 102, 103, 101]


def test_a_function_in_the_last_place_of_the_cache_survives_a_lookup(monkeypatch):
    monkeypatch.setattr(Compiler, "max_compiled", 1)
    Compiler.compile(adder(100))  # all others are forgotten, and this one takes one place
    monkeypatch.setattr(Compiler, "max_compiled", 1 + 4)
    functions = [Compiler.compile(adder(amount)) for amount in (101, 102)]
    for _ in range(2):
        assert [Compiler.compile(adder(amount)) for amount in (101, 102)] == functions


def test_functions_in_use_are_remembered_longest(monkeypatch):
    monkeypatch.setattr(Compiler, "max_compiled", 4)
    used = Compiler.compile(adder(201))
    for amount in range(202, 206):
        Compiler.compile(adder(amount))
        assert Compiler.compile(adder(201)) is used


WEIGHTS = np.array([2.0])


def weighted(x):
    return x * WEIGHTS[0]


@pytest.mark.parametrize("compile_", [Compiler.compile, Compiler.compile_exact])
def test_a_change_in_place_is_seen_once_compiled_functions_are_forgotten(compile_):
    WEIGHTS[0] = 2
    compiled = compile_(weighted)
    assert compiled(1) == 2
    WEIGHTS[0] = 10
    assert compile_(weighted) is compiled
    Compiler.forget()
    assert compile_(weighted)(1) == 10
    assert compile_(weighted) is compile_(weighted)


@pytest.mark.parametrize("compile_", [Compiler.compile, Compiler.compile_exact])
def test_a_change_in_place_is_seen_from_the_next_beginning_on(compile_):
    WEIGHTS[0] = 2
    first, compiled = Compiler.begin(), compile_(weighted)
    assert compiled(1) == 2
    Compiler.begin()
    assert compile_(weighted) is compiled, "nothing has changed"
    Compiler.generation = first
    WEIGHTS[0] = 10
    assert compile_(weighted) is compiled
    Compiler.begin()
    assert compile_(weighted)(1) == 10
    Compiler.generation = first
    assert compile_(weighted) is compiled


SETTINGS = ModuleType("settings")
TABLES = (np.zeros(1),)


def test_changed_attributes_of_modules_and_arrays_read_by_inner_functions_are_noticed():
    def scaled(x):
        return x * SETTINGS.scale

    def summed(x):
        def weight(i):
            return WEIGHTS[i] + TABLES[0][0]

        return x + weight(0)

    for number in (3, 4):
        SETTINGS.scale, WEIGHTS[0] = number, 10 * number
        Compiler.begin()
        assert (Compiler.compile(scaled)(2), Compiler.compile(summed)(2)) == (2 * number, 2 + 10 * number)
    TABLES[0][0] = 1
    Compiler.begin()
    assert Compiler.compile(summed)(2) == 43


def test_changed_attributes_of_modules_in_modules_are_noticed():
    def scaled(x):
        return x * SETTINGS.inner.scale

    SETTINGS.inner = ModuleType("inner")
    SETTINGS.inner.inner = SETTINGS  # as packages have it
    results = []
    for SETTINGS.inner.scale in (3, 4):
        Compiler.begin()
        results.append(Compiler.compile(scaled)(2))
    assert results == [6, 8]


def test_several_signatures_may_be_given():
    signatures = ["int64(int64)", "float64(float64)"]
    assert [Compiler.compile(adder(1), signatures)(x) for x in (1, 1.5)] == [2, 2.5]


def test_functions_of_the_library_are_not_forgotten():
    compiled = Compiler.compile(memcpy)
    Compiler.forget()
    assert Compiler.compile(memcpy) is compiled
