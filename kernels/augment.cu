// augment.cu -- from decoded pixels to the tensor that the network reads, in one launch.
//
//   pictures     Picture  (count,)               see picture.cuh
//   draws        int32    (count, columns)       see draw.cuh
//   rule         int                             how to interpolate, see taps.cuh
//   first, weights, numbers, most                room for what taps.cuh makes of the draws; `most` zeroed
//   fills        uint8    (F, 3)                 colors of paints
//   levels       uint8    (count, height, width, 3)   room for images whose colors are changed; null: none are
//   steps        int32    (count, num_steps, 2)  what is done to their colors, see color_step.cuh; at most MAX_STEPS
//   sums         uint64   (count, num_sums)      room for the sums of color_sum.cuh; zeroed
//   late_paints  int                             paints that come behind the changes of color: the first of them
//   num_paints   int                             and the one behind the last; no row of draws has fewer
//   table        uint32   (256, 3)               bits of the output value of each level and channel; null: levels stay
//   item_size    int                             1, 2 or 4: bytes of an output value
//   nonce        unsigned                        what canary.cu was given
//   out          (rows, height, width, 3)        written: row pictures[i].row for image i
//   status       int32    (count,)               zeroed; see `Status` in resample.cuh
//   tickets      uint32   (2 + count,)           zeroed, and zeros again at the end, see phase_scheduler.cuh
//
// The result is bit for bit that of gpubeton/cpu/resample.py and gpubeton/batch/color_formulas.py.
//
// The work has phases: taps, resampling, a sum of gray values for each contrast that images may have, colors. Blocks of a
// phase begin with an image as soon as the phases before it are through with it. What goes from phase to phase stays in
// the L2 cache, and one phase fills the multiprocessors that another leaves. Without changes of color, resampling
// paints, looks up and stores, and is the last phase. With them, image i has row i.
//
// Launch: as many blocks as `blocks_of` says for all images, as (n, 1, 1); block (128).

#include "color.cuh"
#include "color_sum.cuh"
#include "resample.cuh"
#include "steps.cuh"
#include "taps.cuh"
#include "phase_scheduler.cuh"

enum { MOST_PHASES = 3 + MAX_STEPS };

// So many blocks are to be on a multiprocessor at a time, which limits their registers. Where shared memory has room for
// fewer (64 or 100 kB, where others have 164 or 228), that limit would only make them spill.
#if __CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200
enum { BLOCKS_AT_A_TIME = 6 };
#else
enum { BLOCKS_AT_A_TIME = 8 };
#endif

// How many blocks each phase has for an image; gives the number of phases. gpubeton/gpu/launch.py counts them, too.
static __device__ __forceinline__ int blocks_of(int height, int width, bool has_colors, int num_sums, int* blocks) {
    int phases = 0, pixels = height * width;
    blocks[phases++] = 2 * ((max(height, width) + THREADS - 1) / THREADS);
    blocks[phases++] = (height + BLOCK_ROWS - 1) / BLOCK_ROWS;
    if (!has_colors) return phases;
    for (int i = 0; i < num_sums; i++) blocks[phases++] = (pixels + SUMMED_PIXELS - 1) / SUMMED_PIXELS;
    blocks[phases++] = (pixels + BLOCK_PIXELS - 1) / BLOCK_PIXELS;
    return phases;
}

// What a block shares; it is in one phase only.
union Room {
    ResampleRoom resample;
    SumRoom sum;
    ColorRoom color;
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_A_TIME)
    augment(const Picture* __restrict__ pictures, const int* __restrict__ draws, int columns, int rule, int height,
            int width, int count, int most_taps, int* first, unsigned short* weights, int* numbers, int* most,
            const unsigned char* __restrict__ fills, unsigned char* levels, const int* __restrict__ steps,
            int num_steps, unsigned long long* sums, int num_sums, int late_paints, int num_paints,
            const unsigned* __restrict__ table, int item_size, unsigned nonce, void* out, int* __restrict__ status,
            unsigned* tickets) {
    __shared__ int blocks[MOST_PHASES];
    __shared__ Ticket ticket;
    __shared__ unsigned blocks_of_image;
    __shared__ Room room;
    if (block_is_done()) return;
    bool has_colors = levels != nullptr;

    block_step([&](int thread) {
        if (thread != 0) return;
        int phases = blocks_of(height, width, has_colors, num_sums, blocks);
        blocks_of_image = 0;
        for (int i = 0; i < phases; i++) blocks_of_image += (unsigned)blocks[i];
        ticket = take_ticket(tickets, blocks, phases, count);
    });

    int side = max(height, width), image = ticket.image, block = ticket.block;
    const int* draw = draws + (long long)image * columns;
    const Taps taps = {first, weights, numbers, most, side, most_taps};
    if (ticket.phase == 0) {
        block_step([&](int thread) {
            make_taps(draw, rule, height, width, image, block % 2, block / 2 * THREADS + thread, taps);
        });
    } else if (ticket.phase == 1) {
        const Target target = {has_colors ? levels : out, has_colors ? nullptr : table, has_colors ? 1 : item_size,
                               height, width};
        const Picture picture = pictures[image];
        resample_block(picture, draw, fills, taps, target, image, block, nonce, status + image, room.resample);
    } else {
        const Recipe recipe = {steps + 2ll * image * num_steps, num_steps, sums + (long long)image * num_sums};
        int pixels = height * width;
        long long place = 3ll * image * pixels;
        if (ticket.phase < 2 + num_sums) {
            sum_block(levels + place, recipe, ticket.phase - 2, pixels, block, room.sum);
        } else {
            const LatePaints paints = {draw + DRAW_COLUMNS, fills, late_paints, num_paints, width};
            color_block(levels + place, recipe, paints, pixels, block, table, item_size,
                         (unsigned char*)out + place * item_size, room.color);
        }
    }
    block_step([](int) {});
    block_step([&](int thread) {
        if (thread == 0) end_ticket(tickets, ticket.image, blocks_of_image, count);
    });
}
