// jpeg.cuh -- a baseline JPEG with entry points, of which the part below a crop is decoded; in Python
// gpubeton._gpu.launch.JPEG.
//
// The window of an image is the rectangle of MCUs that its crop needs. Per component, the window has the coefficients of its
// blocks, int16 (blocks down, blocks across, 64), each block by rows; then its samples, uint8 (8 * blocks down,
// 8 * blocks across); then the samples resampled across, uint16 (8 * blocks down, stride). Components follow one another:
// Y, Cb, Cr.
#pragma once

#include "draw.cuh"

struct Jpeg {
    unsigned long long bytes;         // address of its first byte, which may not be there itself
    unsigned long long entries;       // address of its entry points, of which the window's are there: ENTRY_WORDS words each
    unsigned long long quantization;  // address of uint8 (3, 64): factors of each component, by rows
    unsigned long long coefficients;  // address, a multiple of 16
    unsigned long long samples;       // address, a multiple of 8
    unsigned long long resampled;     // address, a multiple of 4
    unsigned begin, end;              // its bytes are there from number `begin` to before `end`
    int every;          // MCUs from one entry point to the next
    int is_restarted;   // 1 if entry points are restart intervals, which begin with a byte after a marker
    int height, width;  // in pixels
    int components;     // 1 or 3
    int luma_across, luma_down;  // blocks of Y in an MCU: 1 or 2; Cb and Cr have one
    int first_row, first_column, rows, columns;  // the window, in MCUs
    int row;                                     // of the batch that the image belongs to
};
static_assert(sizeof(Jpeg) == 104, "as gpubeton._gpu.launch.JPEG");

// An entry point: two words with the number of a bit, from the first bit of the JPEG, then the last DC value of each
// component before it.
enum { ENTRY_WORDS = 5 };

// The status of an image whose data are damaged; others are in resample.cuh.
enum { DAMAGED = 3 };

// Blocks of the window: of Y, and of Cb or Cr, across and down.
static __device__ __forceinline__ int luma_columns(const Jpeg& jpeg) { return jpeg.columns * jpeg.luma_across; }
static __device__ __forceinline__ int luma_rows(const Jpeg& jpeg) { return jpeg.rows * jpeg.luma_down; }
static __device__ __forceinline__ int luma_blocks(const Jpeg& jpeg) { return luma_rows(jpeg) * luma_columns(jpeg); }
static __device__ __forceinline__ int chroma_blocks(const Jpeg& jpeg) { return jpeg.rows * jpeg.columns; }

// Samples from one row to the next after resampling across: even, so that two neighbors are a word.
static __device__ __forceinline__ int stride_of(int width) { return (width + 1) / 2 * 2; }

static __device__ __forceinline__ bool is_inside(const Jpeg& jpeg, const int* draw) {
    return draw[TOP] >= 0 && draw[LEFT] >= 0 && draw[HEIGHT] >= 1 && draw[WIDTH] >= 1 &&
           draw[HEIGHT] <= jpeg.height - draw[TOP] && draw[WIDTH] <= jpeg.width - draw[LEFT];
}
