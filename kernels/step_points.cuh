// step_points.cuh -- steps that change each pixel by itself: colors, tables of levels, painted rectangles.
//
// They wait in shared memory until a step looks at other pixels, or the image is written: then all of them are applied in
// registers, on the way. gpubeton/_batch/level_steps.py defines the tables.
#pragma once

#include "step_room.cuh"

// Paint the pixels inside a box; `first` is the number of the first of four.
static __device__ __forceinline__ void paint_four(const Image& image, const Point& paint, int first, int (*pixels)[3]) {
    int x = first % image.room.width, y = first / image.room.width, top = paint.values[0], left = paint.values[1];
    for (int p = 0; p < PIXELS; p++) {
        if (top <= y && y < paint.values[2] && left <= x && x < paint.values[3])
            for (int c = 0; c < CHANNELS; c++) pixels[p][c] = paint.values[4] >> 8 * c & 255;
        bool is_last = ++x == image.room.width;
        x = is_last ? 0 : x;
        y += is_last;
    }
}

// Load four pixels and apply the steps that wait.
static __device__ __forceinline__ void load_changed(const Image& image, int first, int (*pixels)[3]) {
    const Room& room = image.room;
    load_four(image, levels_of(image), first, pixels);
#pragma unroll 1
    for (int i = 0; i < image.room.num_points; i++) {
        const Point& point = room.points[i];
        int kind = point.kind, factor = point.values[0];
        if (kind == BRIGHTNESS) {
            for (int p = 0; p < PIXELS; p++) blend(pixels[p], factor, point.values[1]);
        } else if (kind == SATURATION) {
            for (int p = 0; p < PIXELS; p++) saturate(pixels[p], factor);
        } else if (kind == HUE) {
            for (int p = 0; p < PIXELS; p++) turn_hue(pixels[p], factor);
        } else if (kind == HSV) {
            // One after another: all four together would take more registers than there are.
#pragma unroll 1
            for (int p = 0; p < PIXELS; p++) {
                change_hsv(pixels[0], factor, point.values[1], point.values[2]);
                for (int c = 0; c < CHANNELS; c++) {
                    int level = pixels[0][c];
                    for (int q = 1; q < PIXELS; q++) pixels[q - 1][c] = pixels[q][c];
                    pixels[PIXELS - 1][c] = level;
                }
            }
        } else if (kind == PAINT) {
            paint_four(image, point, first, pixels);
        } else {
            const unsigned char* table = room.tables[factor];
            for (int p = 0; p < PIXELS; p++)
                for (int c = 0; c < CHANNELS; c++) pixels[p][c] = table[LEVELS * c + pixels[p][c]];
        }
    }
}

// What a pass over the pixels with the steps that wait is for: to store them, to sum gray values, to count levels.
enum { STORE = 1, SUM = 2, COUNT = 4 };

// In the scratch memory, entry 256 * channel + level of a histogram has 8 words. At first they are counts of the threads
// whose numbers have the same last three bits, so that fewer of them add to the same word; then the first is the count, and
// the second the number of pixels of lower levels.
enum { COPIES = WARPS * WARP_WORDS / TABLE_ENTRIES, COUNTED = 0, BEFORE = 1 };

// Pass over all pixels. A gray value's sum of a thread, in the scratch memory, stays far below 2**32.
static __device__ __forceinline__ void pass_points(const Image& image, int purpose) {
    Room& room = image.room;
    if (purpose != STORE) {
        block_step([&](int thread) {
            for (int i = thread; i < COPIES * TABLE_ENTRIES; i += THREADS) room.scratch[i] = 0;
        });
    }
    each_four(image, [&](int first) {
        int pixels[PIXELS][3], thread = first / PIXELS % THREADS;
        load_changed(image, first, pixels);
        if (purpose & STORE) store_four(image, levels_of(image), first, pixels);
        for (int p = 0; p < PIXELS; p++) {
            if (first + p >= pixels_of(image)) continue;
            if (purpose & SUM) room.scratch[thread] += (unsigned)gray_of(pixels[p]);
            if (purpose & COUNT)
                for (int c = 0; c < CHANNELS; c++)
                    atomicAdd(&room.scratch[COPIES * (LEVELS * c + pixels[p][c]) + thread % COPIES], 1u);
        }
    });
    if (purpose & STORE) update([&] { room.num_points = room.num_tables = 0; });
}

