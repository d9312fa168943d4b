// jpeg_bits.cuh -- reads the bits of a JPEG's compressed data (T.81 F.2.2.5): without stuffed zeros, up to the next marker.
#pragma once

struct Bits {
    const unsigned char* next;  // the first byte that is not in the window
    const unsigned char* stop;  // the end of the bytes, or the first marker found
    unsigned long long window;  // the next bits, from the highest
    int filled;                 // how many there are
    int missing;                // how many of them are zeros after the last byte
    unsigned ahead;             // the word at `next`, if `has_word`
};

static __device__ __forceinline__ bool has_ff(unsigned word) {
    unsigned flipped = ~word;
    return ((flipped - 0x01010101u) & word & 0x80808080u) != 0;
}

// Append the next byte of the data, or 32 zeros after the last.
static __device__ __forceinline__ void append_byte(Bits& bits) {
    if (bits.next >= bits.stop) {
        bits.filled += 32;
        bits.missing += 32;
        return;
    }
    unsigned byte = *bits.next;
    if (byte == 0xff) {
        unsigned after = bits.stop - bits.next < 2 ? 1u : bits.next[1];
        // A fill byte, which may precede a marker, or a marker.
        if (after == 0xff) bits.next++;
        else if (after != 0) bits.stop = bits.next;
        if (after != 0) return;
        bits.next++;
    }
    bits.next++;
    bits.window |= (unsigned long long)byte << (56 - bits.filled);
    bits.filled += 8;
}

static __device__ __forceinline__ bool has_word(const Bits& bits) {
    return bits.stop - bits.next >= 4 && (unsigned long long)bits.next % 4 == 0;
}

// Load the next word some symbols before it is needed: memory is slow.
static __device__ __forceinline__ void look_ahead(Bits& bits) {
    if (has_word(bits)) bits.ahead = *(const unsigned*)bits.next;
}

// Have more than 32 bits in the window: enough for a code and its value.
static __device__ __forceinline__ void refill(Bits& bits) {
    while (bits.filled <= 32) {
        if (has_word(bits) && !has_ff(bits.ahead)) {
            bits.window |= (unsigned long long)__byte_perm(bits.ahead, 0, 0x0123) << (32 - bits.filled);
            bits.filled += 32;
            bits.next += 4;
        } else {
            append_byte(bits);
        }
        look_ahead(bits);
    }
}

static __device__ __forceinline__ void drop(Bits& bits, int count) {
    bits.window <<= count;
    bits.filled -= count;
}

// Begin at bit number `bit` of bytes number `begin` to before `end`; false if it is not among them.
static __device__ __forceinline__ bool begin_at(Bits& bits, const unsigned char* bytes, unsigned begin, unsigned end,
                                                unsigned bit) {
    if (bit / 8 < begin || bit / 8 >= end) return false;
    bits = {bytes + bit / 8, bytes + end, 0, 0, 0, 0};
    look_ahead(bits);
    refill(bits);
    drop(bits, (int)(bit % 8));
    return true;
}

// The number of the next bit, counted as in `begin_at`; -1 if there is none. Goes back over the bytes in the window.
static __device__ __forceinline__ long long place_of(const Bits& bits, const unsigned char* bytes, unsigned begin) {
    int left = bits.filled - bits.missing;
    if (left <= 0) return -1;
    const unsigned char *byte = bits.next, *first = bytes + begin;
    for (int i = (left + 7) / 8; i > 0; i--) {
        // Fill bytes: a data byte 0xff has a zero after it.
        while (byte - first > 1 && byte[-1] == 0xff) byte--;
        byte--;
        if (byte > first && *byte == 0 && byte[-1] == 0xff) byte--;
    }
    return 8 * (byte - bytes) + (8 - left % 8) % 8;
}

// Give the address after the marker that comes next, if it is this one and at most padding bits precede it; else null.
static __device__ __forceinline__ const unsigned char* after_marker(const Bits& bits, const unsigned char* end,
                                                                    unsigned marker) {
    int left = bits.filled - bits.missing;
    if (left < 0 || left >= 8 || bits.next != bits.stop) return nullptr;
    return end - bits.next >= 2 && bits.next[1] == marker ? bits.next + 2 : nullptr;
}
