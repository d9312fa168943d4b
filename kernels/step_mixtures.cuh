// step_mixtures.cuh -- steps of AugMix: several changes of an image add up; gpubeton/_batch/augmix_steps.py defines how.
#pragma once

#include "step_room.cuh"

// The mixture of four pixels.
static __device__ __forceinline__ int* mixture_of(const Image& image, int first) {
    return image.all.mixtures + image.room.place + CHANNELS * (long long)first;
}

static __device__ __forceinline__ void copy_four(const Image& image, const unsigned char* source,
                                                 unsigned char* target, int first) {
    int pixels[PIXELS][3];
    unsigned words[3];
    load_four(image, source, first, pixels);
    pack_pixels(pixels, words);
    store_four(image, target, first, words);
}

static __device__ __forceinline__ void save(const Image& image) {
    each_four(image, [&](int first) {
        copy_four(image, levels_of(image), image.all.kept + image.room.place, first);
        for (int i = 0; i < PIXEL_BYTES; i++)
            if (first + i / 3 < pixels_of(image)) mixture_of(image, first)[i] = 0;
    });
}

static __device__ __forceinline__ void add_to_mixture(const Image& image, unsigned weight) {
    each_four(image, [&](int first) {
        int pixels[PIXELS][3];
        load_four(image, levels_of(image), first, pixels);
        for (int i = 0; i < PIXEL_BYTES; i++)
            if (first + i / 3 < pixels_of(image)) mixture_of(image, first)[i] += weight * (unsigned)pixels[i / 3][i % 3];
        copy_four(image, image.all.kept + image.room.place, levels_of(image), first);
    });
}

static __device__ __forceinline__ void finish_mixture(const Image& image) {
    each_four(image, [&](int first) {
        int pixels[PIXELS][3] = {};
        unsigned words[3];
        for (int i = 0; i < PIXEL_BYTES; i++)
            if (first + i / 3 < pixels_of(image))
                pixels[i / 3][i % 3] = level_of((int)(mixture_of(image, first)[i] + (unsigned)ONE / 2));
        pack_pixels(pixels, words);
        store_four(image, levels_of(image), first, words);
    });
}
