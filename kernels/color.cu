// color.cu -- changes the colors of images, paints what comes after that, and writes output values.
//
//   levels       uint8   (count, height, width, 3)   from resample.cu
//   steps, sums                                      as for color_sum.cu, which has added up all sums
//   draws        int32   (count, columns)            see draw.cuh
//   fills        uint8   (F, 3)                      colors of paints
//   late_paints  int                                 the first of the paints that come after the changes of color
//   num_paints   int                                 and the number of all paints; no row of draws has fewer
//   table        uint32  (256, 3)                    bits of the output value of each level and channel; null: levels stay
//   item_size    int                                 1, 2 or 4: bytes of an output value
//   out          (count, height, width, 3)           written
//
// The result is bit for bit that of gpubeton/_batch/color_formulas.py. Launch: grid (ceil(height * width / 8192) * count,
// 1, 1), block (128).

#include "color.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    color(const unsigned char* __restrict__ levels, const int* __restrict__ steps, int num_steps,
          unsigned long long* sums, int num_sums, const int* __restrict__ draws, int columns,
          const unsigned char* __restrict__ fills, int late_paints, int num_paints, int height, int width, int count,
          const unsigned* __restrict__ table, int item_size, void* __restrict__ out) {
    __shared__ ColorRoom room;
    if (block_is_done()) return;
    const Share share = share_of_block(count);
    const Recipe recipe = {steps + 2ll * share.image * num_steps, num_steps, sums + (long long)share.image * num_sums};
    const int* paints = draws + (long long)share.image * columns + DRAW_COLUMNS;
    const LatePaints late = {paints, fills, late_paints, num_paints, width};
    int pixels = height * width;
    long long place = 3ll * share.image * pixels;
    color_block(levels + place, recipe, late, pixels, share.block, table, item_size,
                (unsigned char*)out + place * item_size, room);
}
