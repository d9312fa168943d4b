// jpeg_across.cu -- resamples the samples of JPEGs across, to 16 bits, as gpubeton/_cpu/jpeg/ycbcr.py does.
//
//   jpegs      Jpeg   (count,)   see jpeg.cuh; samples are read, resampled ones written
//   draws      int32  (count, columns)
//   first, weights, numbers, most   from jpeg_taps.cu
//
// A thread makes eight rows of one output column: all need the same taps. Launch: grid (n * count, 1, 1), block (128), n
// the number of such eights of the largest window times ceil(width / 128), or fewer.

#include "block.cuh"
#include "jpeg_taps.cuh"
#include "levels.cuh"

enum { EIGHT = 8 };

static __device__ __forceinline__ void resample_column(const unsigned char* samples, int pitch, int origin,
                                                       const AxisTaps& taps, int x, unsigned short* out, int stride) {
    const unsigned char* source = samples + taps.first[x] - origin;
    const unsigned short* weight = taps.weights + x;
    int lost = lost_by(taps.most, taps.most), count = taps.numbers[x];
    Sum sums[EIGHT];
#pragma unroll
    for (int y = 0; y < EIGHT; y++) sums[y] = sum_from(lost);
#pragma unroll 1
    for (int k = 0; k < count; k++) {
        float fraction = fraction_of(weight[(long long)k * taps.side]);
#pragma unroll
        for (int y = 0; y < EIGHT; y++) add(sums[y], source[(long long)y * pitch + k], fraction);
    }
#pragma unroll
    for (int y = 0; y < EIGHT; y++) out[(long long)y * stride + x] = (unsigned short)sample_of(sums[y]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    jpeg_across(const Jpeg* __restrict__ jpegs, const int* __restrict__ draws, int columns, int height, int width, int count,
                int most_taps, int* first, unsigned short* weights, int* numbers, int* most) {
    const Share share = share_of_block(count);
    const Jpeg jpeg = jpegs[share.image];
    const JpegTaps taps = {first, weights, numbers, most, max(height, width), most_taps};
    if (!is_possible(jpeg, draws + (long long)share.image * columns, taps, share.image)) return;
    int chunks = (width + THREADS - 1) / THREADS, stride = stride_of(width);
    // Rows of blocks of Y, then of Cb and Cr.
    int luma = luma_rows(jpeg), all = luma + (jpeg.components - 1) * jpeg.rows;
    for (int number = share.block; number < all * chunks; number += share.blocks) {
        int row = number / chunks, x = number % chunks * THREADS + (int)threadIdx.x;
        if (x >= width) continue;
        bool is_luma = row < luma;
        const AxisTaps own = taps_of_axis(taps, share.image, is_luma ? (int)LUMA_ACROSS : chroma_axis(jpeg, LUMA_ACROSS));
        int across = is_luma ? luma_columns(jpeg) : jpeg.columns;
        long long before = is_luma ? (long long)row * across : luma_blocks(jpeg) + (long long)(row - luma) * across;
        int origin = EIGHT * jpeg.first_column * (is_luma ? jpeg.luma_across : 1);
        resample_column((const unsigned char*)jpeg.samples + 64 * before, EIGHT * across, origin, own, x,
                        (unsigned short*)jpeg.resampled + (long long)EIGHT * row * stride, stride);
    }
}
