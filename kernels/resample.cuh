// resample.cuh -- resizes crops to the output's size, paints and stores them.
//
// The result is bit for bit that of gpubeton/_cpu/resample.py: first down, rounded to 8 bits, then across.
//
// The cost, and the reasons for this design. An image of 224 x 224 half floats from a crop of 310 x 310 reads 290 kB and
// writes 300 kB: 12 bytes for each output pixel. A GPU of 4.8 TB/s and 132 multiprocessors moves them in the time of 70
// instructions, so instructions matter as much as bytes. The code for sm_90 has about 100 for a pixel; one thread for each
// pixel that reads byte by byte would take more than twice as many. So:
//
// - A warp makes two output rows at a time. It resamples down into shared memory, 16 bytes of a source row per lane,
//   of any color: reads are whole and coalesced, each source column is computed once (one thread for each output pixel
//   would compute it two or three times), and a product costs two instructions, see levels.cuh.
// - Across, a lane makes one output column, and both rows share each weight. Weights of neighboring columns are
//   neighbors in memory.
// - Levels go back to shared memory, are painted there, looked up in the table and stored 16 bytes at a time.
// - After the table is loaded, no warp waits for another one, and with 3.6 kB of shared memory for each warp a
//   multiprocessor holds most of the warps that it can: some compute while others wait for reads.
#pragma once

#include "block.cuh"
#include "draw.cuh"
#include "levels.cuh"
#include "canary.cuh"
#include "steps.cuh"
#include "table.cuh"
#include "taps.cuh"

// The result for an image.
enum Status {
    DONE = 0,
    MISSING = 1,     // a canary is left: the image, or a part of it, was not decoded
    WRONG_CROP = 2,  // the crop is not inside the image, or has more taps than fit: nothing was written
};

// A warp makes ROWS rows of at most COLUMNS columns at a time, a block BLOCK_ROWS of them.
enum { ROWS = 2, BLOCK_ROWS = WARPS * ROWS, COLUMNS = 256 };

// Source columns are resampled down in chunks of 16 bytes; a warp has memory for so many.
enum { CHUNK = 16, CHUNKS = 64 };

// The output.
struct Target {
    void* out;
    const unsigned* table;  // uint32 (256, 3): bits of the output value of each level and color; null: levels are stored
    int item_size;          // 1, 2 or 4: bytes of an output value
    int height, width;
};

// The same for all images. It stays in registers, where the compiler knows the address space of these pointers.
struct Given {
    const int *first, *numbers;
    const unsigned short* weights;
    const unsigned char* fills;
    int side, height;
};

// One image, the same for all threads of a block.
struct Job {
    const unsigned char* crop;
    const int* paints;
    unsigned char* target;                   // its first byte in the output
    long long across, down;                  // its columns and rows in `first` and `numbers`
    long long weights_across, weights_down;  // and in `weights`
    int pitch, crop_height, num_paints;
    int most_across, most_down;
    int item_size, block;
    bool is_aligned;
};

// Columns of two output rows that a warp makes at the same time.
struct Strip {
    int y;                        // the first of the rows
    int begin, length;            // the columns
    int source;                   // first byte that is resampled down, in the crop's rows; aligned to 16
    int chunks;                   // number of chunks
    unsigned char* target[ROWS];  // its first byte in the output
    int pad[ROWS];                // output values from the 16-byte boundary before it to it
};

// The shared memory of a warp.
struct Workspace {
    uint4 resampled[ROWS][CHUNKS + 1];                  // source columns, resampled down; one chunk more may be read
    uint4 levels[ROWS][(3 * COLUMNS + CHUNK) / CHUNK];  // output columns, `pad` values before them
    Strip strip;
};

