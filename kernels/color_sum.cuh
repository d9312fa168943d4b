// color_sum.cuh -- the sum of the gray values of an image before one of its contrasts.
//
// An image without that contrast, or with a factor of 1 there, is not read. Sums are of integers, so the order of the
// blocks does not matter.
#pragma once

#include "block.cuh"
#include "color_step.cuh"
#include "steps.cuh"

// Pixels of an image for one block.
enum { SUMMED_PIXELS = 16384 };

// The changes of an image's colors.
struct Recipe {
    const int* steps;          // (num_steps, 2): kind and factor of each
    int num_steps;             // at most MAX_STEPS
    unsigned long long* sums;  // of the gray values before each contrast; zeroed by the caller
};

// The shared memory of a block.
struct SumRoom {
    Steps before;
    int is_wanted;
    unsigned partial[THREADS];
};

// Add the pixels of block number `block` to the sum before contrast number `contrast`; earlier sums are complete.
static __device__ __forceinline__ void sum_block(const unsigned char* levels, const Recipe& recipe, int contrast,
                                                 int pixels, int block, SumRoom& room) {
    block_step([&](int thread) {
        if (thread == 0)
            room.is_wanted = read_steps(recipe.steps, recipe.num_steps, recipe.sums, pixels, contrast, room.before);
    });
    if (!room.is_wanted) return;
    block_step([&](int thread) {
        int stop = min(pixels, (block + 1) * SUMMED_PIXELS);
        // A block's own sum stays far below 2**32.
        unsigned sum = 0;
#pragma unroll 1
        for (int first = block * SUMMED_PIXELS + thread * PIXELS; first < stop; first += THREADS * PIXELS) {
            int four[PIXELS][3];
            load_pixels(levels + 3ll * first, 3ll * (pixels - first), four);
            apply_steps(room.before, four);
            for (int p = 0; p < PIXELS; p++)
                if (first + p < pixels) sum += (unsigned)gray_of(four[p]);
        }
        room.partial[thread] = sum;
    });
    block_step([&](int thread) {
        if (thread != 0) return;
        unsigned long long sum = 0;
        for (int i = 0; i < THREADS; i++) sum += room.partial[i];
        atomicAdd(recipe.sums + contrast, sum);
    });
}
