// block.cuh -- the size of blocks whose threads work together, and the image that a block works on.
#pragma once

enum { WARPS = 4, THREADS = 32 * WARPS };

// A launch has the same number of blocks for each image, one image after another along x: a grid may have 65535 blocks
// along y, fewer than a batch may have images.
struct Share {
    int image, block, blocks;  // the image, the number of the block among the image's blocks, and how many there are
};

static __device__ __forceinline__ Share share_of_block(int count) {
    unsigned blocks = gridDim.x / (unsigned)count;
    return {(int)(blockIdx.x / blocks), (int)(blockIdx.x % blocks), (int)blocks};
}
