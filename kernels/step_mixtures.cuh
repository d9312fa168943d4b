// step_mixtures.cuh -- steps of AugMix: several changes of an image add up; gpubeton/_batch/augmix_steps.py defines how.
#pragma once

#include "step_room.cuh"

// SAVE, ADD or FINISH.
static __device__ __forceinline__ void mix(const Image& image, int kind, unsigned weight) {
    unsigned char *levels = levels_of(image), *kept = image.all.kept + image.room.place;
    each_four(image, [&](int first) {
        int pixels[PIXELS][3], *mixture = image.all.mixtures + image.room.place + CHANNELS * (long long)first;
        load_four(image, levels, first, pixels);
        for (int i = 0; i < PIXEL_BYTES; i++) {
            if (first + i / 3 >= pixels_of(image)) continue;
            int& level = pixels[i / 3][i % 3];
            if (kind == SAVE) mixture[i] = 0;
            if (kind == ADD) mixture[i] += weight * (unsigned)level;
            if (kind == FINISH) level = level_of((int)(mixture[i] + (unsigned)ONE / 2));
        }
        if (kind == ADD) load_four(image, kept, first, pixels);
        store_four(image, kind == SAVE ? kept : levels, first, pixels);
    });
}
