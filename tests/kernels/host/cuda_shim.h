// cuda_shim.h -- what g++ lacks to compile the files of kernels/ as they are, and to run them thread after thread.
//
// A launch runs the threads of a block one after another, in the order asked for, and blocks too; but if that order is
// random, several blocks at a time. What CUDA leaves open (which block, which thread, which atomic comes first) is
// therefore open here too, and a kernel whose result depends on it shows. Barriers are those of kernels/steps.cuh, whose
// host version is at the end of this file.
#pragma once

#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __constant__ static const
// One block at a time runs on a host thread.
#define __shared__ static thread_local
#define __align__(bytes) alignas(bytes)

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(8) int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(4) uchar4 { unsigned char x, y, z, w; };
struct __align__(4) ushort2 { unsigned short x, y; };
struct __align__(8) ushort4 { unsigned short x, y, z, w; };

static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;
static const int warpSize = 32;

// --- arithmetic ---------------------------------------------------------------------------------------------------

template <class T>
static inline T min(T a, T b) { return b < a ? b : a; }
template <class T>
static inline T max(T a, T b) { return a < b ? b : a; }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }

template <class To, class From>
static inline To same_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the size");
    To result;
    std::memcpy(&result, &value, sizeof result);
    return result;
}

static inline float __int_as_float(int bits) { return same_bits<float>(bits); }
static inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static inline int __float_as_int(float value) { return same_bits<int>(value); }
static inline unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }

static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __double2float_rn(double a) { return (float)a; }
static inline float __int2float_rn(int a) { return (float)a; }
static inline float __uint2float_rn(unsigned a) { return (float)a; }
static inline int __float2int_rn(float a) { return (int)std::nearbyint(a); }
static inline int __float2int_rz(float a) { return (int)a; }
static inline int __float2int_rd(float a) { return (int)std::floor(a); }
static inline unsigned __float2uint_rn(float a) { return (unsigned)std::nearbyint(a); }
static inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }

// a * b + c, rounded down. The product is exact in double; `error` is what rounding the sum to double lost.
static inline float __fmaf_rd(float a, float b, float c) {
    double product = (double)a * b;
    double sum = product + c;
    double part = sum - product;
    double error = (product - (sum - part)) + (c - part);
    float result = (float)sum;
    if (result > sum || (result == sum && error < 0)) result = std::nextafterf(result, -INFINITY);
    return result;
}

static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz((unsigned)a); }

// Byte i of the result is the byte that digit i of `selector` names: 0 to 3 in `low`, 4 to 7 in `high`.
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    uint64_t both = ((uint64_t)high << 32) | low;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned digit = (selector >> (4 * i)) & 15;
        unsigned byte = (unsigned)(both >> (8 * (digit & 7))) & 0xff;
        if (digit & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((((uint64_t)high) << 32) | low) >> (shift & 31));
}

// --- memory -------------------------------------------------------------------------------------------------------

template <class T>
static inline T __ldg(const T* address) { return *address; }
template <class T>
static inline T __ldcs(const T* address) { return *address; }
template <class T>
static inline void __stcs(T* address, T value) { *address = value; }