// Prepare a strip of at most `length` columns: as many as fit, if possible whole warps of columns.
static __device__ __forceinline__ void plan_strip(const Given& given, const Job& job, int y, int begin, int length,
                                                  Strip& strip) {
    const int *first = given.first + job.across + begin, *numbers = given.numbers + job.across + begin;
    int left, bytes, before;
    for (;; length = length > 32 ? (length / 2 + 31) / 32 * 32 : length / 2) {
        // Columns go through the source in order, forwards or (flipped) backwards.
        left = min(first[0], first[length - 1]);
        bytes = 3 * (max(first[0] + numbers[0], first[length - 1] + numbers[length - 1]) - left);
        before = (int)((unsigned long long)(job.crop + 3 * left) % CHUNK);
        if (before + bytes <= CHUNKS * CHUNK || length == 1) break;
    }
    strip.y = y;
    strip.begin = begin;
    strip.length = length;
    strip.source = 3 * left - before;
    strip.chunks = (before + bytes + CHUNK - 1) / CHUNK;
}

// Resample chunks of `taps` source rows down, N rows at a time: N reads begin before the first is used.
template <int N>
static __device__ __forceinline__ void resample_chunks(const unsigned char* source, int pitch,
                                                       const unsigned short* weight, int side, int taps, Sum none,
                                                       int chunks, uint4* target, int lane) {
    for (int chunk = lane; chunk < chunks; chunk += 32) {
        Sum sums[CHUNK];
#pragma unroll
        for (int i = 0; i < CHUNK; i++) sums[i] = none;
#pragma unroll 1
        for (int k = 0; k < taps; k += N) {
            uint4 levels[N];
            float fractions[N];
#pragma unroll
            for (int i = 0; i < N; i++) {
                int tap = min(k + i, taps - 1);
                levels[i] = __ldg((const uint4*)(source + (long long)tap * pitch) + chunk);
                fractions[i] = k + i < taps ? fraction_of(weight[(long long)tap * side]) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < N; i++) {
                add_four(sums, levels[i].x, fractions[i]);
                add_four(sums + 4, levels[i].y, fractions[i]);
                add_four(sums + 8, levels[i].z, fractions[i]);
                add_four(sums + 12, levels[i].w, fractions[i]);
            }
        }
        target[chunk] =
            make_uint4(four_levels(sums), four_levels(sums + 4), four_levels(sums + 8), four_levels(sums + 12));
    }
}

// Resample down what a strip needs for output row y, 16 bytes of any color per lane.
static __device__ __forceinline__ void resample_down(const Given& given, const Job& job, const Strip& strip, int y,
                                                     uint4* target, int lane) {
    int row = given.first[job.down + y], taps = given.numbers[job.down + y];
    int pitch = job.pitch, side = given.side, chunks = strip.chunks;
    const unsigned char* source = job.crop + (long long)row * pitch + strip.source;
    const unsigned short* weight = given.weights + job.weights_down + y;
    Sum none = sum_of_none(min(job.most_down, job.crop_height - row));
    if (taps == 1)
        resample_chunks<1>(source, pitch, weight, side, 1, none, chunks, target, lane);
    else if (taps == 2)
        resample_chunks<2>(source, pitch, weight, side, 2, none, chunks, target, lane);
    else if (taps == 3)
        resample_chunks<3>(source, pitch, weight, side, 3, none, chunks, target, lane);
    else if (taps == 4)
        resample_chunks<4>(source, pitch, weight, side, 4, none, chunks, target, lane);
    else
        resample_chunks<4>(source, pitch, weight, side, taps, none, chunks, target, lane);
}

// Add N neighboring pixels, `place` bytes into a row, to the sums of their colors. Words are loaded whole and shifted:
// loads of single bytes would keep the shared memory busy longer than everything else takes.
template <int N>
static __device__ __forceinline__ void add_pixels(Sum* sums, const uint4* row, unsigned place, const float* fractions) {
    constexpr int LOADED = (3 + 3 * N + 3) / 4, ALIGNED = (3 * N + 3) / 4;
    const unsigned* source = (const unsigned*)row + place / 4;
    unsigned words[LOADED + 1];
#pragma unroll
    for (int i = 0; i < LOADED; i++) words[i] = source[i];
    words[LOADED] = 0;
#pragma unroll
    for (int i = 0; i < ALIGNED; i++) words[i] = __funnelshift_r(words[i], words[i + 1], place % 4 * 8);
#pragma unroll
    for (int i = 0; i < 3 * N; i++) add(sums[i % 3], __byte_perm(words[i / 4], 0, 0x4440 + i % 4), fractions[i / 3]);
}

