// step_room.cuh -- what the steps of an image work with: its two buffers, its pixels, and the block's shared memory.
#pragma once

#include "color_step.cuh"
#include "step_rows.cuh"
#include "steps.cuh"
#include "table.cuh"

enum { WARPS = 16, THREADS = 32 * WARPS };

// GROUPS of four pixels for each lane.
enum { GROUPS = 4, WARP_PIXELS = 32 * PIXELS * GROUPS, WARP_WORDS = WARP_PIXELS * CHANNELS / 4 };

enum { MAX_POINTS = 16, MAX_TABLES = 2, TABLE_ENTRIES = LEVELS * CHANNELS };

// A step that changes each pixel by itself.
struct Point {
    int kind;  // BRIGHTNESS (and contrast), SATURATION, HUE, SOLARIZE (any table), PAINT, HSV
    int values[5];
};

// Rows of steps, (count, num_rows, STEP_COLUMNS). Images, (count, height, width, 3): the levels, and room for what steps
// need; null without such steps.
struct Images {
    const int* rows;
    int num_rows;
    unsigned char *levels, *other;  // the images, and room for others: steps that move pixels write there
    unsigned short* blurred;        // BLUR
    int* mixtures;                  // SAVE, ADD and FINISH
    unsigned char* kept;            // the same
};

// The shared memory of a block.
struct Room {
    // What is the same for all threads is here, too: in registers there is no room for it beside a step's own numbers.
    long long place;             // of the image's first value
    int height, width;           // of images
    int row;                     // the number of the next step's
    bool is_in_other;            // whether the image is in `other`
    int num_points, num_tables;  // steps that wait, and their tables
    Point points[MAX_POINTS];
    unsigned char tables[MAX_TABLES][TABLE_ENTRIES];
    unsigned values[TABLE_ENTRIES];  // output values
    unsigned long long sums[WARPS];
    int least[CHANNELS], most[CHANNELS];  // levels that occur
    unsigned scratch[WARPS * WARP_WORDS];
};

// An image under way.
struct Image {
    const Images& all;
    Room& room;
};

// Change what is the same for all threads, when none reads it any more.
template <class Change>
static __device__ __forceinline__ void update(Change change) {
    block_step([](int) {});
    block_step([&](int thread) {
        if (thread == 0) change();
    });
}

static __device__ __forceinline__ const int* row_of(const Image& image) {
    return image.all.rows + STEP_COLUMNS * ((long long)blockIdx.x * image.all.num_rows + image.room.row);
}

// How many rows the next step has.
static __device__ __forceinline__ int span_of(const Image& image) {
    return min(max(row_of(image)[SPAN], 1), image.all.num_rows - image.room.row);
}

static __device__ __forceinline__ unsigned char* levels_of(const Image& image) {
    return (image.room.is_in_other ? image.all.other : image.all.levels) + image.room.place;
}

static __device__ __forceinline__ unsigned char* other_of(const Image& image) {
    return (image.room.is_in_other ? image.all.levels : image.all.other) + image.room.place;
}

static __device__ __forceinline__ int pixels_of(const Image& image) { return image.room.height * image.room.width; }

// Let `use` work on four pixels after another; it gets the number of the first.
template <class Use>
static __device__ __forceinline__ void each_four(const Image& image, Use use) {
    block_step([&](int thread) {
#pragma unroll 1
        for (int first = PIXELS * thread; first < pixels_of(image); first += PIXELS * THREADS) use(first);
    });
}

// Load four pixels of an image; those after its end are black.
static __device__ __forceinline__ void load_four(const Image& image, const unsigned char* levels, int first,
                                                 int (*pixels)[3]) {
    load_pixels(levels + 3ll * first, 3ll * (pixels_of(image) - first), pixels);
}

static __device__ __forceinline__ void store_words(const Image& image, unsigned char* levels, int first,
                                                   const unsigned* words) {
    unsigned char* target = levels + 3ll * first;
    if (pixels_of(image) - first >= PIXELS && (unsigned long long)target % 4 == 0) {
        for (int i = 0; i < 3; i++) ((unsigned*)target)[i] = words[i];
    } else {
        for (int i = 0; i < PIXEL_BYTES; i++)
            if (first + i / 3 < pixels_of(image)) target[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
    }
}

static __device__ __forceinline__ void store_four(const Image& image, unsigned char* levels, int first,
                                                  const int (*pixels)[3]) {
    unsigned words[3];
    pack_pixels(pixels, words);
    store_words(image, levels, first, words);
}

// Write the other image, and take it: `color_at` makes the pixel of a row and a column.
template <class ColorAt>
static __device__ __forceinline__ void write_other(const Image& image, ColorAt color_at) {
    unsigned char* levels = other_of(image);
    each_four(image, [&](int first) {
        unsigned words[3] = {0, 0, 0};
        int x = first % image.room.width, y = first / image.room.width;
        // Not all four at a time, which would take more registers than there are.
#pragma unroll 1
        for (int p = 0; p < PIXELS; p++) {
            int pixel[3];
            color_at(min(y, image.room.height - 1), x, pixel);
            words[0] = words[0] >> 24 | words[1] << 8;
            words[1] = words[1] >> 24 | words[2] << 8;
            words[2] = words[2] >> 24 | (unsigned)(pixel[0] | pixel[1] << 8 | pixel[2] << 16) << 8;
            bool is_last = ++x == image.room.width;
            x = is_last ? 0 : x;
            y += is_last;
        }
        store_words(image, levels, first, words);
    });
    update([&] { image.room.is_in_other = !image.room.is_in_other; });
}
