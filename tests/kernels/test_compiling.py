"""What the compiler makes of the package's options and sources."""

from __future__ import annotations

import pytest

from gpubeton._gpu.kernels import OPTIONS
from tests.kernels.compilers import WHY_NONE, compiler
from tools.nvrtc import CompileError

SIMPLE = '#line 1 "kernels/simple.cu"\nextern "C" __global__ void simple(int* out) { *out = blockIdx.x; }\n'

pytestmark = pytest.mark.skipif(compiler() is None, reason=WHY_NONE)


def test_products_are_only_fused_where_a_kernel_asks_for_it():
    source = (
        'extern "C" __global__ void fused(float* x) { x[0] = x[1] * x[2] + x[3]; x[4] = __fmaf_rn(x[5], x[6], x[7]); }'
    )
    code = compiler().compile(source, "fused", "compute_90").code
    assert code.count(b"fma.rn.f32") == 1
    assert code.count(b"mul.rn.f32") + code.count(b"mul.f32") == 1


def test_denormal_numbers_count():
    source = 'extern "C" __global__ void tiny(float* x) { x[0] = __fmaf_rd(x[1], x[2], x[3]); }'
    code = compiler().compile(source, "tiny", "compute_90").code
    assert b"fma.rm.f32" in code
    assert b".ftz" not in code


def test_of_two_options_the_last_counts():
    """CuPy's modules add -ftz=true after the options that they are given: denormal numbers would be 0."""
    source = 'extern "C" __global__ void tiny(float* x) { x[0] = __fmaf_rd(x[1], x[2], x[3]); }'
    assert b"fma.rm.ftz.f32" in compiler().compile(source, "tiny", "compute_90", (*OPTIONS, "-ftz=true")).code


def test_an_error_names_our_file_and_line():
    broken = SIMPLE.replace("blockIdx.x", "\n nothing")
    with pytest.raises(CompileError) as error:
        compiler().compile(broken, "simple", "sm_90")
    assert "simple for sm_90" in str(error.value)
    assert "kernels/simple.cu(2): error" in str(error.value)
    assert '"nothing" is undefined' in str(error.value)


def test_a_warning_is_in_the_log():
    compiled = compiler().compile(SIMPLE.replace("{ ", "{ int unused; "), "simple", "sm_90")
    assert compiled.code[:4] == b"\x7fELF"
    assert "kernels/simple.cu(2)" in compiled.log.replace("kernels/simple.cu(1)", "kernels/simple.cu(2)")
    assert "warning" in compiled.log


@pytest.mark.parametrize(("architecture", "options"), [("sm_30", ()), ("sm_90", ("--no-such-thing",))])
def test_what_the_compiler_does_not_know_is_an_error(architecture, options):
    with pytest.raises(CompileError, match="NVRTC_ERROR_INVALID_OPTION"):
        compiler().compile(SIMPLE, "simple", architecture, options)
