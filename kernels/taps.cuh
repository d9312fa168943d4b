// taps.cuh -- the source pixels of each output column and row of an image, and their weights.
//
// Axis 0 is across (output columns), axis 1 down. The weights of one tap for all columns are neighbors in memory, because
// resample.cuh reads one output column per lane.
//
// The same operations in double as in gpubeton/_cpu/taps.py, so both round to the same weights. Products and sums are
// intrinsics: the compiler would fuse plain ones, which rounds once less.
#pragma once

#include "draw.cuh"

enum Rule { BILINEAR, AREA, ANTIALIAS, AREA_ENLARGING, NEAREST, BICUBIC };

// OpenCV ignores parts of a source pixel that are smaller than this.
#define SLIVER 1e-3

// Weights are 16-bit fractions. Those of bicubic may be negative, or more than one: with SIGNED_WEIGHTS, which is for bicubic
// alone, they have a sign and 14 bits after the point. REACH: how far the filters of antialias and bicubic reach, unstretched.
#ifdef SIGNED_WEIGHTS
typedef short Weight;
enum { WHOLE = 16384, REACH = 2 };
#else
typedef unsigned short Weight;
enum { WHOLE = 65536, REACH = 1 };
#endif

// The taps of one output pixel: all that is needed to compute any of its weights.
struct PixelTaps {
    int first, count;
    // Two taps, or an area: the first weight if it differs, the last if it differs, and those between.
    double head, part, tail;
    int has_head, inner;
    // A triangle or a cubic (stretch > 0): its center, how much it is stretched, and the sum of its weights, by which they
    // are divided.
    double center, stretch, total;
};

static __device__ __forceinline__ double filter(const PixelTaps& taps, int k) {
    double place = __dadd_rn(__dsub_rn((double)(taps.first + k), taps.center), 0.5);
    double x = fabs(__ddiv_rn(place, taps.stretch));
    if (REACH == 1) return max(0.0, __dsub_rn(1.0, x));
    // Keys' cubic with a = -0.5.
    if (x < 1.0) return __dadd_rn(__dmul_rn(__dmul_rn(__dsub_rn(__dmul_rn(1.5, x), 2.5), x), x), 1.0);
    if (x >= 2.0) return 0.0;
    return __dmul_rn(__dsub_rn(__dmul_rn(__dadd_rn(__dmul_rn(__dsub_rn(x, 5.0), x), 8.0), x), 4.0), -0.5);
}

static __device__ __forceinline__ double weight(const PixelTaps& taps, int k) {
    if (taps.stretch > 0.0) return __ddiv_rn(filter(taps, k), taps.total);
    if (k < taps.has_head) return taps.head;
    return k - taps.has_head < taps.inner ? taps.part : taps.tail;
}

static __device__ PixelTaps two_taps(int position, double fraction, int size) {
    PixelTaps taps = {};
    taps.first = position;
    taps.count = position + 1 < size && fraction > 0.0 ? 2 : 1;
    taps.head = __dsub_rn(1.0, fraction);
    taps.has_head = 1;
    taps.tail = fraction;
    return taps;
}

static __device__ PixelTaps bilinear(int index, double scale, int size) {
    double center = __dsub_rn(__dmul_rn(__dadd_rn(index, 0.5), scale), 0.5);
    center = min(max(center, 0.0), __dsub_rn(size, 1.0));
    int first = (int)center;
    return two_taps(first, __dsub_rn(center, first), size);
}

// OpenCV rounds twice, which matters where an output pixel ends at a source pixel's border. A fraction of almost one
// becomes one in float, which counts as zero.
static __device__ PixelTaps area_enlarging(int index, int size, int output) {
    double inverse = __ddiv_rn(output, size);
    int first = (int)floor(__dmul_rn(index, __ddiv_rn(1.0, inverse)));
    double fraction = __double2float_rn(__dsub_rn(index + 1, __dmul_rn(first + 1, inverse)));
    fraction = fraction <= 0.0 ? 0.0 : __dsub_rn(fraction, floor(fraction));
    if (first >= size - 1) {
        first = size - 1;
        fraction = 0.0;
    }
    return two_taps(first, fraction, size);
}

static __device__ PixelTaps area(int index, double scale, int size) {
    double start = __dmul_rn(index, scale);
    double stop = __dadd_rn(start, scale);
    double cell = min(scale, __dsub_rn(size, start));
    PixelTaps taps = {};
    taps.part = __ddiv_rn(1.0, cell);
    int last = min((int)floor(stop), size - 1);
    int whole = min((int)ceil(start), last);
    double before = __dsub_rn(whole, start), after = __dsub_rn(stop, last);
    taps.has_head = before > SLIVER;
    taps.head = __dmul_rn(before, taps.part);
    taps.first = whole - taps.has_head;
    taps.inner = last - whole;
    taps.tail = __dmul_rn(min(min(after, 1.0), cell), taps.part);
    taps.count = taps.has_head + taps.inner + (after > SLIVER);
    return taps;
}

