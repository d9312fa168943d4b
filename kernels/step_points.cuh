// step_points.cuh -- steps that change each pixel by itself: colors, tables of levels, painted rectangles.
//
// They wait in shared memory until a step looks at other pixels, or the image is written: then all of them are applied in
// registers, on the way. gpubeton/_batch/level_steps.py defines the tables.
#pragma once

#include "step_room.cuh"

// Paint the pixels inside a box; `first` is the number of the first of four.
static __device__ __forceinline__ void paint_four(const Image& image, const Point& paint, int first, int (*pixels)[3]) {
    int x = first % image.all.width, y = first / image.all.width, top = paint.values[0], left = paint.values[1];
    for (int p = 0; p < PIXELS; p++) {
        if (top <= y && y < paint.values[2] && left <= x && x < paint.values[3])
            for (int c = 0; c < CHANNELS; c++) pixels[p][c] = paint.values[4] >> 8 * c & 255;
        bool is_last = ++x == image.all.width;
        x = is_last ? 0 : x;
        y += is_last;
    }
}

// Load four pixels and apply the steps that wait.
static __device__ __forceinline__ void load_changed(const Image& image, int first, int (*pixels)[3]) {
    const Room& room = image.room;
    load_four(image, levels_of(image), first, pixels);
#pragma unroll 1
    for (int i = 0; i < image.num_points; i++) {
        const Point& point = room.points[i];
        int kind = point.kind, factor = point.values[0];
        if (kind == BRIGHTNESS) {
            for (int p = 0; p < PIXELS; p++) blend(pixels[p], factor, point.values[1]);
        } else if (kind == SATURATION) {
            for (int p = 0; p < PIXELS; p++) saturate(pixels[p], factor);
        } else if (kind == HUE) {
            for (int p = 0; p < PIXELS; p++) turn_hue(pixels[p], factor);
        } else if (kind == PAINT) {
            paint_four(image, point, first, pixels);
        } else {
            const unsigned char* table = room.tables[factor];
            for (int p = 0; p < PIXELS; p++)
                for (int c = 0; c < CHANNELS; c++) pixels[p][c] = table[LEVELS * c + pixels[p][c]];
        }
    }
}

// Apply the steps that wait to the image in memory.
static __device__ __forceinline__ void finish_points(Image& image) {
    if (image.num_points == 0) return;
    each_four(image, [&](int first) {
        int pixels[PIXELS][3];
        unsigned words[3];
        load_changed(image, first, pixels);
        pack_pixels(pixels, words);
        store_four(image, levels_of(image), first, words);
    });
    image.num_points = image.num_tables = 0;
}

static __device__ __forceinline__ void add_point(Image& image, const Point& point) {
    block_step([&](int thread) {
        if (thread == 0) image.room.points[image.num_points] = point;
    });
    image.num_points++;
}

// The sum of the gray values of all pixels.
static __device__ __forceinline__ unsigned long long gray_sum(const Image& image) {
    Room& room = image.room;
    block_step([&](int thread) { room.scratch[thread] = 0; });
    // A thread's own sum stays far below 2**32.
    each_four(image, [&](int first) {
        int pixels[PIXELS][3];
        load_changed(image, first, pixels);
        for (int p = 0; p < PIXELS; p++)
            if (first + p < pixels_of(image)) room.scratch[first / PIXELS % THREADS] += (unsigned)gray_of(pixels[p]);
    });
    block_step([&](int thread) {
        if (thread >= WARPS) return;
        unsigned long long sum = 0;
        for (int i = 0; i < 32; i++) sum += room.scratch[32 * thread + i];
        room.sums[thread] = sum;
    });
    unsigned long long sum = 0;
    for (int i = 0; i < WARPS; i++) sum += room.sums[i];
    return sum;
}

// --- tables of levels ----------------------------------------------------------------------------------------------
//
// In the scratch memory, entry 256 * channel + level has 8 words. At first they are counts of the threads whose numbers
// have the same last three bits, so that fewer of them add to the same word; then the first is the count, the second the
// number of pixels of lower levels, and the third of every eighth entry the sum of eight counts.
enum { COPIES = WARPS * WARP_WORDS / TABLE_ENTRIES, COUNT = 0, BEFORE = 1, TOTAL = 2 };
static_assert(COPIES == 8 && THREADS >= TABLE_ENTRIES / 8, "as many words as counts");

