// gather.cu -- copies rows of bytes at any alignment: crops of images that are stored without compression, from page-locked
// memory of the host (or from the device) to the memory that resample.cu reads.
//
//   gathers  Gather  (count,)
//
// Launch: grid (n * count, 1, 1), block (128); any n works, one for each 16 kB is enough.
//
// A warp copies a piece of 2 kB: it reads 16 aligned bytes per lane, which cross PCIe as whole lines and at the same time,
// puts them into shared memory, and writes 16 bytes per lane, aligned in the target. At the ends of a row bytes are copied
// one by one: nothing outside the rows is read or written.

#include "block.cuh"
#include "steps.cuh"

enum { CHUNK = 16, CHUNKS = 128, PIECE = CHUNKS * CHUNK };

struct Gather {
    unsigned long long source;  // first byte of the first row
    unsigned long long target;
    int source_pitch;           // bytes from one row to the next
    int target_pitch;
    int row_bytes;              // bytes to copy of each row
    int rows;
};
static_assert(sizeof(Gather) == 32, "as gpubeton._gpu.launch.GATHER");

// Read `size` bytes of a row into `piece`, after as many bytes as `source` is after a multiple of 16.
static __device__ __forceinline__ void read_piece(const unsigned char* source, int size, uint4* piece, int lane) {
    int before = (int)((unsigned long long)source % CHUNK);
    for (int chunk = lane; chunk * CHUNK < before + size; chunk += 32) {
        const unsigned char* from = source - before + chunk * CHUNK;
        int first = before - chunk * CHUNK, stop = before + size - chunk * CHUNK;
        if (first <= 0 && stop >= CHUNK)
            piece[chunk] = *(const uint4*)from;
        else
            for (int i = max(first, 0); i < min(stop, (int)CHUNK); i++) ((unsigned char*)(piece + chunk))[i] = from[i];
    }
}

// Write the bytes that begin `before` bytes into `piece`.
static __device__ __forceinline__ void write_piece(unsigned char* target, int size, const uint4* piece, int before,
                                                   int lane) {
    int ahead = (int)((unsigned long long)target % CHUNK);
    for (int chunk = lane; chunk * CHUNK < ahead + size; chunk += 32) {
        unsigned char* to = target - ahead + chunk * CHUNK;
        int first = ahead - chunk * CHUNK, stop = ahead + size - chunk * CHUNK;
        // The place of the chunk in the bytes that were read.
        int place = before - first;
        if (first <= 0 && stop >= CHUNK) {
            const unsigned* words = (const unsigned*)piece + place / 4;
            unsigned shift = (unsigned)place % 4 * 8, last = shift ? words[4] : 0;
            *(uint4*)to = make_uint4(__funnelshift_r(words[0], words[1], shift), __funnelshift_r(words[1], words[2], shift),
                                     __funnelshift_r(words[2], words[3], shift), __funnelshift_r(words[3], last, shift));
        } else {
            for (int i = max(first, 0); i < min(stop, (int)CHUNK); i++) to[i] = ((const unsigned char*)piece)[place + i];
        }
    }
}

// Eight blocks on a multiprocessor keep more reads in flight than PCIe can answer.
extern "C" __global__ void __launch_bounds__(THREADS, 8) gather(const Gather* __restrict__ gathers, int count) {
    // One chunk more, because a piece begins anywhere in its first chunk.
    __shared__ uint4 pieces[WARPS][CHUNKS + 1];
    if (block_is_done()) return;
    const Share share = share_of_block(count);
    const Gather gather = gathers[share.image];
    each_warp([&](int warp) {
        long long in_row = ((long long)gather.row_bytes + PIECE - 1) / PIECE, all = in_row * gather.rows;
        for (long long i = (long long)share.block * WARPS + warp; i < all; i += (long long)share.blocks * WARPS) {
            long long row = i / in_row, begin = i % in_row * PIECE;
            int size = (int)min((long long)PIECE, gather.row_bytes - begin);
            const unsigned char* source = (const unsigned char*)gather.source + row * gather.source_pitch + begin;
            unsigned char* target = (unsigned char*)gather.target + row * gather.target_pitch + begin;
            warp_step([&](int lane) { read_piece(source, size, pieces[warp], lane); });
            int before = (int)((unsigned long long)source % CHUNK);
            warp_step([&](int lane) { write_piece(target, size, pieces[warp], before, lane); });
        }
    });
}
