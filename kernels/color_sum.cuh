// color_sum.cuh -- sums of the gray values of an image, as they are when it comes to a contrast.
//
// An image without that contrast, or with a factor of 1 there, is not read. Sums are of whole numbers, so the order in
// which blocks come does not matter.
#pragma once

#include "block.cuh"
#include "color_step.cuh"
#include "steps.cuh"

// Of an image, summed by one block.
enum { SUMMED_PIXELS = 16384 };

// What is done to the colors of an image.
struct Recipe {
    const int* steps;          // (num_steps, 2): kind and factor of each
    int num_steps;             // at most MAX_STEPS
    unsigned long long* sums;  // of the gray values before each contrast; zeroed by the caller
};

// What a block shares.
struct SumRoom {
    Steps before;
    int is_wanted;
    unsigned partial[THREADS];
};

// Add what the pixels of block number `block` have to the sum before contrast number `contrast`; the sums before the
// contrasts before it are complete.
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
            apply_steps(room.before, first, four);
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