// Resample a strip of both rows across, one column per lane, N taps at a time. If N is the largest number of taps, columns
// with fewer have weights of zero after their own: lanes would wait for the slowest one anyway.
template <int N>
static __device__ __forceinline__ void resample_columns(const Given& given, const Job& job, bool is_all,
                                                        Workspace& workspace, int lane) {
    int begin = workspace.strip.begin + lane, length = workspace.strip.length, start = workspace.strip.source;
    const int *first = given.first + job.across + begin, *numbers = given.numbers + job.across + begin;
    const unsigned short* weight = given.weights + job.weights_across + begin;
    unsigned side = (unsigned)given.side;
    Sum none = sum_of_none(2 * ((job.most_across + 1) / 2));
    unsigned char* levels[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        levels[r] = (unsigned char*)workspace.levels[r] + workspace.strip.pad[r] + 3 * lane;
    for (int column = lane; column < length; column += 32) {
        unsigned place = (unsigned)(3 * *first - start);
        int taps = is_all ? N : *numbers;
        Sum sums[ROWS][3];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < 3; c++) sums[r][c] = none;
#pragma unroll 1
        for (int k = 0; k < taps; k += N) {
            float fractions[N];
#pragma unroll
            for (int i = 0; i < N; i++)
                fractions[i] = k + i < taps ? fraction_of(weight[(unsigned)(k + i) * side]) : 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                add_pixels<N>(sums[r], workspace.resampled[r], place + (unsigned)(3 * k), fractions);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < 3; c++) levels[r][c] = level_of(sums[r][c]);
        first += 32;
        numbers += 32;
        weight += 32;
#pragma unroll
        for (int r = 0; r < ROWS; r++) levels[r] += 96;
    }
}

static __device__ __forceinline__ void resample_across(const Given& given, const Job& job, Workspace& workspace,
                                                       int lane) {
    if (job.most_across == 1)
        resample_columns<1>(given, job, true, workspace, lane);
    else if (job.most_across == 2)
        resample_columns<2>(given, job, true, workspace, lane);
    else if (job.most_across == 3)
        resample_columns<3>(given, job, true, workspace, lane);
    else if (job.most_across == 4)
        resample_columns<4>(given, job, true, workspace, lane);
    else
        resample_columns<4>(given, job, false, workspace, lane);
}

// Resample one value directly from the source: if the picture is not aligned, or one column has more taps than the
// workspace can hold. Several times slower; the GPU executor's arena aligns its pictures.
static __device__ __forceinline__ unsigned char resample_alone(const Given& given, const Job& job, int x, int y,
                                                               int color) {
    int row = given.first[job.down + y], column = given.first[job.across + x], side = given.side;
    const unsigned char* source = job.crop + (long long)row * job.pitch + 3 * column + color;
    const unsigned short *down = given.weights + job.weights_down + y, *across = given.weights + job.weights_across + x;
    Sum total = sum_of_none(2 * ((job.most_across + 1) / 2));
#pragma unroll 1
    for (int k = 0; k < given.numbers[job.across + x]; k++) {
        Sum sum = sum_of_none(min(job.most_down, job.crop_height - row));
#pragma unroll 1
        for (int i = 0; i < given.numbers[job.down + y]; i++)
            add(sum, source[(long long)i * job.pitch + 3 * k], fraction_of(down[(long long)i * side]));
        add(total, level_of(sum), fraction_of(across[(long long)k * side]));
    }
    return level_of(total);
}

