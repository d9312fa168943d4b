// step_warps.cuh -- steps that move pixels: warps (gpubeton/_batch/warp_steps.py), turns and shifts (place_steps.py).
//
// Numbers that rows may make as large as they like are unsigned: these wrap around, as numpy's do.
#pragma once

#include "step_room.cuh"

typedef unsigned long long Word;

// The last parameter of PERSPECTIVE.
enum { IS_BILINEAR = 20 };

// Copy the pixel of a row and a column, or that of a fill in two columns where there is none.
static __device__ __forceinline__ void copy_pixel(const Image& image, unsigned y, unsigned x, const int* fill,
                                                  int* pixel) {
    bool is_inside = y < (unsigned)image.room.height && x < (unsigned)image.room.width;
    const unsigned char* source = levels_of(image) + (is_inside ? CHANNELS * ((long long)y * image.room.width + x) : 0);
    for (int c = 0; c < CHANNELS; c++) pixel[c] = is_inside ? source[c] : fill_of(fill, c);
}

// Weigh the four pixels around a place, in units of 2**-11.
static __device__ __forceinline__ void weigh_pixels(const Image& image, long long down, long long across,
                                                    const int* fill, int* pixel) {
    int totals[CHANNELS] = {1 << 21, 1 << 21, 1 << 21};
    int part_y = (int)(down & 2047), part_x = (int)(across & 2047);
    for (unsigned corner = 0; corner < 4; corner++) {
        unsigned lower = corner / 2, right = corner % 2;
        int weight = (lower ? part_y : 2048 - part_y) * (right ? part_x : 2048 - part_x), levels[CHANNELS];
        copy_pixel(image, (unsigned)(down >> 11) + lower, (unsigned)(across >> 11) + right, fill, levels);
        for (int c = 0; c < CHANNELS; c++) totals[c] += weight * levels[c];
    }
    for (int c = 0; c < CHANNELS; c++) pixel[c] = totals[c] >> 22;
}

// A sum a x + b y + c, of three of the numbers after a fill.
static __device__ __forceinline__ Word sum_of(const int* parameters, int first, int y, int x) {
    const int* numbers = parameters + 2;
    return (Word)word_of(numbers, first) * x + (Word)word_of(numbers, first + 1) * y + (Word)word_of(numbers, first + 2);
}

// Divide and round down; far outside, return a place there. GPUs have no instruction that divides 64 bits: a quotient of
// floats is off by 16 at most, which a division of 32 bits makes up for.
static __device__ __forceinline__ int place_of(long long sum, int divisor) {
    long long most = (long long)divisor << 26;
    if (divisor == 0 || sum >= most || sum < -most) return -(2 << 11);
    int near = __float2int_rd(__fdividef((float)sum, (float)divisor)), rest = (int)(sum - (long long)near * divisor);
    return near + rest / divisor - (rest % divisor < 0);
}

// Warp: the parameters are a fill, and six numbers; of PERSPECTIVE nine, and whether it is bilinear.
static __device__ __forceinline__ void warp(const Image& image, int kind, const int* parameters) {
    bool is_bilinear = kind == PERSPECTIVE ? parameters[IS_BILINEAR] & 255 : kind == WARP_BILINEAR;
    write_other(image, [&](int y, int x, int* pixel) {
        Word across = sum_of(parameters, 0, y, x), down = sum_of(parameters, 3, y, x);
        if (kind == PERSPECTIVE) {
            long long divided = (long long)sum_of(parameters, 6, y, x) >> 16;
            int divisor = divided > 0 && divided < 1 << 26 ? (int)divided : 0;
            across = (Word)(long long)place_of((long long)across, divisor) << 21;
            down = (Word)(long long)place_of((long long)down, divisor) << 21;
        }
        Word half = 1u << (is_bilinear ? 20 : 31);
        long long row = (long long)(down + half), column = (long long)(across + half);
        if (is_bilinear)
            weigh_pixels(image, row >> 21, column >> 21, parameters, pixel);
        else
            copy_pixel(image, (unsigned)(row >> 32), (unsigned)(column >> 32), parameters, pixel);
    });
}

// Mirror, then exchange rows and columns: bits 1 (left to right), 2 (top to bottom) and 4 (of square images only).
static __device__ __forceinline__ void turn(const Image& image, int bits) {
    bool is_diagonal = bits & 4 && image.room.height == image.room.width;
    write_other(image, [&](int y, int x, int* pixel) {
        int row = is_diagonal ? x : y, column = is_diagonal ? y : x;
        if (bits & 2) row = image.room.height - 1 - row;
        if (bits & 1) column = image.room.width - 1 - column;
        copy_pixel(image, row, column, 0, pixel);
    });
}

static __device__ __forceinline__ void shift(const Image& image, const int* parameters) {
    unsigned down = parameters[0], right = parameters[1];
    write_other(image, [&](int y, int x, int* pixel) { copy_pixel(image, y - down, x - right, parameters + 2, pixel); });
}
