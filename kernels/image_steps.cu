// image_steps.cu -- carries out the steps of each image, and writes output values.
//
//   pictures    Picture (count,)                   null; or images that another kernel makes (row < 0) are not touched
//   rows        int32   (count, num_rows, 16)      steps of each image, see step_rows.cuh
//   levels      uint8   (count, height, width, 3)  from resample.cu; changed
//   other       uint8   of the same size           null if no step moves pixels to other places
//   blurred     uint16  of the same size           null without BLUR
//   mixtures    int32   of the same size           null without SAVE, ADD and FINISH
//   kept        uint8   of the same size           as `mixtures`
//   table       uint32  (256, 3)                   bits of the output value of each level and channel; null: levels stay
//   item_size   int                                1, 2 or 4: bytes of an output value
//   out         (count, height, width, 3)          written
//
// The result is bit for bit that of gpubeton/_batch/run_steps.py. Rows may hold anything: a kind that does not exist, or
// that needs a buffer which is null, changes nothing. Launch: grid (count, 1, 1), block (512): the steps of an image follow
// each other, each of them over all of its pixels.
//
// To write output values, a warp takes 512 pixels at a time. Four times, each lane loads four pixels, next to its
// neighbor's, applies the steps that wait, and puts the levels into shared memory. Then a lane takes as many neighboring
// levels as make 16 bytes of output: its own values are 24 bytes from its neighbor's, and would be stored in parts of
// sectors. If the number of pixels is no multiple of 8, values are stored one by one, several times slower.

#include "picture.cuh"
#include "step_filters.cuh"
#include "step_mixtures.cuh"
#include "step_points.cuh"
#include "step_room.cuh"
#include "step_warps.cuh"

// Carry out a step that is not applied to each pixel by itself, and has `count` parameters: at least 14.
static __device__ __forceinline__ void change_image(const Image& image, int kind, const int* parameters, int count) {
    if (image.all.other && kind == SHARPNESS) sharpen(image, parameters[0]);
    if (image.all.blurred && kind == BLUR) blur(image, parameters, count);
    bool is_warp = kind == WARP_NEAREST || kind == WARP_BILINEAR || (kind == PERSPECTIVE && count > IS_BILINEAR);
    if (image.all.other && is_warp) warp(image, kind, parameters);
    if (image.all.other && kind == TURN) turn(image, parameters[0]);
    if (image.all.other && kind == SHIFT) shift(image, parameters);
    if (image.all.mixtures && kind >= SAVE && kind <= FINISH) mix(image, kind, parameters[0]);
}

template <class Item>
static __device__ __forceinline__ void store_values(const unsigned* made, int values, const void* table, Item* target,
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

// Apply the steps that wait, and write output values; `out` is the image's first byte.
static __device__ __forceinline__ void write_values(const Image& image, const unsigned* table,
                                                    int item_size, unsigned char* out) {
    Room& room = image.room;
    block_step([&](int thread) { load_table_of(item_size, table, room.values, thread, THREADS); });
    each_warp([&](int warp) {
        unsigned* made = room.scratch + warp * WARP_WORDS;
        for (int start = warp * WARP_PIXELS; start < pixels_of(image); start += WARPS * WARP_PIXELS) {
            int stop = min(pixels_of(image), start + WARP_PIXELS), values = CHANNELS * (stop - start);
            long long place = CHANNELS * (long long)start;
            warp_step([&](int lane) {
#pragma unroll 1
                for (int first = start + PIXELS * lane; first < stop; first += 32 * PIXELS) {
                    int pixels[PIXELS][3];
                    load_changed(image, first, pixels);
                    pack_pixels(pixels, made + CHANNELS * (first - start) / 4);
                }
            });
            warp_step([&](int lane) {
                if (item_size == 1) store_values(made, values, room.values, out + place, lane);
                if (item_size == 2) store_values(made, values, room.values, (unsigned short*)out + place, lane);
                if (item_size == 4) store_values(made, values, room.values, (unsigned*)out + place, lane);
            });
        }
    });
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    image_steps(const Picture* __restrict__ pictures, const int* rows, int num_rows,
                unsigned char* levels, unsigned char* other, unsigned short* blurred, int* mixtures,
                unsigned char* kept, int height, int width, const unsigned* __restrict__ table, int item_size,
                void* out) {
    __shared__ Room room;
    if (block_is_done() || (pictures && pictures[blockIdx.x].row < 0)) return;
    const Images images = {rows, num_rows, levels, other, blurred, mixtures, kept};
    const Image image = {images, room};
    block_step([&](int thread) {
        if (thread != 0) return;
        room.place = CHANNELS * (long long)blockIdx.x * (height * width);
        room.height = height;
        room.width = width;
        room.row = room.num_points = room.num_tables = 0;
        room.is_in_other = false;
    });
    while (room.row < num_rows) {
        if (int purpose = purpose_of(image, row_of(image)[KIND])) pass_points(image, purpose);
        int kind = row_of(image)[KIND];
        if (is_point(kind))
            begin_point(image, kind, row_of(image) + PARAMETERS);
        else
            change_image(image, kind, row_of(image) + PARAMETERS, STEP_COLUMNS * span_of(image) - PARAMETERS);
        update([&] { room.row += span_of(image); });
    }
    write_values(image, table, item_size, (unsigned char*)out + room.place * item_size);
}