// Paint a row of a strip, one column per lane.
static __device__ __forceinline__ void paint_row(const int* paint, const unsigned char* fills, int y, const Strip& strip,
                                                 int lane, unsigned char* levels) {
    if (y < paint[PAINT_TOP] || y >= paint[PAINT_BOTTOM]) return;
    const unsigned char* color = fills + 3ll * paint[PAINT_FILL];
    int left = max(paint[PAINT_LEFT] - strip.begin, 0), right = min(paint[PAINT_RIGHT] - strip.begin, strip.length);
    for (int column = left + lane; column < right; column += 32)
#pragma unroll
        for (int c = 0; c < 3; c++) levels[3 * column + c] = color[c];
}

// Look up the values of a row of a strip and store them, 16 bytes per lane. `levels` has the alignment of the output: 16
// aligned bytes there begin at a multiple of as many values here. The first `pad` values belong to others.
template <class Item>
static __device__ __forceinline__ void store_row(unsigned char* target, const unsigned char* levels, int pad, int values,
                                                 const unsigned* table, int lane) {
    constexpr int SIZE = sizeof(Item), WIDE = 16 / SIZE;
    // The color of the lane's first value: 15 is a multiple of 3, and no pad is longer.
    int color = (lane * WIDE - pad + 15) % 3;
    const unsigned char* tables[3];
#pragma unroll
    for (int c = 0; c < 3; c++)
        tables[c] = (const unsigned char*)table + SIZE * (color + c < 3 ? color + c : color + c - 3);
    Item* items = (Item*)target - pad + lane * WIDE;
    for (int place = lane * WIDE; place < pad + values; place += 32 * WIDE, items += 32 * WIDE) {
        unsigned made[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            unsigned level = __byte_perm(((const unsigned*)(levels + place))[i / 4], 0, 0x4440 + i % 4);
            unsigned item = *(const Item*)(tables[i % 3] + 3 * SIZE * level);
            made[i * SIZE / 4] |= item << (i * SIZE % 4 * 8);
        }
        uint4 all = make_uint4(made[0], made[1], made[2], made[3]);
        if (place >= pad && place + WIDE <= pad + values)
            *(uint4*)items = all;
        else
            store_some(items, all, pad - place, pad + values - place);
        // The next values of this lane begin with another color.
        const unsigned char *one = tables[32 * WIDE % 3], *two = tables[(32 * WIDE + 1) % 3];
        tables[2] = tables[(32 * WIDE + 2) % 3];
        tables[0] = one;
        tables[1] = two;
    }
}

// Make the levels of a strip.
static __device__ __forceinline__ void make_levels(const Given& given, const Job& job, Workspace& workspace) {
    const Strip& strip = workspace.strip;
    if (job.is_aligned && strip.chunks <= CHUNKS) {
        warp_step([&](int lane) {
            // An odd last row is made twice, and stored once.
#pragma unroll 1
            for (int r = 0; r < ROWS; r++)
                resample_down(given, job, strip, min(strip.y + r, given.height - 1), workspace.resampled[r], lane);
        });
        warp_step([&](int lane) { resample_across(given, job, workspace, lane); });
    } else {
        warp_step([&](int lane) {
            for (int i = lane; i < 3 * strip.length; i += 32)
                for (int r = 0; r < ROWS; r++)
                    ((unsigned char*)workspace.levels[r])[strip.pad[r] + i] =
                        resample_alone(given, job, strip.begin + i / 3, min(strip.y + r, given.height - 1), i % 3);
        });
    }
    for (int i = 0; i < job.num_paints; i++)
        warp_step([&](int lane) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                paint_row(job.paints + i * PAINT_COLUMNS, given.fills, strip.y + r, strip, lane,
                          (unsigned char*)workspace.levels[r] + strip.pad[r]);
        });
}

