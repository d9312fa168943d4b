// levels.cuh -- the fixed-point arithmetic of the CPU executor (gpubeton/_cpu/resample.py), one instruction per product.
//
// A sum of levels, each multiplied by a 16-bit weight, is defined as
//
//   (128 + lost + (level * weight >> 8) + (level * weight >> 8) + ...) >> 8
//
// where `lost`, half the number of taps, gives back what the products lose by rounding down. With integers that is a
// multiplication, a shift and an addition for each product, at half the rate of float operations. With floats it is one
// multiply-add: `Sum` is kept between 2**-118 and 2**-117, where neighboring floats are 2**-141 apart. The bits of a level
// in a register are those of the denormal number level * 2**-149. Its product with a weight is exact; adding it to the sum
// and rounding down drops everything below 2**-141, that is 256 * 2**-149: the shift. A sum never gets more than 65535, so
// it stays between those powers of two. The kernels are compiled with --ftz=false; denormal numbers run at full rate.
//
// With SIGNED_WEIGHTS (see taps.cuh), sums are exact:
//
//   (level * weight + level * weight + ... + half) >> 14, limited to 0..255
//
// The same multiply-add makes them: below 2**-125, neighboring floats are 2**-149 apart, as those of levels are. A sum begins
// with 128 levels more, which keeps it positive: the negative weights of a pixel sum to more than -1/2, all of them to one.
#pragma once

struct Sum {
    float value;
};

static __device__ __forceinline__ void add(Sum& sum, unsigned level, float fraction) {
    sum.value = __fmaf_rd(__uint_as_float(level), fraction, sum.value);
}

static __device__ __forceinline__ unsigned word_of(Sum sum) { return __float_as_uint(sum.value); }

#ifdef SIGNED_WEIGHTS

enum { SIGNED_BITS = 14, SIGNED_HALF = 1 << (SIGNED_BITS - 1), ABOVE = 128 };

static __device__ __forceinline__ Sum sum_of_none(int) {
    return {__uint_as_float((unsigned)((ABOVE << SIGNED_BITS) + SIGNED_HALF))};
}

static __device__ __forceinline__ float fraction_of(unsigned short weight) { return __int2float_rn((short)weight); }

static __device__ __forceinline__ unsigned char level_of(Sum sum) {
    return (unsigned char)min(max((int)(word_of(sum) >> SIGNED_BITS) - ABOVE, 0), 255);
}

static __device__ __forceinline__ unsigned four_levels(const Sum* sums) {
    return level_of(sums[0]) | level_of(sums[1]) << 8 | level_of(sums[2]) << 16 | (unsigned)level_of(sums[3]) << 24;
}

#else

// The sum of no products: only the rounding, and what `taps` products lose; at most 127, to keep the sum below 2**16.
static __device__ __forceinline__ Sum sum_of_none(int taps) {
    return {__uint_as_float(0x04800000u + 128u + (unsigned)min(taps / 2, 127))};
}

// A weight for `add`.
static __device__ __forceinline__ float fraction_of(unsigned short weight) { return __uint2float_rn(weight); }

// The level is in bits 8 to 15; the other bits have no meaning.
static __device__ __forceinline__ unsigned char level_of(Sum sum) { return (unsigned char)(word_of(sum) >> 8); }

static __device__ __forceinline__ unsigned four_levels(const Sum* sums) {
    unsigned low = __byte_perm(word_of(sums[0]), word_of(sums[1]), 0x0051);
    unsigned high = __byte_perm(word_of(sums[2]), word_of(sums[3]), 0x0051);
    return __byte_perm(low, high, 0x5410);
}

#endif

static __device__ __forceinline__ void add_four(Sum* sums, unsigned levels, float fraction) {
    for (int i = 0; i < 4; i++) add(sums[i], __byte_perm(levels, 0, 0x4440 + i), fraction);
}

// A sum of 16-bit samples, each times a 16-bit weight, has no rounding but that of its products:
//
//   lost + (sample * weight >> 16) + (sample * weight >> 16) + ...
//
// `lost` is half the number of taps, too, but zero for up to four, as in gpubeton/_cpu/jpeg/ycbcr.py.
static __device__ __forceinline__ int lost_by(int taps, int most) { return most <= 4 ? 0 : min(taps / 2, 127); }

#ifdef SIGNED_WEIGHTS

// Signed weights: of levels, the same exact sum with 8 of its bits after the point; of 16-bit samples, a sum of whole numbers.
// Both are rounded and limited to 16 bits.
static __device__ __forceinline__ Sum sum_from(int) {
    return {__uint_as_float((unsigned)((ABOVE << SIGNED_BITS) + (1 << (SIGNED_BITS - 9))))};
}

static __device__ __forceinline__ unsigned sample_of(Sum sum) {
    return (unsigned)min(max((int)(word_of(sum) >> (SIGNED_BITS - 8)) - (ABOVE << 8), 0), 0xffff);
}

struct SampleSum {
    int value;
};

static __device__ __forceinline__ SampleSum sample_sum_from(int) { return {SIGNED_HALF}; }

static __device__ __forceinline__ int sample_fraction_of(unsigned short weight) { return (short)weight; }

static __device__ __forceinline__ void add(SampleSum& sum, unsigned sample, int weight) { sum.value += (int)sample * weight; }

static __device__ __forceinline__ unsigned sample_of(SampleSum sum) {
    return (unsigned)min(max(sum.value >> SIGNED_BITS, 0), 0xffff);
}

#else

static __device__ __forceinline__ Sum sum_from(int lost) { return {__uint_as_float(0x04800000u + (unsigned)lost)}; }

// A weight as `add` wants it for 16-bit samples; for 8-bit ones, which count times 256, it is `fraction_of`.
static __device__ __forceinline__ float sample_fraction_of(unsigned short weight) {
    return __fmul_rn(fraction_of(weight), 1.0f / 256);
}

typedef Sum SampleSum;

static __device__ __forceinline__ SampleSum sample_sum_from(int lost) { return sum_from(lost); }

static __device__ __forceinline__ unsigned sample_of(Sum sum) { return word_of(sum) & 0xffff; }

#endif
