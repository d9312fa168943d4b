// table.cuh -- looks up the output value of each level, and stores 16 bytes of values at a time.
#pragma once

enum { LEVELS = 256, CHANNELS = 3 };

// Copy the table, uint32 of shape (256, 3), to shared memory, each value as wide as in the output. Without a table a level
// is its own value.
template <class Item>
static __device__ __forceinline__ void load_table(const unsigned* table, void* shared, int thread, int threads) {
    for (int i = thread; i < LEVELS * CHANNELS; i += threads)
        ((Item*)shared)[i] = (Item)(table ? table[i] : (unsigned)i / CHANNELS);
}

static __device__ __forceinline__ void load_table_of(int item_size, const unsigned* table, void* shared, int thread,
                                                     int threads) {
    if (item_size == 1) load_table<unsigned char>(table, shared, thread, threads);
    if (item_size == 2) load_table<unsigned short>(table, shared, thread, threads);
    if (item_size == 4) load_table<unsigned>(table, shared, thread, threads);
}

// The number of values in 16 bytes.
template <class Item>
struct Wide {
    enum { VALUES = 16 / sizeof(Item), BITS = 8 * sizeof(Item), WORDS = (VALUES + 3) / 4 };
};

// Look up 16 bytes of values. Their levels are the bytes of `words`; `channel` is the channel of the first.
template <class Item>
static __device__ __forceinline__ uint4 look_up(const unsigned* words, int channel, const void* shared) {
    const Item* tables[CHANNELS];
    for (int c = 0; c < CHANNELS; c++)
        tables[c] = (const Item*)shared + (channel + c < CHANNELS ? channel + c : channel + c - CHANNELS);
    unsigned made[4] = {0, 0, 0, 0};
    for (int i = 0; i < Wide<Item>::VALUES; i++) {
        unsigned level = __byte_perm(words[i / 4], 0, 0x4440 + i % 4);
        made[i * Wide<Item>::BITS / 32] |= (unsigned)tables[i % CHANNELS][CHANNELS * level]
                                           << (i * Wide<Item>::BITS % 32);
    }
    return make_uint4(made[0], made[1], made[2], made[3]);
}

// Store 16 bytes of values where only those from `start` to `stop` are ours, or the target is not aligned.
template <class Item>
static __device__ __forceinline__ void store_some(Item* target, uint4 values, int start, int stop) {
    const unsigned made[4] = {values.x, values.y, values.z, values.w};
    for (int i = 0; i < Wide<Item>::VALUES; i++)
        if (i >= start && i < stop)
            target[i] = (Item)(made[i * Wide<Item>::BITS / 32] >> (i * Wide<Item>::BITS % 32));
}
