// canary.cuh -- bytes written to an image's memory before it is decoded: if they are still there, nothing was decoded.
//
// Each byte is a hash of its address and of a number that changes with every batch. So neither an earlier batch nor a
// neighbor has the same bytes, and places that overlap agree.
#pragma once

#include "picture.cuh"

enum { CANARY_PLACES = 3, CANARY_BYTES = 8 };

static __device__ __forceinline__ unsigned char canary_byte(unsigned nonce, unsigned long long address) {
    unsigned mixed = nonce * 0x9e3779b9u ^ (unsigned)address ^ ((unsigned)(address >> 32) * 0x85ebca6bu);
    mixed ^= mixed >> 16;
    mixed *= 0x7feb352du;
    mixed ^= mixed >> 15;
    mixed *= 0x846ca68bu;
    return (unsigned char)(mixed >> 24);
}

// The bytes of a place: eight, or the whole row of a narrower image.
static __device__ __forceinline__ int canary_size(const Picture& picture) {
    return picture.width < 1 || picture.height < 1 ? 0 : min((int)CANARY_BYTES, 3 * picture.width);
}

// The beginning of the first row, the middle of the middle row, the end of the last row: decoders write from top to
// bottom, some in bands at the same time, and one that stops leaves the end.
static __device__ __forceinline__ unsigned char* canary_place(const Picture& picture, int place) {
    int spare = 3 * picture.width - canary_size(picture);
    long long row = place == 0 ? 0 : place == 1 ? picture.height / 2 : picture.height - 1;
    int offset = place == 0 ? 0 : place == 1 ? spare / 2 : spare;
    return (unsigned char*)picture.address + row * picture.pitch + offset;
}

static __device__ __forceinline__ bool is_canary_left(const Picture& picture, int place, unsigned nonce) {
    int size = canary_size(picture);
    const unsigned char* bytes = canary_place(picture, place);
    for (int i = 0; i < size; i++)
        if (bytes[i] != canary_byte(nonce, (unsigned long long)(bytes + i))) return false;
    return size > 0;
}
