// half.cuh -- half floats as their 16 bits. NVRTC comes without cuda_fp16.h, and this is all that the kernels need of it.
#pragma once

#ifndef GPUBETON_HALF

static __device__ __forceinline__ float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// To nearest, ties to even.
static __device__ __forceinline__ unsigned short float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#endif

static __device__ __forceinline__ float bfloat16_to_float(unsigned short bits) {
    return __uint_as_float((unsigned)bits << 16);
}

// To nearest, ties to even. Architectures before sm_80 have no instruction for it.
static __device__ __forceinline__ unsigned short float_to_bfloat16(float value) {
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