// Launches on different streams run on different host threads.
template <class T>
static inline T atomicAdd(T* address, T value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
static inline float atomicAdd(float* address, float value) {
    unsigned* word = (unsigned*)address;
    unsigned seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &seen, __float_as_uint(__uint_as_float(seen) + value), true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return __uint_as_float(seen);
}
template <class T>
static inline T atomicMax(T* address, T value) {
    T seen = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (seen < value &&
           !__atomic_compare_exchange_n(address, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return seen;
}
template <class T>
static inline T atomicExch(T* address, T value) { return __atomic_exchange_n(address, value, __ATOMIC_RELAXED); }
template <class T>
static inline T atomicOr(T* address, T value) { return __atomic_fetch_or(address, value, __ATOMIC_RELAXED); }

// --- half floats, see kernels/half.cuh ------------------------------------------------------------------------------

#define GPUBETON_HALF
static inline float half_to_float(unsigned short bits) {
    unsigned sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3ffu;
    if (exponent == 0) {
        float small = (float)fraction * 0x1p-24f;
        return sign ? -small : small;
    }
    unsigned wide = exponent == 31 ? 255 : exponent + 112;
    return __uint_as_float(sign | (wide << 23) | (fraction << 13));
}
static inline unsigned short float_to_half(float value) {
    unsigned bits = __float_as_uint(value), sign = (bits >> 16) & 0x8000u;
    float size = std::fabs(value);
    if (!(size < 65520.0f)) return (unsigned short)(size != size ? 0x7fffu : sign | 0x7c00u);
    // Below 2**-14 half floats are evenly spaced: adding 1/2 leaves exactly their multiples in the fraction.
    if (size < 0x1p-14f) return (unsigned short)(sign | (__float_as_uint(size + 0.5f) - 0x3f000000u));
    unsigned body = (bits & 0x7fffffffu) - (112u << 23);
    return (unsigned short)(sign | ((body + 0xfffu + ((body >> 13) & 1)) >> 13));
}

// --- the order of threads, and launches -------------------------------------------------------------------------------

namespace host {

enum Order { FORWARD = 0, REVERSED = 1, RANDOM = 2 };

// Numbers 0 .. count - 1, each once: in order, backwards, or along a random cycle.
class Sequence {
  public:
    Sequence(unsigned count, int order, unsigned seed) : count_(count), order_(order) {
        uint64_t mixed = (seed + 1ull) * 0x9e3779b97f4a7c15ull;
        mixed ^= mixed >> 29;
        mixed *= 0xbf58476d1ce4e5b9ull;
        mixed ^= mixed >> 32;
        if (order != RANDOM || count < 2) return;
        start_ = (unsigned)(mixed % count);
        // A step without a common factor meets every number; xor-shuffling pairs breaks up its evenness.
        step_ = (unsigned)((mixed >> 16) % count) | 1;
        while (gcd(step_, count) != 1) step_ += 2;
        flip_ = (mixed >> 50) & 1;
    }
    unsigned operator[](unsigned i) const {
        if (order_ == FORWARD) return i;
        if (order_ == REVERSED) return count_ - 1 - i;
        unsigned place = (unsigned)((start_ + (uint64_t)i * step_) % count_);
        return flip_ && (place | 1) < count_ ? place ^ 1 : place;
    }

  private:
    static unsigned gcd(unsigned a, unsigned b) { return b == 0 ? a : gcd(b, a % b); }
    unsigned count_, start_ = 0, step_ = 1;
    int order_;
    bool flip_ = false;
};

// How the steps of the running block are to be ordered.
struct Running {
    int order;
    unsigned seed;
    bool whole_block_is_done;
};
inline thread_local Running running;

template <class T>
struct Letter;
template <class T>
struct Letter<T*> { static const char value = 'P'; };
template <>
struct Letter<int> { static const char value = 'i'; };
template <>
struct Letter<unsigned> { static const char value = 'I'; };
template <>
struct Letter<float> { static const char value = 'f'; };

template <class... Parameters>
struct Letters { static constexpr char value[] = {Letter<Parameters>::value..., '\0'}; };

template <class... Parameters>
const char* letters_of(void (*)(Parameters...)) { return Letters<Parameters...>::value; }

// Denormal numbers count in the kernels; a library loaded by the same process may have switched them off.
class Denormals {
  public:
#if defined(__SSE__)
    Denormals() : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(before_ & ~0x8040u); }
    ~Denormals() { __builtin_ia32_ldmxcsr(before_); }

  private:
    unsigned before_;
#else
    Denormals() {}
#endif
};

// Run some blocks, those that `next` gives.
template <class Function>
void run_blocks(const unsigned grid[3], const unsigned block[3], int order, unsigned seed, std::atomic<unsigned>& next,
                Function run) {
    Denormals denormals;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    unsigned blocks = grid[0] * grid[1] * grid[2], threads = block[0] * block[1] * block[2];
    Sequence block_order(blocks, order, seed);
    for (unsigned i; (i = next++) < blocks;) {
        unsigned b = block_order[i];
        blockIdx = {b % grid[0], b / grid[0] % grid[1], b / grid[0] / grid[1]};
        running = {order, seed + b, false};
        Sequence thread_order(threads, order, seed + b);
        for (unsigned j = 0; j < threads && !running.whole_block_is_done; j++) {
            unsigned t = thread_order[j];
            threadIdx = {t % block[0], t / block[0] % block[1], t / block[0] / block[1]};
            run();
        }
    }
}

// So many blocks run at a time if their order is random.
static const int PARALLEL = 4;

template <class Function>
void each_block(const unsigned grid[3], const unsigned block[3], int order, unsigned seed, Function run) {
    std::atomic<unsigned> next{0};
    std::vector<std::thread> others;
    for (int i = 1; order == RANDOM && i < PARALLEL; i++)
        others.emplace_back([&] { run_blocks(grid, block, order, seed, next, run); });
    run_blocks(grid, block, order, seed, next, run);
    for (std::thread& other : others) other.join();
}

template <class... Parameters, std::size_t... Index>
void launch(void (*kernel)(Parameters...), const unsigned grid[3], const unsigned block[3], void** arguments,
            int order, unsigned seed, std::index_sequence<Index...>) {
    each_block(grid, block, order, seed, [&] { kernel(*(Parameters*)arguments[Index]...); });
}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), const unsigned grid[3], const unsigned block[3], void** arguments,
            int order, unsigned seed) {
    launch(kernel, grid, block, arguments, order, seed, std::index_sequence_for<Parameters...>());
}

}  // namespace host

// Arguments as for cudaLaunchKernel: the address of each. `letters_of_` names their types as Python's struct does.
#define EXPORT_KERNEL(kernel)                                                                                          \
    extern "C" void run_##kernel(const unsigned grid[3], const unsigned block[3], void** arguments, int order,         \
                                 unsigned seed) {                                                                      \
        host::launch(kernel, grid, block, arguments, order, seed);                                                     \
    }                                                                                                                  \
    extern "C" const char* letters_of_##kernel() { return host::letters_of(kernel); }

// --- steps, see kernels/steps.cuh ------------------------------------------------------------------------------------

#define GPUBETON_STEPS
// Whichever thread of a block comes first runs the block's steps for all of them.
static inline bool block_is_done() {
    bool done = host::running.whole_block_is_done;
    host::running.whole_block_is_done = true;
    return done;
}
template <class Step>
static inline void block_step(Step step) {
    unsigned threads = blockDim.x;
    host::Sequence order(threads, host::running.order, ++host::running.seed);
    for (unsigned i = 0; i < threads; i++) step((int)order[i]);
}
template <class Step>
static inline void each_warp(Step step) {
    unsigned warps = blockDim.x / 32;
    host::Sequence order(warps, host::running.order, ++host::running.seed);
    for (unsigned i = 0; i < warps; i++) step((int)order[i]);
}
template <class Step>
static inline void warp_step(Step step) {
    host::Sequence order(32, host::running.order, ++host::running.seed);
    for (unsigned i = 0; i < 32; i++) step((int)order[i]);
}
