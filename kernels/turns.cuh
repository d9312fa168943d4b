// turns.cuh -- phases in one launch: image by image, the blocks of a phase wait for those of the phases before it.
//
//   turns  uint32 (2 + count)   zeros; zeros again when the launch is done
//
// Blocks draw numbers, and numbers go through the phases in order. So a block waits only for blocks with smaller numbers,
// which run already or are done: whichever blocks the GPU begins with, none waits for one that has no place. Chained
// scans work the same way (Merrill and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016).
#pragma once

enum { NEXT, FINISHED, IMAGES };

#ifndef GPUBETON_TURNS

// Draw the next number.
static __device__ __forceinline__ unsigned draw_number(unsigned* next) { return atomicAdd(next, 1u); }

// Count one more; by one thread, behind a barrier. What its block wrote before can be read by whoever sees the count. (It
// is a release alone: a fence would throw away what the multiprocessor has in its L1 cache.)
static __device__ __forceinline__ unsigned count_one(unsigned* number) {
    unsigned counted;
    asm volatile("atom.add.release.gpu.u32 %0, [%1], 1;" : "=r"(counted) : "l"(number) : "memory");
    return counted;
}

// Wait for a count; by one thread. What was written before it can be read by the block behind its next barrier.
static __device__ __forceinline__ void wait_for(const unsigned* number, unsigned wanted) {
    for (unsigned counted = 0;; __nanosleep(64)) {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(counted) : "l"(number) : "memory");
        if (counted >= wanted) return;
    }
}

#endif

// Which part of the work a block has drawn.
struct Turn {
    int phase, image, block;
    unsigned before;  // blocks of the image's earlier phases
};

// Draw a number, and wait until what it needs is there; for one thread. `blocks` has the number of blocks of an image in
// each phase; there are exactly as many blocks as these make together.
static __device__ __forceinline__ Turn take_turn(unsigned* turns, const int* blocks, int phases, int count) {
    unsigned number = draw_number(turns + NEXT);
    Turn turn = {0, 0, 0, 0};
    for (; turn.phase < phases - 1 && number >= (unsigned)blocks[turn.phase] * count; turn.phase++) {
        number -= (unsigned)blocks[turn.phase] * count;
        turn.before += (unsigned)blocks[turn.phase];
    }
    turn.image = (int)(number / (unsigned)blocks[turn.phase]);
    turn.block = (int)(number % (unsigned)blocks[turn.phase]);
    if (turn.before > 0) wait_for(turns + IMAGES + turn.image, turn.before);
    return turn;
}

// Say that a block has done its part; for one thread, behind a barrier. Whoever is last clears the table.
static __device__ __forceinline__ void end_turn(unsigned* turns, int image, unsigned blocks_of_image, int count) {
    if (count_one(turns + IMAGES + image) + 1 < blocks_of_image) return;
    atomicExch(turns + IMAGES + image, 0u);
    if (count_one(turns + FINISHED) + 1 < (unsigned)count) return;
    atomicExch(turns + FINISHED, 0u);
    atomicExch(turns + NEXT, 0u);
}
