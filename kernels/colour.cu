// colour.cu -- changes the colours of images, and writes them as what the network reads.
//
//   levels     uint8   (count, pixels, 3)
//   steps      int32   (count, num_steps, 2)   kind and factor of each step, see colour_step.cuh; at most MAX_STEPS
//   sums       uint64  (count, num_sums)       of the gray values before each contrast: what colour_sum.cu made
//   pixels     int                             of an image: height * width
//   table      uint32  (256, 3)                bits of the output value of each level and channel
//   item_size  int                             1, 2 or 4: bytes of an output value
//   out        (count, pixels, 3)              written; may be `levels` itself where item_size is 1
//
// The result is bit for bit that of gpubeton/transforms/colour_lines.py.
//
// Launch: grid (ceil(pixels / 8192), count), block (128); any grid.x will do.
//
// A warp takes 512 pixels at a time. Each lane loads four of them, next to its neighbour's, carries the steps out in
// registers and puts the levels into shared memory; that four times over. From there a lane takes as many neighbouring
// levels as make 16 bytes of output: the values that it has made itself lie 24 bytes from its neighbour's, and would be
// stored in parts of sectors. Where images are no multiples of 8 pixels, stores are of single values, some times slower.

#include "colour_step.cuh"
#include "steps.cuh"
#include "table.cuh"

enum { WARPS = 4, GROUPS = 4, WARP_PIXELS = 32 * PIXELS * GROUPS };

static __device__ __forceinline__ void make_pixels(const unsigned char* source, int bytes, const Steps& steps,
                                                   int place, unsigned* made) {
    int pixels[PIXELS][3];
    load_pixels(source, bytes, pixels);
    apply_steps(steps, place, pixels);
    unsigned words[3] = {0, 0, 0};
    for (int i = 0; i < PIXEL_BYTES; i++) words[i / 4] |= (unsigned)pixels[i / 3][i % 3] << (i % 4 * 8);
    for (int i = 0; i < 3; i++) made[i] = words[i];
}

template <class Item>
static __device__ __forceinline__ void store_pixels(const unsigned* made, int values, const void* table, Item* target,
                                                    int lane) {
    bool is_aligned = (unsigned long long)target % 16 == 0;
    for (int first = lane * Wide<Item>::VALUES; first < values; first += 32 * Wide<Item>::VALUES) {
        uint4 found = look_up<Item>(made + first / 4, first % CHANNELS, table);
        if (is_aligned && first + Wide<Item>::VALUES <= values)
            *(uint4*)(target + first) = found;
        else
            store_some(target + first, found, 0, values - first);
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    colour(const unsigned char* levels, const int* __restrict__ steps, int num_steps,
           const unsigned long long* __restrict__ sums, int num_sums, int pixels, int count,
           const unsigned* __restrict__ table, int item_size, void* out) {
    __shared__ Steps own;
    __shared__ unsigned made[WARPS][WARP_PIXELS * CHANNELS / 4];
    __shared__ unsigned values[LEVELS * CHANNELS];
    if (block_is_done()) return;
    int image = (int)blockIdx.y;
    if (image >= count) return;

    block_step([&](int thread) {
        load_table_of(item_size, table, values, thread, WARPS * 32);
        if (thread == 0)
            read_steps(steps + 2ll * image * num_steps, num_steps, sums + (long long)image * num_sums, pixels, -1, own);
    });
    each_warp([&](int warp) {
        int stride = (int)gridDim.x * WARPS * WARP_PIXELS;
        for (int first = ((int)blockIdx.x * WARPS + warp) * WARP_PIXELS; first < pixels; first += stride) {
            int length = min(WARP_PIXELS, pixels - first);
            long long place = CHANNELS * ((long long)image * pixels + first);
            warp_step([&](int lane) {
                int bytes = CHANNELS * length;
#pragma unroll 1
                for (int before = PIXEL_BYTES * lane; before < bytes; before += 32 * PIXEL_BYTES)
                    make_pixels(levels + place + before, bytes - before, own, first + before / CHANNELS,
                                made[warp] + before / 4);
            });
            warp_step([&](int lane) {
                if (item_size == 1)
                    store_pixels(made[warp], CHANNELS * length, values, (unsigned char*)out + place, lane);
                if (item_size == 2)
                    store_pixels(made[warp], CHANNELS * length, values, (unsigned short*)out + place, lane);
                if (item_size == 4) store_pixels(made[warp], CHANNELS * length, values, (unsigned*)out + place, lane);
            });
        }
    });
}
