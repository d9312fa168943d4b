"""A plugin of pytest: what the simulated runtime leaves to Python, and one wait less, if a mutation is asked for.

Kernels are loaded as always; beside each, its build for the host is given to the driver's library. Torch's own kernels
cannot run: the few operations that the loader and the tests use are done by torch on the host, in the stream's order.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from functools import partial

import torch
from torch.utils._pytree import tree_leaves, tree_map

from gpubeton._gpu import kernels
from tests.kernels.host_build import kernels_of
from tests.rehearsal.mutations import MUTATIONS
from tests.simulator.library import library

#: Names the mutation.
VARIABLE = "GPUBETON_MUTATION"

#: Operations for which torch has native kernels, as far as the loader and the tests use them.
_RETURNING = ("add.Tensor", "cat", "index.Tensor", "index_select", "mul.Tensor", "sum")
_WRITING = ("fill_.Scalar",)  # into their first argument

_library = torch.library.Library("aten", "IMPL")  # as long as the process lives


def pytest_configure(config):
    library()
    _register_kernels()
    _do_on_the_host()
    mutation = os.environ.get(VARIABLE)
    if mutation:
        MUTATIONS[mutation]()


def _register_kernels():
    load = kernels.load_machine_code
    driver = ctypes.CDLL("libcuda.so.1")

    def load_with_twin(cupy, kernel, architecture):
        code = load(cupy, kernel, architecture)
        twin, function = kernels_of(kernel)._library, kernels.function_of(kernel)
        letters = getattr(twin, f"letters_of_{function}")
        letters.restype = ctypes.c_char_p
        run = ctypes.cast(getattr(twin, f"run_{function}"), ctypes.c_void_p)
        driver.rehearsal_kernel(code, ctypes.c_uint64(len(code)), function.encode(), run, letters())
        return code

    kernels.load_machine_code = load_with_twin


def _do_on_the_host():
    own_copy = torch.library.get_kernel("aten::copy_", "CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of operations that are there already
        for name in _RETURNING:
            _library.impl(name, partial(_return_from_the_host, _operation(name)), "CUDA")
        for name in _WRITING:
            _library.impl(name, partial(_write_from_the_host, _operation(name)), "CUDA")
        _library.impl("arange.start_out", _arange, "CUDA")
        _library.impl("copy_", partial(_copy, own_copy), "CUDA", with_keyset=True)


def _operation(name):
    operation, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, operation), overload or "default")


def _return_from_the_host(operation, *arguments, **keywords):
    device = next(leaf.device for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.is_cuda)
    return operation(*tree_map(_fetched, arguments), **keywords).to(device)


def _arange(*numbers, out):
    result = torch.arange(*numbers, dtype=out.dtype)
    return out.resize_(result.shape).copy_(result)


def _copy(own_copy, keys, target, source, non_blocking=False):
    """Copies between equal layouts are torch's own, by CUDA's copies."""
    layouts = {(tensor.shape, tensor.stride(), tensor.dtype) for tensor in (target, source)}
    if len(layouts) == 1 and torch.ops.aten.is_non_overlapping_and_dense.default(target):
        return own_copy.call_boxed(keys, target, source, non_blocking)
    if target.is_cuda:
        return _write_from_the_host(torch.ops.aten.copy_.default, target, source)
    return target.copy_(_fetched(source))


def _write_from_the_host(operation, target, *arguments, **keywords):
    fetched = _fetched(target)
    operation(fetched, *tree_map(_fetched, arguments), **keywords)
    _flat(target).copy_(_flat(fetched))
    return target


def _fetched(value):
    """A tensor of the device on the host, in the same layout; copies of other layouts need a kernel, too."""
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        return value
    return _flat(value).cpu().as_strided(value.shape, value.stride())


def _flat(tensor):
    reach = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((reach + 1 if tensor.numel() else 0,), (1,))
