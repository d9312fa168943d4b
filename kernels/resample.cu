// resample.cu -- from decoded pixels to images of the output's size, painted, as output values or as levels.
//
//   pictures   Picture  (count,)               see picture.cuh
//   draws      int32    (count, columns)       see draw.cuh
//   first, weights, numbers, most              from taps.cu
//   fills      uint8    (F, 3)                 colors of paints
//   table      uint32   (256, 3)               bits of the output value of each level and channel; null: levels stay
//   item_size  int                             1, 2 or 4: bytes of an output value
//   nonce      unsigned                        the same as for canary.cu
//   out        (rows, height, width, 3)        written: row pictures[i].row for image i
//   status     int32    (count,)               zeroed by the caller; see `Status` in resample.cuh
//
// The result is bit for bit that of gpubeton/_cpu/resample.py. Launch: grid (ceil(height / 8) * count, 1, 1), block (128).

#include "resample.cuh"

// The minimum number of blocks on a multiprocessor, which limits their registers. Where shared memory has room for fewer
// (64 or 100 kB; other architectures have 164 or 228), a stricter limit would only spill.
#if __CUDA_ARCH__ == 750 || __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ == 1200
enum { BLOCKS_AT_A_TIME = 6 };
#else
enum { BLOCKS_AT_A_TIME = 8 };
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_A_TIME)
    resample(const Picture* __restrict__ pictures, const int* __restrict__ draws, int columns, int height, int width,
             int count, int most_taps, int* first, unsigned short* weights, int* numbers, int* most,
             const unsigned char* __restrict__ fills, const unsigned* __restrict__ table, int item_size,
             unsigned nonce, void* out, int* __restrict__ status) {
    __shared__ ResampleRoom room;
    if (block_is_done()) return;
    const Share share = share_of_block(count);
    const Taps taps = {first, weights, numbers, most, max(height, width), most_taps};
    const Target target = {out, table, item_size, height, width};
    resample_block(pictures[share.image], draws + (long long)share.image * columns, fills, taps, target, share.image,
                   share.block, nonce, status + share.image, room);
}
