// color_sum.cu -- for each image the sum of the gray values before one of its contrasts, see color_sum.cuh.
//
//   levels    uint8   (count, pixels, 3)       from resample.cu
//   steps     int32   (count, num_steps, 2)    changes of the colors, see color_step.cuh; at most MAX_STEPS
//   sums      uint64  (count, num_sums)        zeroed by the caller; the sums of earlier contrasts are complete
//   contrast  int                              the contrast, from 0
//
// Launch, for one contrast after another: grid (ceil(pixels / 16384) * count, 1, 1), block (128).

#include "color_sum.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    color_sum(const unsigned char* __restrict__ levels, const int* __restrict__ steps, int num_steps,
              unsigned long long* sums, int num_sums, int contrast, int pixels, int count) {
    __shared__ SumRoom room;
    if (block_is_done()) return;
    const Share share = share_of_block(count);
    const Recipe recipe = {steps + 2ll * share.image * num_steps, num_steps, sums + (long long)share.image * num_sums};
    sum_block(levels + 3ll * share.image * pixels, recipe, contrast, pixels, share.block, room);
}