// The shared memory of a block.
struct ResampleRoom {
    Job job;
    Workspace workspaces[WARPS];
    unsigned values[LEVELS * CHANNELS];
};

// Make BLOCK_ROWS rows of an image. Block 0 checks the image's canaries, too.
static __device__ __forceinline__ void resample_block(const Picture& picture, const int* draw,
                                                      const unsigned char* fills, const Taps& taps, const Target& to,
                                                      int image, int block, unsigned nonce, int* status,
                                                      ResampleRoom& room) {
    if (picture.row < 0) return;
    int top = draw[TOP], left = draw[LEFT], crop_height = draw[HEIGHT], crop_width = draw[WIDTH];
    int most_across = taps.most[2 * image], most_down = taps.most[2 * image + 1];
    bool is_wrong = top < 0 || left < 0 || crop_height < 1 || crop_width < 1 || crop_height > picture.height - top ||
                    crop_width > picture.width - left || max(most_across, most_down) > taps.most_taps;
    if (block == 0 && (is_wrong || picture.is_guarded))
        each_warp([&](int warp) {
            if (warp == 0)
                warp_step([&](int lane) {
                    if (is_wrong)
                        *status = WRONG_CROP;
                    else if (lane < CANARY_PLACES && is_canary_left(picture, lane, nonce))
                        *status = MISSING;
                });
        });
    if (is_wrong) return;

    Job& job = room.job;
    block_step([&](int thread) {
        load_table_of(to.item_size, to.table, room.values, thread, THREADS);
        if (thread != 0) return;
        job.crop = (const unsigned char*)picture.address + (long long)top * picture.pitch + 3ll * left;
        job.paints = draw + DRAW_COLUMNS;
        job.target = (unsigned char*)to.out + (long long)picture.row * to.height * to.width * 3 * to.item_size;
        job.item_size = to.item_size;
        job.block = block;
        job.across = 2ll * image * taps.side;
        job.down = job.across + taps.side;
        job.weights_across = job.across * taps.most_taps;
        job.weights_down = job.down * taps.most_taps;
        job.pitch = picture.pitch;
        job.crop_height = crop_height;
        job.num_paints = draw[NUM_PAINTS];
        job.most_across = most_across;
        job.most_down = most_down;
        job.is_aligned = (picture.address | (unsigned)picture.pitch) % CHUNK == 0;
    });

    const Given given = {taps.first, taps.numbers, taps.weights, fills, taps.side, to.height};
    each_warp([&](int warp) {
        Workspace& workspace = room.workspaces[warp];
        const Strip& strip = workspace.strip;
        if ((block * WARPS + warp) * ROWS >= to.height) return;
        for (int begin = 0; begin < to.width;) {
            warp_step([&](int lane) {
                int y = (job.block * WARPS + warp) * ROWS;
                if (lane == 0) plan_strip(given, job, y, begin, min((int)COLUMNS, to.width - begin), workspace.strip);
                if (lane >= ROWS) return;
                unsigned char* target = job.target + ((long long)(y + lane) * to.width + begin) * 3 * job.item_size;
                workspace.strip.target[lane] = target;
                workspace.strip.pad[lane] = (int)((unsigned long long)target % 16) >> (job.item_size / 2);
            });
            // Read it now: a lane plans the next strip as soon as this one is stored.
            begin = strip.begin + strip.length;
            make_levels(given, job, workspace);
            warp_step([&](int lane) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    if (strip.y + r >= to.height) continue;
                    const unsigned char* levels = (const unsigned char*)workspace.levels[r];
                    int pad = strip.pad[r], length = 3 * strip.length;
                    if (job.item_size == 1)
                        store_row<unsigned char>(strip.target[r], levels, pad, length, room.values, lane);
                    else if (job.item_size == 2)
                        store_row<unsigned short>(strip.target[r], levels, pad, length, room.values, lane);
                    else
                        store_row<unsigned>(strip.target[r], levels, pad, length, room.values, lane);
                }
            });
        }
    });
}
