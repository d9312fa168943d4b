// phase_scheduler.cuh -- several phases in one launch: for each image, the blocks of a phase wait for earlier phases.
//
//   tickets  uint32 (2 + count)   zeros; zeros again when the launch is done
//
// Blocks draw tickets, numbered through the phases in order. So a block waits only for blocks with smaller numbers, which
// run already or are done: no block waits for one that the GPU has not started. Chained scans work the same way (Merrill
// and Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, 2016).
#pragma once

enum { NEXT, FINISHED, IMAGES };

#ifndef GPUBETON_PHASES

// Draw the next number.
static __device__ __forceinline__ unsigned draw_number(unsigned* next) { return atomicAdd(next, 1u); }

// Count one more; by one thread, after a barrier. A reader of the count can read what its block wrote before. (It is only
// a release: a fence would also drop the multiprocessor's L1 cache.)
static __device__ __forceinline__ unsigned count_one(unsigned* number) {
    unsigned counted;
    asm volatile("atom.add.release.gpu.u32 %0, [%1], 1;" : "=r"(counted) : "l"(number) : "memory");
    return counted;
}

// Wait for a count; by one thread. After its next barrier the block can read what was written before the count.
static __device__ __forceinline__ void wait_for(const unsigned* number, unsigned wanted) {
    for (unsigned counted = 0;; __nanosleep(64)) {
        asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(counted) : "l"(number) : "memory");
        if (counted >= wanted) return;
    }
}

#endif

// The part of the work of one block.
struct Ticket {
    int phase, image, block;
    unsigned before;  // blocks of the image's earlier phases
};

// Draw a ticket, and wait for the phases that it needs; for one thread. `blocks` has the number of blocks of an image in
// each phase; the launch has exactly their sum, for each image.
static __device__ __forceinline__ Ticket take_ticket(unsigned* tickets, const int* blocks, int phases, int count) {
    unsigned number = draw_number(tickets + NEXT);
    Ticket ticket = {0, 0, 0, 0};
    for (; ticket.phase < phases - 1 && number >= (unsigned)blocks[ticket.phase] * count; ticket.phase++) {
        number -= (unsigned)blocks[ticket.phase] * count;
        ticket.before += (unsigned)blocks[ticket.phase];
    }
    ticket.image = (int)(number / (unsigned)blocks[ticket.phase]);
    ticket.block = (int)(number % (unsigned)blocks[ticket.phase]);
    if (ticket.before > 0) wait_for(tickets + IMAGES + ticket.image, ticket.before);
    return ticket;
}

// Report that a block is done; for one thread, after a barrier. The last block clears the table.
static __device__ __forceinline__ void end_ticket(unsigned* tickets, int image, unsigned blocks_of_image, int count) {
    if (count_one(tickets + IMAGES + image) + 1 < blocks_of_image) return;
    atomicExch(tickets + IMAGES + image, 0u);
    if (count_one(tickets + FINISHED) + 1 < (unsigned)count) return;
    atomicExch(tickets + FINISHED, 0u);
    atomicExch(tickets + NEXT, 0u);
}
