// steps.cuh -- kernels whose threads work together, as a sequence of steps: all threads can read what an earlier step wrote.
//
//   if (block_is_done()) return;             first in the kernel
//   block_step([&](int thread) { ... });     each thread of the block; then the block's barrier
//   each_warp([&](int warp) { ... });        once for each warp of the block
//   warp_step([&](int lane) { ... });        each lane of the warp; then the warp's barrier
//
// Between steps, variables hold only values that are the same for all threads (of the warp, of the block); everything else
// is in shared memory. So a barrier cannot be forgotten or be reached by some threads only, and the host build of the tests
// runs the threads of a step in any order. Blocks are flat: (n, 1, 1), n a multiple of 32.
#pragma once

#ifndef GPUBETON_STEPS

static __device__ __forceinline__ bool block_is_done() { return false; }

template <class Step>
static __device__ __forceinline__ void block_step(Step step) {
    step((int)threadIdx.x);
    __syncthreads();
}

template <class Step>
static __device__ __forceinline__ void each_warp(Step step) {
    step((int)(threadIdx.x / 32));
}

template <class Step>
static __device__ __forceinline__ void warp_step(Step step) {
    step((int)(threadIdx.x % 32));
    __syncwarp();
}

#endif
