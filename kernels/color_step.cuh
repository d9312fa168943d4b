// color_step.cuh -- steps that change the colors of an image; gpubeton/_batch/color_formulas.py defines them.
//
// Factors are integers, in units of 2**-15, and everything that is computed from them is an integer: so the results are
// the CPU's to the bit. Floats would have to be converted to levels after each step, which GPUs do at an eighth of the
// rate of integer operations.
#pragma once

enum Kind { BRIGHTNESS, CONTRAST, SATURATION, HUE };

// ONE is the factor 1; MAX_STEPS is MAX_COLOR_STEPS of gpubeton/_plan/program.py.
enum { ONE_SHIFT = 15, ONE = 1 << ONE_SHIFT, MAX_STEPS = 24 };

// Pixels that a thread works on at the same time: three words.
enum { PIXELS = 4, PIXEL_BYTES = 3 * PIXELS };

struct Step {
    int kind, factor;
    int added;  // contrast: added to all levels, in units of 2**-15
};

// The steps of an image that change something.
struct Steps {
    int count;
    Step steps[MAX_STEPS];
};

static __device__ __forceinline__ long long divided_down(long long value, int divisor) {
    long long quotient = value / divisor;
    return quotient - (value % divisor < 0);
}

// Read the steps of an image before its contrast number `until`, or all of them (-1). `sums` has the sums of earlier
// contrasts. Return whether that contrast exists and changes something.
static __device__ __forceinline__ bool read_steps(const int* row, int num_steps, const unsigned long long* sums,
                                                  int pixels, int until, Steps& read) {
    read.count = 0;
    int contrasts = 0;
    for (int i = 0; i < num_steps && i < MAX_STEPS; i++) {
        Step step = {row[2 * i], row[2 * i + 1], 0};
        bool changes = step.factor != (step.kind == HUE ? 0 : ONE);
        if (step.kind == CONTRAST) {
            if (contrasts == until) return changes;
            if (changes) step.added = (int)divided_down((ONE - step.factor) * (long long)sums[contrasts], pixels);
            contrasts++;
        }
        if (changes) read.steps[read.count++] = step;
    }
    return false;
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

// Apply all steps to four pixels. All threads of a block have the same kinds of steps.
static __device__ __forceinline__ void apply_steps(const Steps& steps, int (*pixels)[3]) {
    for (int i = 0; i < steps.count; i++) {
        Step step = steps.steps[i];
        if (step.kind == HUE) {
            for (int p = 0; p < PIXELS; p++) turn_hue(pixels[p], step.factor);
        } else if (step.kind == SATURATION) {
            for (int p = 0; p < PIXELS; p++) {
                int gray = gray_of(pixels[p]);
                for (int c = 0; c < 3; c++)
                    pixels[p][c] = level_of(step.factor * (pixels[p][c] - gray) + (gray << ONE_SHIFT));
            }
        } else {
            for (int p = 0; p < PIXELS; p++)
                for (int c = 0; c < 3; c++) pixels[p][c] = level_of(step.factor * pixels[p][c] + step.added);
        }
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
