// colour_sum.cu -- sums of the gray values of images, as they are when it comes to a contrast.
//
//   levels    uint8   (count, pixels, 3)
//   steps     int32   (count, num_steps, 2)   kind and factor of each step, see colour_step.cuh; at most MAX_STEPS
//   contrast  int                             which contrast of each image's steps, from 0
//   pixels    int                             of an image: height * width
//   sums      uint64  (count, num_sums)       zeroed by the caller; column `contrast` is written, those before it read
//
// An image without that contrast, or with a factor of 1 there, is not read. Run once for each contrast that images may
// have, in order; then colour.cu. Sums are of whole numbers, so the order in which blocks come does not matter.
//
// Launch: grid (ceil(pixels / 16384), count), block (128); any grid.x will do.

#include "colour_step.cuh"
#include "steps.cuh"

enum { THREADS = 128, BLOCK_PIXELS = THREADS * PIXELS };

extern "C" __global__ void __launch_bounds__(THREADS)
    colour_sum(const unsigned char* __restrict__ levels, const int* __restrict__ steps, int num_steps, int contrast,
               int pixels, int count, unsigned long long* sums, int num_sums) {
    __shared__ Steps before;
    __shared__ int is_wanted;
    __shared__ unsigned partial[THREADS];
    if (block_is_done()) return;
    int image = (int)blockIdx.y;
    if (image >= count) return;

    unsigned long long* own = sums + (long long)image * num_sums;
    block_step([&](int thread) {
        if (thread == 0)
            is_wanted = read_steps(steps + 2ll * image * num_steps, num_steps, own, pixels, contrast, before);
    });
    if (!is_wanted) return;
    block_step([&](int thread) {
        const unsigned char* source = levels + 3ll * image * pixels;
        long long first = (long long)blockIdx.x * BLOCK_PIXELS + thread * PIXELS;
        // A thread's own sum stays below 2**32: it would take 16 million white pixels.
        unsigned sum = 0;
#pragma unroll 1
        for (; first < pixels; first += (long long)gridDim.x * BLOCK_PIXELS) {
            int four[PIXELS][3];
            load_pixels(source + 3 * first, 3 * (pixels - first), four);
            apply_steps(before, (int)first, four);
            for (int p = 0; p < PIXELS; p++)
                if (first + p < pixels) sum += (unsigned)gray_of(four[p]);
        }
        partial[thread] = sum;
    });
    block_step([&](int thread) {
        if (thread != 0) return;
        unsigned long long sum = 0;
        for (int i = 0; i < THREADS; i++) sum += partial[i];
        atomicAdd(own + contrast, sum);
    });
}