static __device__ __forceinline__ void add_point(const Image& image, const Point& point) {
    update([&] { image.room.points[image.room.num_points++] = point; });
}

// The sum of all gray values, after a pass.
static __device__ __forceinline__ long long gray_sum(Room& room) {
    block_step([&](int thread) {
        if (thread >= WARPS) return;
        unsigned long long sum = 0;
#pragma unroll 4
        for (int i = 0; i < 32; i++) sum += room.scratch[32 * thread + i];
        room.sums[thread] = sum;
    });
    unsigned long long sum = 0;
#pragma unroll 4
    for (int i = 0; i < WARPS; i++) sum += room.sums[i];
    return (long long)sum;
}

// Complete the histogram, after a pass.
static __device__ __forceinline__ void finish_counts(const Image& image) {
    Room& room = image.room;
    block_step([&](int thread) {
        for (int entry = thread; entry < TABLE_ENTRIES; entry += THREADS) {
            unsigned* words = room.scratch + COPIES * entry;
            for (int i = 1; i < COPIES; i++) words[COUNTED] += words[i];
        }
    });
    block_step([&](int channel) {
        if (channel >= CHANNELS) return;
        unsigned before = 0, *words = room.scratch + COPIES * LEVELS * channel;
#pragma unroll 1
        for (int level = 0; level < LEVELS; level++, words += COPIES) {
            words[BEFORE] = before;
            if (words[COUNTED] == 0) continue;
            if (before == 0) room.least[channel] = level;
            before += words[COUNTED];
            room.most[channel] = level;
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
    unsigned largest = room.scratch[COPIES * (LEVELS * channel + most) + COUNTED];
    unsigned step = ((unsigned)pixels_of(image) - largest) / 255;
    if (step == 0) return level;
    return (int)min((room.scratch[COPIES * entry + BEFORE] + step / 2) / step, 255u);
}

static __device__ __forceinline__ void add_table(const Image& image, int kind, int parameter) {
    Room& room = image.room;
    if (kind == AUTOCONTRAST || kind == EQUALIZE) finish_counts(image);
    block_step([&](int thread) {
#pragma unroll 1
        for (int entry = thread; entry < TABLE_ENTRIES; entry += THREADS)
            room.tables[image.room.num_tables][entry] = (unsigned char)table_entry(kind, parameter, entry, image);
    });
    add_point(image, {SOLARIZE, {image.room.num_tables}});
    update([&] { room.num_tables++; });
}

static __device__ __forceinline__ bool is_point(int kind) {
    return (kind >= BRIGHTNESS && kind <= EQUALIZE) || kind == PAINT || kind == HSV;
}

// What a step needs a pass for before it begins.
static __device__ __forceinline__ int purpose_of(const Image& image, int kind) {
    if (kind <= KEEP || kind > FINISH) return 0;
    bool is_full = image.room.num_points == MAX_POINTS || image.room.num_tables == MAX_TABLES;
    return (is_full || (!is_point(kind) && image.room.num_points > 0) ? STORE : 0) | (kind == CONTRAST ? SUM : 0) |
           (kind == AUTOCONTRAST || kind == EQUALIZE ? COUNT : 0);
}

// Begin a step, after a pass for it.
static __device__ __forceinline__ void begin_point(const Image& image, int kind, const int* parameters) {
    int factor = limited(parameters[0], kind == HUE ? ONE : MAX_FACTOR * ONE);
    if (kind == PAINT) {
        int fill = 0;
        for (int c = 0; c < CHANNELS; c++) fill |= fill_of(parameters + 4, c) << 8 * c;
        add_point(image, {PAINT, {parameters[0], parameters[1], parameters[2], parameters[3], fill}});
    } else if (kind == HSV) {
        int saturation = min(max(parameters[0], 0), 2 * ONE), value = min(max(parameters[1], 0), 2 * ONE);
        add_point(image, {HSV, {saturation, value, parameters[2] & (ONE - 1)}});
    } else if (kind >= SOLARIZE) {
        add_table(image, kind, parameters[0]);
    } else if (kind == CONTRAST) {
        int added = (int)divided_down((ONE - factor) * gray_sum(image.room), pixels_of(image));
        add_point(image, {BRIGHTNESS, {factor, added}});
    } else {
        add_point(image, {kind, {factor, 0}});
    }
}