static __device__ PixelTaps antialias(int index, double scale, int size) {
    PixelTaps taps = {};
    taps.stretch = max(scale, 1.0);
    double support = __dmul_rn(REACH, taps.stretch);
    taps.center = __dmul_rn(__dadd_rn(index, 0.5), scale);
    taps.first = max((int)__dadd_rn(__dsub_rn(taps.center, support), 0.5), 0);
    taps.count = min((int)__dadd_rn(__dadd_rn(taps.center, support), 0.5), size) - taps.first;
#pragma unroll 1
    for (int k = 0; k < taps.count; k++) taps.total = __dadd_rn(taps.total, filter(taps, k));
    return taps;
}

// In whole numbers: a center on the border of two pixels belongs to the second.
static __device__ PixelTaps nearest(int index, int size, int output) {
    PixelTaps taps = {};
    taps.first = (int)((2ll * index + 1) * size / (2ll * output));
    taps.count = 1;
    taps.head = 1.0;
    taps.has_head = 1;
    return taps;
}

static __device__ PixelTaps taps_of(int rule, int index, int size, int output) {
    double scale = __ddiv_rn(size, output);
    if (rule == BILINEAR) return bilinear(index, scale, size);
    if (rule == AREA) return area(index, scale, size);
    if (rule == (REACH == 1 ? ANTIALIAS : BICUBIC)) return antialias(index, scale, size);
    if (rule == NEAREST) return nearest(index, size, output);
    return area_enlarging(index, size, output);
}

// Taps of all output columns and rows.
struct Taps {
    int* first;               // (count, 2, side)             first source pixel, from the crop's first
    unsigned short* weights;  // (count, 2, most_taps, side)  the bits of Weight: `numbers` of them, then zeros up to four
    int* numbers;             // (count, 2, side)             how many; 0 if the crop is wrong or has too many taps
    int* most;                // (count, 2)                   the largest number of them; zeroed by the caller
    int side, most_taps;      // side = max(height, width) of the output
};

// The taps of one output column (axis 0) or row (1).
static __device__ __forceinline__ PixelTaps taps_of_output(const int* draw, int rule, int height, int width, int axis,
                                                           int i) {
    if (draw[RESIZED_HEIGHT] > 0) height = draw[RESIZED_HEIGHT];
    if (draw[RESIZED_WIDTH] > 0) width = draw[RESIZED_WIDTH];
    int resized = axis == 0 ? width : height;
    if (rule == AREA && (draw[HEIGHT] < height || draw[WIDTH] < width)) rule = AREA_ENLARGING;
    // The resized pixel that output pixel i shows; a draw flips before it shifts.
    int index = (int)min(max((long long)i + draw[axis == 0 ? SHIFT_X : SHIFT_Y], 0ll), (long long)(resized - 1));
    if (axis == 0 && draw[FLIP] != 0) index = resized - 1 - index;
    return taps_of(rule, index, draw[axis == 0 ? WIDTH : HEIGHT], resized);
}

// The sum of weights, the first of the largest ones, and its place.
struct Rounded {
    int total, largest, at;
};

static __device__ __forceinline__ void add_weight(Rounded& rounded, int fraction, int k) {
    rounded.total += fraction;
    if (fraction > rounded.largest) {
        rounded.largest = fraction;
        rounded.at = k;
    }
}

// Write weights as 16-bit fractions, `side` apart. Each also rounds what earlier weights left over.
static __device__ __forceinline__ Rounded round_weights(const PixelTaps& taps, unsigned short* column, int side) {
    Rounded rounded = {0, -WHOLE, 0};
    double rest = 0.5;
#pragma unroll 1
    for (int k = 0; k < taps.count; k++) {
        double exact = __dadd_rn(__dmul_rn(weight(taps, k), WHOLE), rest);
        int fraction = (int)floor(exact);
        rest = __dsub_rn(exact, fraction);
        add_weight(rounded, fraction, k);
        column[(long long)k * side] = (unsigned short)fraction;
    }
    return rounded;
}

// Give the largest weight what is missing to one. One itself does not fit into 16 bits; 65535/65536 differs by a 256th of
// a gray level.
static __device__ __forceinline__ void settle(const Rounded& rounded, unsigned short* column, int side) {
    column[(long long)rounded.at * side] = (unsigned short)min(65535, rounded.largest + WHOLE - rounded.total);
}

// Make the taps of one output column or row, for one thread.
static __device__ __forceinline__ void make_taps(const int* draw, int rule, int height, int width, int image, int axis,
                                                 int i, const Taps& taps) {
    if (i >= (axis == 0 ? width : height)) return;
    int line = image * 2 + axis;
    long long place = (long long)line * taps.side + i;
    taps.numbers[place] = 0;
    if (draw[WIDTH] < 1 || draw[HEIGHT] < 1) return;
    PixelTaps made = taps_of_output(draw, rule, height, width, axis, i);
    atomicMax(taps.most + line, made.count);
    if (made.count > taps.most_taps) return;
    taps.first[place] = made.first;
    taps.numbers[place] = made.count;
    unsigned short* column = taps.weights + (long long)line * taps.most_taps * taps.side + i;
    Rounded rounded = round_weights(made, column, taps.side);
#pragma unroll 1
    for (int k = made.count; k < min(4, taps.most_taps); k++) column[(long long)k * taps.side] = 0;
    settle(rounded, column, taps.side);
}
