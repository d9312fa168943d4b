// jpeg_taps.cu -- the taps of all output columns and rows of JPEGs, see jpeg_taps.cuh.
//
//   jpegs    Jpeg    (count,)                      see jpeg.cuh
//   draws    int32   (count, columns)              see draw.cuh
//   rule     int                                   how to interpolate: `Rule` of taps.cuh
//   first    int32   (count, 4, side)              written, as are the next two; side = max(height, width)
//   weights  uint16  (count, 4, most_taps, side)
//   numbers  int32   (count, 4, side)
//   most     int32   (count, 4)                    zeroed by the caller; written
//
// One thread makes one column or row. Launch: grid (ceil(2 * side / 128) * count, 1, 1), block (128).

#include "block.cuh"
#include "jpeg_taps.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    jpeg_taps(const Jpeg* __restrict__ jpegs, const int* __restrict__ draws, int columns, int rule, int height, int width,
              int count, int most_taps, int* __restrict__ first, unsigned short* weights, int* __restrict__ numbers,
              int* __restrict__ most) {
    const Share share = share_of_block(count);
    int side = max(height, width), i = share.block * THREADS + (int)threadIdx.x;
    if (i >= 2 * side) return;
    make_jpeg_taps(jpegs[share.image], draws + (long long)share.image * columns, rule, height, width, share.image, i / side,
                   i % side, {first, weights, numbers, most, side, most_taps});
}
