// step_filters.cuh -- sharpen and blur an image; gpubeton/_batch/filter_steps.py defines how.
#pragma once

#include "step_room.cuh"

static __device__ __forceinline__ void sharpen(const Image& image, int factor) {
    int away = ONE - limited(factor, MAX_FACTOR * ONE), stride = CHANNELS * image.room.width;
    const unsigned char* levels = levels_of(image);
    write_other(image, [&](int y, int x, int* pixel) {
        const unsigned char* middle = levels + CHANNELS * ((long long)y * image.room.width + x);
        bool is_inside = y > 0 && x > 0 && y < image.room.height - 1 && x < image.room.width - 1;
        for (int c = 0; c < CHANNELS; c++) {
            int level = pixel[c] = middle[c];
            if (!is_inside) continue;
            int total = 4 * level;
            for (int down = -1; down <= 1; down++)
                for (int right = -1; right <= 1; right++) total += middle[down * stride + CHANNELS * right + c];
            int mean = (int)((unsigned)(2 * total + 13) / 26u);
            pixel[c] = level_of(level * ONE + away * (mean - level));
        }
    });
}

// The number of weights that the scratch memory holds, with zeros after them: four pixels are blurred together.
enum { MAX_REACH = WARPS * WARP_WORDS - PIXELS };

// Blur four values along an axis of some length, from number `first` on; `load` and `store` take a place on the axis.
template <class Load, class Store>
static __device__ __forceinline__ void blur_four(int first, int length, int reach, const Room& room, unsigned half,
                                                 Load load, Store store) {
    unsigned totals[PIXELS] = {half, half, half, half};
#pragma unroll 1
    for (int place = first - reach; place < first + reach + PIXELS; place++) {
        unsigned value = load(max(length - 1 - abs(length - 1 - abs(place)), 0));
        for (int p = 0; p < PIXELS; p++) totals[p] += room.scratch[abs(place - first - p)] * value;
    }
    for (int p = 0; p < PIXELS; p++)
        if (first + p < length) store(first + p, totals[p]);
}

// Blur, unless the image is smaller than the reach: `parameters` are the reach, and the weights of the distances from the
// middle.
static __device__ __forceinline__ void blur(const Image& image, const int* parameters, int count) {
    Room& room = image.room;
    unsigned char* levels = levels_of(image);
    unsigned short* blurred = image.all.blurred + image.room.place;
    int reach = min(min(parameters[0], count - 2), (int)MAX_REACH);
    while (reach > 0 && parameters[1 + reach] == 0) reach--;
    if (reach <= 0 || reach >= min(image.room.height, image.room.width)) return;
    block_step([&](int thread) {
        for (int i = thread; i < reach + PIXELS; i += THREADS)
            room.scratch[i] = i <= reach ? (unsigned)parameters[1 + i] : 0;
    });
    int stride = CHANNELS * image.room.width, across = CHANNELS * ((image.room.width + PIXELS - 1) / PIXELS);
    block_step([&](int thread) {
#pragma unroll 1
        for (int i = thread; i < across * image.room.height; i += THREADS) {
            int line = i % across, first = PIXELS * (line / CHANNELS);
            long long start = (long long)(i / across) * stride + line % CHANNELS;
            blur_four(
                first, image.room.width, reach, room, 128, [&](int x) { return levels[start + CHANNELS * x]; },
                [&](int x, unsigned total) { blurred[start + CHANNELS * x] = (unsigned short)(total >> 8); });
        }
    });
    int down = (image.room.height + PIXELS - 1) / PIXELS;
    block_step([&](int thread) {
#pragma unroll 1
        for (int i = thread; i < stride * down; i += THREADS) {
            int start = i % stride, first = PIXELS * (i / stride);
            blur_four(
                first, image.room.height, reach, room, 1u << 21,
                [&](int y) { return blurred[start + (long long)y * stride]; },
                [&](int y, unsigned total) { levels[start + (long long)y * stride] = (unsigned char)(total >> 22); });
        }
    });
}
