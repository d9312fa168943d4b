// color.cuh -- changes the colors of an image, paints, and writes output values.
//
// A warp takes 512 pixels at a time. Four times, each lane loads four pixels, next to its neighbor's, applies the steps in
// registers and puts the levels into shared memory. Then a lane takes as many neighboring levels as make 16 bytes of
// output: its own values are 24 bytes from its neighbor's, and would be stored in parts of sectors. If the number of
// pixels is no multiple of 8, values are stored one by one, several times slower.
#pragma once

#include "block.cuh"
#include "color_step.cuh"
#include "color_sum.cuh"
#include "draw.cuh"
#include "steps.cuh"
#include "table.cuh"

// GROUPS of four pixels for each lane, STRETCHES of pixels for each warp.
enum { GROUPS = 4, WARP_PIXELS = 32 * PIXELS * GROUPS, STRETCHES = 4, BLOCK_PIXELS = STRETCHES * WARPS * WARP_PIXELS };

// Paints that come after the changes of color.
struct LatePaints {
    const int* paints;  // all of the image
    const unsigned char* fills;
    int first, stop;  // which of them
    int width;        // of the image
};

// The shared memory of a block.
struct ColorRoom {
    Steps steps;
    unsigned made[WARPS][WARP_PIXELS * CHANNELS / 4];
    unsigned values[LEVELS * CHANNELS];
};

// Paint four pixels; `place` is the number of the first in its image.
static __device__ __forceinline__ void paint_pixels(const LatePaints& late, int place, int (*pixels)[3]) {
#pragma unroll 1
    for (int i = late.first; i < late.stop; i++) {
        const int* paint = late.paints + i * PAINT_COLUMNS;
        const unsigned char* fill = late.fills + 3ll * paint[PAINT_FILL];
        int x = place % late.width, y = place / late.width;
        for (int p = 0; p < PIXELS; p++) {
            if (paint[PAINT_TOP] <= y && y < paint[PAINT_BOTTOM] && paint[PAINT_LEFT] <= x && x < paint[PAINT_RIGHT])
                for (int c = 0; c < 3; c++) pixels[p][c] = fill[c];
            bool is_last = ++x == late.width;
            x = is_last ? 0 : x;
            y += is_last;
        }
    }
}

static __device__ __forceinline__ void make_pixels(const unsigned char* source, int bytes, const Steps& steps,
                                                   const LatePaints& late, int place, unsigned* made) {
    int pixels[PIXELS][3];
    load_pixels(source, bytes, pixels);
    apply_steps(steps, pixels);
    paint_pixels(late, place, pixels);
    unsigned words[3] = {0, 0, 0};
    for (int i = 0; i < PIXEL_BYTES; i++) words[i / 4] |= (unsigned)pixels[i / 3][i % 3] << (i % 4 * 8);
    for (int i = 0; i < 3; i++) made[i] = words[i];
}

template <class Item>
static __device__ __forceinline__ void store_pixels(const unsigned* made, int values, const void* table, Item* target,
                                                    int lane) {
    bool is_aligned = (unsigned long long)target % 16 == 0;
    for (int first = lane * Wide<Item>::VALUES; first < values; first += 32 * Wide<Item>::VALUES) {
        uint4 found = look_up<Item>(made + first / 4, first % CHANNELS, table);
        if (is_aligned && first + Wide<Item>::VALUES <= values)
            *(uint4*)(target + first) = found;
        else
            store_some(target + first, found, 0, values - first);
    }
}

// Make the pixels of block number `block` of an image; `out` is the image's first byte.
static __device__ __forceinline__ void color_block(const unsigned char* levels, const Recipe& recipe,
                                                    const LatePaints& late, int pixels, int block,
                                                    const unsigned* table, int item_size, unsigned char* out,
                                                    ColorRoom& room) {
    block_step([&](int thread) {
        load_table_of(item_size, table, room.values, thread, THREADS);
        if (thread == 0) read_steps(recipe.steps, recipe.num_steps, recipe.sums, pixels, -1, room.steps);
    });
    each_warp([&](int warp) {
        unsigned* made = room.made[warp];
        int stop = min(pixels, (block + 1) * BLOCK_PIXELS);
        for (int first = block * BLOCK_PIXELS + warp * WARP_PIXELS; first < stop; first += WARPS * WARP_PIXELS) {
            int values = CHANNELS * min((int)WARP_PIXELS, pixels - first);
            long long place = CHANNELS * (long long)first;
            warp_step([&](int lane) {
#pragma unroll 1
                for (int before = PIXEL_BYTES * lane; before < values; before += 32 * PIXEL_BYTES)
                    make_pixels(levels + place + before, values - before, room.steps, late, first + before / CHANNELS,
                                made + before / 4);
            });
            warp_step([&](int lane) {
                if (item_size == 1) store_pixels(made, values, room.values, out + place, lane);
                if (item_size == 2) store_pixels(made, values, room.values, (unsigned short*)out + place, lane);
                if (item_size == 4) store_pixels(made, values, room.values, (unsigned*)out + place, lane);
            });
        }
    });
}
