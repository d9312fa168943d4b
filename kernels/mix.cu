// mix.cu -- mixup and cutmix: mixes each image with another one of the batch inside a box, and writes output values.
//
//   levels     uint8   (count, height, width, 3)
//   mixes      int32   (count, 6)                  partner, weight (in units of 2**-15) and box of each image
//   table      uint32  (256, 3)                    bits of the output value of each level and channel
//   item_size  int                                 1, 2 or 4: bytes of an output value
//   out        (count, height, width, 3)           written; other memory than `levels`
//
// The result is bit for bit that of gpubeton/_batch/mix.py.
//
// Launch: grid (n * count, 1, 1), block (128); any n works, ceil(3 * height * width * item_size / 8192) is enough.
//
// A thread makes 16 bytes of output values at a time, next to its neighbor's, so memory accesses are coalesced. Values
// are mixed one by one; only the box needs a pixel's place. Outputs are written in aligned pieces of 16 bytes; an image's
// first and last piece may have values of its neighbors.

#include "block.cuh"
#include "steps.cuh"
#include "table.cuh"

// Columns of an image's mix; gpubeton/_batch/mix.py in Python.
enum Mix { PARTNER, WEIGHT, TOP, LEFT, BOTTOM, RIGHT, MIX_COLUMNS };

enum { ONE_SHIFT = 15, ONE = 1 << ONE_SHIFT };

// The work on one image.
struct Job {
    const unsigned char *own, *partner;
    int values, row;                // of the image, and of one row of it
    int top, bottom, left, right;   // the box; left and right counted in values of a row
    int weight;
    bool is_everywhere;             // whether the box is the whole image
};

static __device__ __forceinline__ Job job_of(const unsigned char* levels, const int* mix, long long image, int height,
                                             int width) {
    Job job;
    job.row = CHANNELS * width;
    job.values = height * job.row;
    job.own = levels + image * job.values;
    job.partner = levels + (long long)mix[PARTNER] * job.values;
    job.top = mix[TOP];
    job.bottom = mix[BOTTOM];
    job.left = CHANNELS * mix[LEFT];
    job.right = CHANNELS * mix[RIGHT];
    job.weight = mix[WEIGHT];
    job.is_everywhere = job.top <= 0 && job.left <= 0 && job.bottom >= height && job.right >= job.row;
    return job;
}

// A bit for each of the values from `first + start` to `first + stop`: 1 if it is inside the box.
static __device__ __forceinline__ unsigned inside_of(const Job& job, int first, int start, int stop) {
    if (job.is_everywhere) return ~0u;
    unsigned inside = 0;
    int y = (first + start) / job.row, x = (first + start) % job.row;
    for (int i = start; i < stop; i++) {
        if (y >= job.top && y < job.bottom && x >= job.left && x < job.right) inside |= 1u << i;
        if (++x == job.row) {
            x = 0;
            y++;
        }
    }
    return inside;
}

// Load the levels of 16 bytes of values. Only those from `start` to `stop` exist; the others become 0.
template <class Item>
static __device__ __forceinline__ void load_levels(const unsigned char* source, int start, int stop, unsigned* words) {
    constexpr int VALUES = Wide<Item>::VALUES;
    if (start == 0 && stop == VALUES && (unsigned long long)source % VALUES == 0) {
        if constexpr (VALUES == 16) {
            uint4 chunk = *(const uint4*)source;
            words[0] = chunk.x;
            words[1] = chunk.y;
            words[2] = chunk.z;
            words[3] = chunk.w;
        } else if constexpr (VALUES == 8) {
            uint2 chunk = *(const uint2*)source;
            words[0] = chunk.x;
            words[1] = chunk.y;
        } else {
            words[0] = *(const unsigned*)source;
        }
        return;
    }
    for (int i = 0; i < Wide<Item>::WORDS; i++) words[i] = 0;
    for (int i = 0; i < VALUES; i++)
        if (i >= start && i < stop) words[i / 4] |= (unsigned)source[i] << (i % 4 * 8);
}

// Make 16 bytes of values, except those of other images.
template <class Item>
static __device__ __forceinline__ void make_values(const Job& job, int first, const void* table, Item* target) {
    constexpr int VALUES = Wide<Item>::VALUES;
    int start = max(-first, 0), stop = min(job.values - first, VALUES);
    unsigned words[Wide<Item>::WORDS], others[Wide<Item>::WORDS];
    load_levels<Item>(job.own + first, start, stop, words);
    unsigned inside = inside_of(job, first, start, stop);
    if (inside != 0) {
        load_levels<Item>(job.partner + first, start, stop, others);
        unsigned mixed[Wide<Item>::WORDS] = {};
        for (int i = 0; i < VALUES; i++) {
            int own = (int)__byte_perm(words[i / 4], 0, 0x4440 + i % 4);
            int other = (int)__byte_perm(others[i / 4], 0, 0x4440 + i % 4);
            int level = (job.weight * own + (ONE - job.weight) * other) >> ONE_SHIFT;
            mixed[i / 4] |= (unsigned)(inside >> i & 1 ? level : own) << (i % 4 * 8);
        }
        for (int i = 0; i < Wide<Item>::WORDS; i++) words[i] = mixed[i];
    }
    // 48 is a multiple of 3, and before the image there are fewer values than that.
    uint4 found = look_up<Item>(words, (first + 48) % CHANNELS, table);
    if (start == 0 && stop == VALUES)
        *(uint4*)(target + first) = found;
    else
        store_some(target + first, found, start, stop);
}

template <class Item>
static __device__ __forceinline__ void make_image(const Job& job, const void* table, Item* target, const Share& share,
                                                  int thread) {
    constexpr int VALUES = Wide<Item>::VALUES;
    // Values between the 16-byte boundary before the image and the image.
    int pad = (int)((unsigned long long)target / sizeof(Item) % VALUES);
    long long stride = (long long)share.blocks * THREADS * VALUES;
    for (long long first = ((long long)share.block * THREADS + thread) * VALUES - pad; first < job.values; first += stride)
        make_values(job, (int)first, table, target);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mix(const unsigned char* __restrict__ levels, const int* __restrict__ mixes, int height, int width, int count,
        const unsigned* __restrict__ table, int item_size, void* __restrict__ out) {
    __shared__ unsigned values[LEVELS * CHANNELS];
    if (block_is_done()) return;
    const Share share = share_of_block(count);

    block_step([&](int thread) { load_table_of(item_size, table, values, thread, THREADS); });
    const Job job = job_of(levels, mixes + (long long)MIX_COLUMNS * share.image, share.image, height, width);
    block_step([&](int thread) {
        long long place = (long long)share.image * job.values;
        if (item_size == 1) make_image(job, values, (unsigned char*)out + place, share, thread);
        if (item_size == 2) make_image(job, values, (unsigned short*)out + place, share, thread);
        if (item_size == 4) make_image(job, values, (unsigned*)out + place, share, thread);
    });
}
