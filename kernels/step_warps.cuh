// step_warps.cuh -- steps that move pixels: warps (gpubeton/_batch/warp_steps.py), turns and shifts (place_steps.py).
//
// Numbers that rows may make as large as they like are unsigned: these wrap around, as numpy's do.
#pragma once

#include "step_room.cuh"

typedef unsigned long long Word;

// Copy the pixel of a row and a column, or that of a fill in two columns where there is none.
static __device__ __forceinline__ void copy_pixel(const Image& image, unsigned y, unsigned x, const int* fill,
                                                  int* pixel) {
    bool is_inside = y < (unsigned)image.all.height && x < (unsigned)image.all.width;
    const unsigned char* source = levels_of(image) + (is_inside ? CHANNELS * ((long long)y * image.all.width + x) : 0);
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

// Affine warp: a fill, and six numbers in units of 2**-32.
static __device__ __forceinline__ void warp(Image& image, const int* parameters, bool is_bilinear) {
    Word matrix[6];
    for (int i = 0; i < 6; i++) matrix[i] = (Word)word_of(parameters + 2, i);
    write_other(image, [&](int y, int x, int* pixel) {
        Word across = matrix[0] * x + matrix[1] * y + matrix[2], down = matrix[3] * x + matrix[4] * y + matrix[5];
        if (is_bilinear) {
            weigh_pixels(image, (long long)(down + (1 << 20)) >> 21, (long long)(across + (1 << 20)) >> 21, parameters,
                         pixel);
        } else {
            copy_pixel(image, (unsigned)((down + (1u << 31)) >> 32), (unsigned)((across + (1u << 31)) >> 32),
                       parameters, pixel);
        }
    });
}

// Mirror, then exchange rows and columns: bits 1 (left to right), 2 (top to bottom) and 4 (of square images only).
static __device__ __forceinline__ void turn(Image& image, int bits) {
    bool is_diagonal = bits & 4 && image.all.height == image.all.width;
    write_other(image, [&](int y, int x, int* pixel) {
        int row = is_diagonal ? x : y, column = is_diagonal ? y : x;
        copy_pixel(image, bits & 2 ? image.all.height - 1 - row : row, bits & 1 ? image.all.width - 1 - column : column, 0, pixel);
    });
}

static __device__ __forceinline__ void shift(Image& image, const int* parameters) {
    unsigned down = parameters[0], right = parameters[1];
    write_other(image, [&](int y, int x, int* pixel) { copy_pixel(image, y - down, x - right, parameters + 2, pixel); });
}