static __device__ __forceinline__ void count_levels(const Image& image) {
    Room& room = image.room;
    block_step([&](int thread) {
        for (int i = thread; i < COPIES * TABLE_ENTRIES; i += THREADS) room.scratch[i] = 0;
    });
    each_four(image, [&](int first) {
        int pixels[PIXELS][3];
        load_changed(image, first, pixels);
        for (int p = 0; p < PIXELS; p++)
            for (int c = 0; c < CHANNELS; c++)
                if (first + p < pixels_of(image))
                    atomicAdd(&room.scratch[COPIES * (LEVELS * c + pixels[p][c]) + first / PIXELS % COPIES], 1u);
    });
    block_step([&](int thread) {
        for (int entry = thread; entry < TABLE_ENTRIES; entry += THREADS) {
            unsigned* words = room.scratch + COPIES * entry;
            for (int i = 1; i < COPIES; i++) words[COUNT] += words[i];
        }
    });
    block_step([&](int thread) {
        if (thread >= TABLE_ENTRIES / 8) return;
        unsigned total = 0, *words = room.scratch + 8 * COPIES * thread;
        for (int i = 0; i < 8; i++) total += words[COPIES * i + COUNT];
        words[TOTAL] = total;
    });
    block_step([&](int thread) {
        if (thread >= TABLE_ENTRIES / 8) return;
        int channel = thread / 32;
        unsigned before = 0;
        for (int i = 32 * channel; i < thread; i++) before += room.scratch[8 * COPIES * i + TOTAL];
        for (int entry = 8 * thread; entry < 8 * thread + 8; entry++) {
            unsigned* words = room.scratch + COPIES * entry;
            words[BEFORE] = before;
            if (words[COUNT] != 0 && before == 0) room.least[channel] = entry % LEVELS;
            before += words[COUNT];
            if (words[COUNT] != 0 && before == (unsigned)pixels_of(image)) room.most[channel] = entry % LEVELS;
        }
    });
}

// The entry of a table; `room` has counted the levels where that is needed.
static __device__ __forceinline__ int table_entry(int kind, int parameter, int entry, const Image& image) {
    const Room& room = image.room;
    int level = entry % LEVELS, channel = entry / LEVELS;
    if (kind == INVERT) return 255 - level;
    if (kind == SOLARIZE) return level >= parameter ? 255 - level : level;
    if (kind == SOLARIZE_ADD) return level < 128 ? min(level + min(max(parameter, 0), 255), 255) : level;
    if (kind == POSTERIZE) return level & (256 - (1 << (8 - min(max(parameter, 0), 8))));
    int least = room.least[channel], most = room.most[channel];
    if (kind == AUTOCONTRAST) return most > least ? min((max(level, least) - least) * 255 / (most - least), 255) : level;
    unsigned largest = room.scratch[COPIES * (LEVELS * channel + most) + COUNT];
    unsigned step = ((unsigned)pixels_of(image) - largest) / 255;
    if (step == 0) return level;
    return (int)min((room.scratch[COPIES * entry + BEFORE] + step / 2) / step, 255u);
}

static __device__ __forceinline__ void add_table(Image& image, int kind, int parameter) {
    Room& room = image.room;
    if (kind == AUTOCONTRAST || kind == EQUALIZE) count_levels(image);
    block_step([&](int thread) {
        for (int entry = thread; entry < TABLE_ENTRIES; entry += THREADS)
            room.tables[image.num_tables][entry] =
                (unsigned char)table_entry(kind, parameter, entry, image);
    });
    add_point(image, {SOLARIZE, {image.num_tables}});
    image.num_tables++;
}

// --------------------------------------------------------------------------------------------------------------------

static __device__ __forceinline__ bool is_point(int kind) {
    return (kind >= BRIGHTNESS && kind <= EQUALIZE) || kind == PAINT;
}

// Begin a step; those that do nothing are left out.
static __device__ __forceinline__ void begin_point(Image& image, int kind, const int* parameters) {
    if (image.num_points == MAX_POINTS || image.num_tables == MAX_TABLES) finish_points(image);
    int factor = limited(parameters[0], kind == HUE ? ONE : MAX_FACTOR * ONE);
    if (kind == PAINT) {
        int fill = 0;
        for (int c = 0; c < CHANNELS; c++) fill |= fill_of(parameters + 4, c) << 8 * c;
        add_point(image, {PAINT, {parameters[0], parameters[1], parameters[2], parameters[3], fill}});
    } else if (kind >= SOLARIZE) {
        add_table(image, kind, parameters[0]);
    } else if (kind == CONTRAST && factor != ONE) {
        long long sum = (long long)gray_sum(image);
        add_point(image, {BRIGHTNESS, {factor, (int)divided_down((ONE - factor) * sum, pixels_of(image))}});
    } else if (factor != (kind == HUE ? 0 : ONE)) {
        add_point(image, {kind, {factor, 0}});
    }
}
