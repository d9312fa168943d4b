// color_step.cuh -- steps that change the colors of an image; gpubeton/_batch/color_formulas.py defines them.
//
// Factors are integers, in units of 2**-15, and everything that is computed from them is an integer: so the results are
// the CPU's to the bit. Floats would have to be converted to levels after each step, which GPUs do at an eighth of the
// rate of integer operations.
#pragma once

// ONE is the factor 1; MAX_FACTOR is that of color_formulas.py.
enum { ONE_SHIFT = 15, ONE = 1 << ONE_SHIFT, MAX_FACTOR = 256 };

// Pixels that a thread works on at the same time: three words.
enum { PIXELS = 4, PIXEL_BYTES = 3 * PIXELS };

// Limit a factor: so nothing that is computed from it exceeds 32 bits.
static __device__ __forceinline__ int limited(int factor, int most) { return min(max(factor, -most), most); }

static __device__ __forceinline__ long long divided_down(long long value, int divisor) {
    long long quotient = value / divisor;
    return quotient - (value % divisor < 0);
}

// The gray value of a pixel: FFCV's and torchvision's weights 0.2989, 0.587 and 0.114, rounded down.
static __device__ __forceinline__ int gray_of(const int* pixel) {
    return (int)((unsigned)(2989 * pixel[0] + 5870 * pixel[1] + 1140 * pixel[2]) / 10000u);
}

static __device__ __forceinline__ int level_of(int value) { return min(max(value >> ONE_SHIFT, 0), 255); }

// As torchvision rounds hues, floor(value * 255.999 / 255), where 0.999 / 255 is nearly 32864 / 2**23.
static __device__ __forceinline__ int hue_level_of(int value) {
    return (value + ((value >> 7) * 32864 >> 16)) >> ONE_SHIFT;
}

// HSV's hexagon has a circumference of 6 * side, with red at 0, green at 2 * side and blue at 4 * side; along it each
// channel is a trapezium. So a color's place on it needs no division.
static __device__ __forceinline__ void turn_hue(int* pixel, int factor) {
    int red = pixel[0], green = pixel[1], blue = pixel[2];
    int most = max(max(red, green), blue), least = min(min(red, green), blue);
    int chroma = most - least, side = chroma << ONE_SHIFT, base = least << ONE_SHIFT;
    int corner = most == red ? green - blue : most == green ? 2 * chroma + blue - red : 4 * chroma + red - green;
    int place = corner * ONE + 6 * factor * chroma;
    if (place < 0) place += 6 * side;
    if (place >= 6 * side) place -= 6 * side;
    pixel[0] = hue_level_of(base + min(max(abs(place - 3 * side) - side, 0), side));
    pixel[1] = hue_level_of(base + min(max(2 * side - abs(place - 2 * side), 0), side));
    pixel[2] = hue_level_of(base + min(max(2 * side - abs(place - 4 * side), 0), side));
}

// Add to a multiple of all levels: brightness, and contrast with the mean's share.
static __device__ __forceinline__ void blend(int* pixel, int factor, int added) {
    for (int c = 0; c < 3; c++) pixel[c] = level_of(factor * pixel[c] + added);
}

static __device__ __forceinline__ void saturate(int* pixel, int factor) {
    int gray = gray_of(pixel);
    for (int c = 0; c < 3; c++) pixel[c] = level_of(factor * (pixel[c] - gray) + (gray << ONE_SHIFT));
}

// Multiply saturation and value, and turn the hue; gpubeton/_batch/color_steps.py defines how. The factors are at most 2.
static __device__ __forceinline__ void change_hsv(int* pixel, unsigned saturation, unsigned value, int turn) {
    int red = pixel[0], green = pixel[1], blue = pixel[2];
    int most = max(max(red, green), blue), chroma = most - min(min(red, green), blue), side = chroma << 8;
    int corner = most == red ? green - blue : most == green ? 2 * chroma + blue - red : 4 * chroma + red - green;
    unsigned ratio = min(value, (unsigned)(255 << ONE_SHIFT) / (unsigned)max(most, 1)), top = ratio * (unsigned)most;
    unsigned share = min(saturation * (ratio >> 1) >> 14, top / (unsigned)max(chroma, 1));
    int place = corner * 256 + (6 * turn * chroma >> 7);
    if (place < 0) place += 6 * side;
    if (place >= 6 * side) place -= 6 * side;
    for (int c = 0; c < 3; c++) {
        int away = abs(place - side * (c ? 2 * c : 3)), height = c ? 2 * side - away : away - side;
        unsigned lost = (unsigned)(side - min(max(height, 0), side));
        pixel[c] = (int)(((top << 8) - share * lost + (1 << 22)) >> 23);
    }
}

// Load four pixels; those after the end are black.
static __device__ __forceinline__ void load_pixels(const unsigned char* source, long long bytes, int (*pixels)[3]) {
    if (bytes >= PIXEL_BYTES && (unsigned long long)source % 4 == 0) {
        unsigned words[3];
        for (int i = 0; i < 3; i++) words[i] = ((const unsigned*)source)[i];
        for (int i = 0; i < PIXEL_BYTES; i++) pixels[i / 3][i % 3] = (int)__byte_perm(words[i / 4], 0, 0x4440 + i % 4);
    } else {
        for (int i = 0; i < PIXEL_BYTES; i++) pixels[i / 3][i % 3] = i < bytes ? source[i] : 0;
    }
}

// Pack four pixels into three words.
static __device__ __forceinline__ void pack_pixels(const int (*pixels)[3], unsigned* words) {
    for (int i = 0; i < 3; i++) words[i] = 0;
    for (int i = 0; i < PIXEL_BYTES; i++) words[i / 4] |= (unsigned)pixels[i / 3][i % 3] << (i % 4 * 8);
}
