// step_rows.cuh -- columns of a row of steps; gpubeton/_batch/step_rows.py in Python.
#pragma once

enum Kind {
    KEEP, BRIGHTNESS, CONTRAST, SATURATION, HUE, SOLARIZE, SOLARIZE_ADD, POSTERIZE, INVERT, AUTOCONTRAST, EQUALIZE,
    SHARPNESS, BLUR, WARP_NEAREST, WARP_BILINEAR, PERSPECTIVE, PAINT, TURN, SHIFT, HSV, SAVE, ADD, FINISH
};

enum { KIND, SPAN, PARAMETERS, STEP_COLUMNS = 16 };

// Of a fill in two columns: the level of a channel.
static __device__ __forceinline__ int fill_of(const int* columns, int channel) {
    return columns[channel / 2] >> (channel % 2 * 16) & 255;
}

// Of an int64 in two columns: the number.
static __device__ __forceinline__ long long word_of(const int* columns, int number) {
    return (long long)((unsigned long long)(unsigned)columns[2 * number + 1] << 32 | (unsigned)columns[2 * number]);
}
