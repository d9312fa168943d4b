// taps.cu -- the taps of all output columns and rows of a batch, see taps.cuh.
//
//   draws    int32   (count, columns)              see draw.cuh
//   rule     int                                   how to interpolate: `Rule`
//   first    int32   (count, 2, side)              written, as are the next two; side = max(height, width)
//   weights  uint16  (count, 2, most_taps, side)
//   numbers  int32   (count, 2, side)
//   most     int32   (count, 2)                    zeroed by the caller; written
//
// One thread makes one column or row. Launch: grid (ceil(2 * side / 128) * count, 1, 1), block (128).

#include "block.cuh"
#include "taps.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    taps(const int* __restrict__ draws, int columns, int rule, int height, int width, int count, int most_taps,
         int* __restrict__ first, unsigned short* __restrict__ weights, int* __restrict__ numbers,
         int* __restrict__ most) {
    const Share share = share_of_block(count);
    int side = max(height, width), i = share.block * THREADS + (int)threadIdx.x;
    if (i >= 2 * side) return;
    make_taps(draws + (long long)share.image * columns, rule, height, width, share.image, i / side, i % side,
              {first, weights, numbers, most, side, most_taps});
}
