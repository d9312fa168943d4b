// jpeg_taps.cuh -- the taps of JPEGs: as in taps.cuh, and the samples of Cb and Cr of each output column and row.
//
// The same operations as in gpubeton/_cpu/taps.py. libjpeg doubles halved chroma before anything else (3/4 of the nearest
// sample, 1/4 of the next nearest); that and resampling are linear, so both become one set of weights.
#pragma once

#include "jpeg.cuh"
#include "taps.cuh"

// Chroma has axes of its own where it is halved.
enum Axis { LUMA_ACROSS, LUMA_DOWN, CHROMA_ACROSS, CHROMA_DOWN, AXES };

// Taps of all output columns and rows. Samples are counted from the first of the image. The arrays: see `Taps` of taps.cuh,
// with AXES axes.
struct JpegTaps {
    int* first;
    unsigned short* weights;
    int* numbers;
    int* most;
    int side, most_taps;
};

// The taps of one axis of one image.
struct AxisTaps {
    const int *first, *numbers;
    const unsigned short* weights;  // of output sample i and tap k at k * side + i
    int most, side;
};

static __device__ __forceinline__ AxisTaps taps_of_axis(const JpegTaps& taps, int image, int axis) {
    long long line = (long long)image * AXES + axis;
    return {taps.first + line * taps.side, taps.numbers + line * taps.side,
            taps.weights + line * taps.most_taps * taps.side, taps.most[line], taps.side};
}

static __device__ __forceinline__ int chroma_axis(const Jpeg& jpeg, int axis) {
    return (axis == LUMA_ACROSS ? jpeg.luma_across : jpeg.luma_down) == 2 ? axis + CHROMA_ACROSS : axis;
}

// Whether the image can be made: its crop is inside it, and there is room for all taps.
static __device__ __forceinline__ bool is_possible(const Jpeg& jpeg, const int* draw, const JpegTaps& taps, int image) {
    int most = 0;
    for (int axis = 0; axis < AXES; axis++) most = max(most, taps.most[image * AXES + axis]);
    return is_inside(jpeg, draw) && most <= taps.most_taps;
}

// The taps of luma that become taps of chroma: `count` from `first` on. Their weights are not settled.
struct Halved {
    const unsigned short* weights;
    Rounded rounded;
    int side, first, count;
    int limit;      // samples of chroma that the image has
    bool is_fancy;  // interpolated; libjpeg repeats the chroma of very narrow images
};

static __device__ __forceinline__ int weight_of(const Halved& luma, int sample) {
    int k = sample - luma.first;
    if (k < 0 || k >= luma.count) return 0;
    return k == luma.rounded.at ? luma.rounded.largest : (Weight)luma.weights[(long long)k * luma.side];
}

// Four times the weight of sample `c` of chroma.
static __device__ __forceinline__ int four_weights(const Halved& luma, int c) {
    int own = weight_of(luma, 2 * c) + weight_of(luma, 2 * c + 1);
    if (!luma.is_fancy) return 4 * own;
    // At the image's edges, the nearest sample is the next nearest, too.
    int before = weight_of(luma, c == 0 ? 0 : 2 * c - 1), after = weight_of(luma, c == luma.limit - 1 ? 2 * c + 1 : 2 * c + 2);
    return 3 * own + before + after;
}

// Make the taps of one column or row of chroma.
static __device__ __forceinline__ void make_halved(const Halved& luma, const JpegTaps& taps, long long line, int i) {
    int begin = max((luma.first >> 1) - 1, 0), stop = min(((luma.first + luma.count - 1) >> 1) + 2, luma.limit);
    atomicMax(taps.most + line, stop - begin);
    if (stop - begin > taps.most_taps) return;
    // Weights of zero at both ends belong to samples that may not be decoded.
    while (begin < stop - 1 && four_weights(luma, begin) == 0) begin++;
    while (begin < stop - 1 && four_weights(luma, stop - 1) == 0) stop--;
    long long place = line * taps.side + i;
    taps.first[place] = begin;
    taps.numbers[place] = stop - begin;
    Rounded rounded = {0, -WHOLE, 0};
    unsigned short* column = taps.weights + line * taps.most_taps * taps.side + i;
    int rest = 2;
#pragma unroll 1
    for (int c = begin; c < stop; c++) {
        int exact = four_weights(luma, c) + rest;
        rest = exact & 3;
        add_weight(rounded, exact >> 2, c - begin);
        column[(long long)(c - begin) * taps.side] = (unsigned short)(exact >> 2);
    }
    settle(rounded, column, taps.side);
}

// Make the taps of one output column (axis 0) or row (1) on luma and on chroma, for one thread.
static __device__ __forceinline__ void make_jpeg_taps(const Jpeg& jpeg, const int* draw, int rule, int height, int width,
                                                      int image, int axis, int i, const JpegTaps& taps) {
    int output = axis == 0 ? width : height;
    if (i >= output || !is_inside(jpeg, draw)) return;
    PixelTaps made = taps_of_output(draw, rule, height, width, axis, i);
    long long line = (long long)image * AXES + axis;
    atomicMax(taps.most + line, made.count);
    if (made.count > taps.most_taps) return;
    int first = made.first + draw[axis == 0 ? LEFT : TOP];
    taps.first[line * taps.side + i] = first;
    taps.numbers[line * taps.side + i] = made.count;
    unsigned short* column = taps.weights + line * taps.most_taps * taps.side + i;
    Rounded rounded = round_weights(made, column, taps.side);
    if (chroma_axis(jpeg, axis) != axis) {
        int limit = ((axis == 0 ? jpeg.width : jpeg.height) + 1) / 2;
        bool is_fancy = jpeg.luma_across != 2 || (jpeg.width + 1) / 2 > 2;
        make_halved({column, rounded, taps.side, first, made.count, limit, is_fancy}, taps, line + CHROMA_ACROSS, i);
    }
    settle(rounded, column, taps.side);
}
