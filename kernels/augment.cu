// augment.cu -- from decoded pixels to the tensor that the network reads, in one pass.
//
//   pictures   Picture  (count,)                     see picture.cuh; rows lie in memory whole, to their pitch
//   draws      int32    (count, columns)             see draw.cuh
//   first, weights, numbers, most                    what taps.cu made of the same draws
//   fills      uint8    (F, 3)                       colours of paints
//   table      uint32   (256, 3)                     bits of the output value of each level and colour
//   item_size  int                                   1, 2 or 4: bytes of an output value
//   nonce      unsigned                              what plant.cu was given
//   out        (rows, height, width, 3)              written: row pictures[i].row for image i
//   status     int32    (count,)                     zeroed by the caller; see `Status`
//
// The result is bit for bit that of gpubeton/cpu/rgb.py: rows are resampled down first, rounded to 8 bits, then across.
//
// Launch: grid (ceil(height / 8), count), block (128); any grid.x will do.
//
// What it costs, and why it is built so. An image of 224 x 224 half floats from a crop of 310 x 310 reads 290 kB and
// writes 300 kB: 12 bytes for each output pixel. A GPU of 4.8 TB/s and 132 multiprocessors has time for 70 instructions
// in which to move them, so that instructions count as much as bytes:
//
// - A warp makes two output rows at a time. It resamples down into shared memory, 16 bytes of a source row per lane,
//   whatever colours they are: reads are whole and coalesced, each source column is made once (a thread of its own for
//   each output pixel would make it two or three times over), and a product costs two instructions, see levels.cuh.
// - Across, one output column per lane, both rows share each weight. Weights of neighbouring columns lie side by side.
// - Levels go back to shared memory, are painted there, and leave through the table in stores of 16 bytes.
// - Warps wait for no other warp once the table is there, and 3.6 kB of shared memory for each lets most of those that a
//   multiprocessor can hold be there, to cover the time that reads take.

#include "draw.cuh"
#include "levels.cuh"
#include "sentinel.cuh"
#include "steps.cuh"

enum Status {
    DONE = 0,
    MISSING = 1,     // a sentinel still stands: nothing was decoded, or not all
    WRONG_CROP = 2,  // the crop is no part of the image, or has more taps than there is room for: nothing was written
};

enum { WARPS = 4, ROWS = 2, CHUNK = 16, CHUNKS = 64, COLUMNS = 256 };

// One image, the same for all threads of a block.
struct Job {
    const unsigned char* crop;
    unsigned char* out;
    const int* draw;
    const unsigned short *weights_across, *weights_down;
    const int *first_across, *first_down;
    const int *numbers_across, *numbers_down;
    int pitch, crop_height;
    int lost_across, most_down;
    bool is_aligned;
};

// Some columns of two output rows: those that a warp makes at a time.
struct Strip {
    const unsigned char* source;  // of the crop's first row, from where columns are resampled down; aligned
    unsigned char* target[ROWS];  // of the output
    int begin, length;            // the columns
    int chunks;                   // how many times 16 bytes are resampled down
    int offset;                   // of the crop's first column behind `source`; negative if it lies before
    int pad[ROWS];                // values between the 16 aligned bytes in which `target` lies and `target`
};

// What a warp has between the steps.
struct Workspace {
    uint4 resampled[ROWS][CHUNKS];                      // source columns of the output rows, resampled down
    uint4 levels[ROWS][(3 * COLUMNS + CHUNK) / CHUNK];  // output columns, `pad` values before them
    Strip strip;
};

// Prepare a strip of at most `length` columns: as many as have room, whole warps of them where that can be.
static __device__ __forceinline__ void plan_strip(const Job& job, int begin, int length, Strip& strip) {
    int left, bytes, before;
    for (;; length = length > 32 ? (length / 2 + 31) / 32 * 32 : length / 2) {
        // Columns go through the source in order, forwards or (flipped) backwards.
        int last = begin + length - 1;
        int one = job.first_across[begin], other = job.first_across[last];
        left = min(one, other);
        bytes = 3 * (max(one + job.numbers_across[begin], other + job.numbers_across[last]) - left);
        before = (int)((unsigned long long)(job.crop + 3 * left) % CHUNK);
        if (before + bytes <= CHUNKS * CHUNK || length == 1) break;
    }
    strip.begin = begin;
    strip.length = length;
    strip.source = job.crop + 3 * left - before;
    strip.offset = before - 3 * left;
    strip.chunks = (before + bytes + CHUNK - 1) / CHUNK;
}

// Add N source rows to the sums of 16 bytes; all are on their way before the first is used.
template <int N>
static __device__ __forceinline__ void add_rows(Sum* sums, const unsigned char*& source, int pitch,
                                                const unsigned short*& weight, int side) {
    uint4 levels[N];
    unsigned short weights[N];
    for (int k = 0; k < N; k++, source += pitch, weight += side) {
        levels[k] = __ldg((const uint4*)source);
        weights[k] = __ldg(weight);
    }
    for (int k = 0; k < N; k++) {
        float fraction = fraction_of(weights[k]);
        add_four(sums, levels[k].x, fraction);
        add_four(sums + 4, levels[k].y, fraction);
        add_four(sums + 8, levels[k].z, fraction);
        add_four(sums + 12, levels[k].w, fraction);
    }
}

// Resample 16 bytes down, whatever colours they are, for output row y.
static __device__ __forceinline__ uint4 resample_down(const Job& job, const Strip& strip, int side, int y, int chunk) {
    int row = job.first_down[y], taps = job.numbers_down[y];
    const unsigned char* source = strip.source + (long long)row * job.pitch + chunk * CHUNK;
    const unsigned short* weight = job.weights_down + y;
    Sum none = sum_of_none(min(job.most_down, job.crop_height - row));
    Sum sums[CHUNK];
    for (int i = 0; i < CHUNK; i++) sums[i] = none;
#pragma unroll 1
    for (; taps >= 4; taps -= 4) add_rows<4>(sums, source, job.pitch, weight, side);
    if (taps == 3)
        add_rows<3>(sums, source, job.pitch, weight, side);
    else if (taps == 2)
        add_rows<2>(sums, source, job.pitch, weight, side);
    else if (taps == 1)
        add_rows<1>(sums, source, job.pitch, weight, side);
    return make_uint4(four_levels(sums), four_levels(sums + 4), four_levels(sums + 8), four_levels(sums + 12));
}

// Resample one column of both rows across.
static __device__ __forceinline__ void resample_across(const Job& job, int side, int column, Workspace& workspace) {
    const Strip& strip = workspace.strip;
    int x = strip.begin + column, taps = job.numbers_across[x];
    const unsigned char* source = (const unsigned char*)workspace.resampled + strip.offset + 3 * job.first_across[x];
    const unsigned short* weight = job.weights_across + x;
    Sum sums[ROWS][3];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 3; c++) sums[r][c] = sum_of_none(job.lost_across);
    for (int k = 0; k < taps; k++) {
        float fraction = fraction_of(__ldg(weight));
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < 3; c++) add(sums[r][c], source[r * CHUNKS * CHUNK + c], fraction);
        source += 3;
        weight += side;
    }
    for (int r = 0; r < ROWS; r++) {
        unsigned char* levels = (unsigned char*)workspace.levels[r] + strip.pad[r] + 3 * column;
        for (int c = 0; c < 3; c++) levels[c] = level_of(sums[r][c]);
    }
}

// Resample one value straight from the source: of a picture that is not aligned, or where a single column has more taps
// than the workspace has room for. It is some times slower; the GPU executor's arena aligns its pictures.
static __device__ __forceinline__ unsigned char resample_alone(const Job& job, int side, int x, int y, int colour) {
    int row = job.first_down[y];
    const unsigned char* source = job.crop + (long long)row * job.pitch + 3 * job.first_across[x] + colour;
    Sum across = sum_of_none(job.lost_across);
#pragma unroll 1
    for (int k = 0; k < job.numbers_across[x]; k++) {
        Sum down = sum_of_none(min(job.most_down, job.crop_height - row));
#pragma unroll 1
        for (int i = 0; i < job.numbers_down[y]; i++)
            add(down, source[(long long)i * job.pitch + 3 * k], fraction_of(job.weights_down[(long long)i * side + y]));
        add(across, level_of(down), fraction_of(job.weights_across[(long long)k * side + x]));
    }
    return level_of(across);
}

// Paint a row of a strip, one column per lane.
static __device__ __forceinline__ void paint_row(const int* paint, const unsigned char* fills, int y, const Strip& strip,
                                                 int lane, unsigned char* levels) {
    if (y < paint[PAINT_TOP] || y >= paint[PAINT_BOTTOM]) return;
    const unsigned char* colour = fills + 3ll * paint[PAINT_FILL];
    int left = max(paint[PAINT_LEFT] - strip.begin, 0), right = min(paint[PAINT_RIGHT] - strip.begin, strip.length);
    for (int column = left + lane; column < right; column += 32)
        for (int c = 0; c < 3; c++) levels[3 * column + c] = colour[c];
}

// Look up the values of a row of a strip and store them, 16 bytes per lane. `levels` is laid out as the output is: what
// lies in 16 aligned bytes there begins at a multiple of as many values here. The first `pad` values are not ours.
template <class Item>
static __device__ __forceinline__ void store_row(unsigned char* target, const unsigned char* levels, int pad, int values,
                                                 const unsigned* table, int lane) {
    constexpr int WIDE = 16 / sizeof(Item), BITS = 8 * sizeof(Item);
    for (int place = lane * WIDE; place < pad + values; place += 32 * WIDE) {
        // The colour of the first value: 15 is a multiple of 3, and no pad is longer.
        int colour = (place - pad + 15) % 3;
        const Item* tables[3];
        for (int c = 0; c < 3; c++) tables[c] = (const Item*)table + (colour + c < 3 ? colour + c : colour + c - 3);
        unsigned made[4] = {0, 0, 0, 0};
        for (int i = 0; i < WIDE; i++) {
            unsigned level = __byte_perm(((const unsigned*)(levels + place))[i / 4], 0, 0x4440 + i % 4);
            made[i * BITS / 32] |= (unsigned)tables[i % 3][3 * level] << (i * BITS % 32);
        }
        Item* items = (Item*)target - pad + place;
        if (place >= pad && place + WIDE <= pad + values) {
            *(uint4*)items = make_uint4(made[0], made[1], made[2], made[3]);
        } else {
            for (int i = 0; i < WIDE; i++)
                if (place + i >= pad && place + i < pad + values) items[i] = (Item)(made[i * BITS / 32] >> (i * BITS % 32));
        }
    }
}

// Copy the table to where its look-ups are fast, each value as wide as it is in the output.
template <class Item>
static __device__ __forceinline__ void load_table(const unsigned* table, unsigned* words, int thread) {
    for (int i = thread; i < 3 * 256; i += WARPS * 32) ((Item*)words)[i] = (Item)__ldg(table + i);
}

// Make the levels of a strip of the output rows y and y + 1.
static __device__ __forceinline__ void make_levels(const Job& job, int side, int y, int height,
                                                   const unsigned char* fills, Workspace& workspace) {
    const Strip& strip = workspace.strip;
    if (job.is_aligned && strip.chunks <= CHUNKS) {
        warp_step([&](int lane) {
            for (int i = lane; i < ROWS * strip.chunks; i += 32) {
                int r = i >= strip.chunks, chunk = i - r * strip.chunks;
                workspace.resampled[r][chunk] = resample_down(job, strip, side, min(y + r, height - 1), chunk);
            }
        });
        warp_step([&](int lane) {
            for (int i = lane; i < strip.length; i += 32) resample_across(job, side, i, workspace);
        });
    } else {
        warp_step([&](int lane) {
            for (int i = lane; i < 3 * strip.length; i += 32)
                for (int r = 0; r < ROWS; r++)
                    ((unsigned char*)workspace.levels[r])[strip.pad[r] + i] =
                        resample_alone(job, side, strip.begin + i / 3, min(y + r, height - 1), i % 3);
        });
    }
    for (int i = 0; i < job.draw[NUM_PAINTS]; i++)
        warp_step([&](int lane) {
            for (int r = 0; r < ROWS; r++)
                paint_row(job.draw + DRAW_COLUMNS + i * PAINT_COLUMNS, fills, y + r, strip, lane,
                          (unsigned char*)workspace.levels[r] + strip.pad[r]);
        });
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 8)
    augment(const Picture* __restrict__ pictures, const int* __restrict__ draws, int columns,
            const int* __restrict__ first, const unsigned short* __restrict__ weights, const int* __restrict__ numbers,
            const int* __restrict__ most, int side, int most_taps, int height, int width, int count,
            const unsigned char* __restrict__ fills, const unsigned* __restrict__ table, int item_size, unsigned nonce,
            void* __restrict__ out, int* __restrict__ status) {
    __shared__ Job job;
    __shared__ Workspace workspaces[WARPS];
    __shared__ unsigned words[3 * 256];
    if (block_is_done()) return;
    int image = (int)blockIdx.y;
    if (image >= count) return;

    const Picture picture = pictures[image];
    const int* draw = draws + (long long)image * columns;
    int top = draw[TOP], left = draw[LEFT], crop_height = draw[HEIGHT], crop_width = draw[WIDTH];
    int most_across = most[2 * image], most_down = most[2 * image + 1];
    bool is_wrong = top < 0 || left < 0 || crop_height < 1 || crop_width < 1 || crop_height > picture.height - top ||
                    crop_width > picture.width - left || max(most_across, most_down) > most_taps;
    if (blockIdx.x == 0 && (is_wrong || picture.is_guarded))
        each_warp([&](int warp) {
            if (warp == 0)
                warp_step([&](int lane) {
                    if (is_wrong)
                        status[image] = WRONG_CROP;
                    else if (lane < SENTINEL_PLACES && sentinel_stands(picture, lane, nonce))
                        status[image] = MISSING;
                });
        });
    if (is_wrong) return;

    block_step([&](int thread) {
        if (item_size == 1) load_table<unsigned char>(table, words, thread);
        if (item_size == 2) load_table<unsigned short>(table, words, thread);
        if (item_size == 4) load_table<unsigned>(table, words, thread);
        if (thread != 0) return;
        long long across = 2ll * image * side, down = across + side;
        job.crop = (const unsigned char*)picture.address + (long long)top * picture.pitch + 3ll * left;
        job.out = (unsigned char*)out + (long long)picture.row * height * width * 3 * item_size;
        job.draw = draw;
        job.weights_across = weights + across * most_taps;
        job.weights_down = weights + down * most_taps;
        job.first_across = first + across;
        job.first_down = first + down;
        job.numbers_across = numbers + across;
        job.numbers_down = numbers + down;
        job.pitch = picture.pitch;
        job.crop_height = crop_height;
        job.lost_across = (most_across + 1) / 2 * 2;
        job.most_down = most_down;
        job.is_aligned = (picture.address | (unsigned)picture.pitch) % CHUNK == 0;
    });
    each_warp([&](int warp) {
        Workspace& workspace = workspaces[warp];
        const Strip& strip = workspace.strip;
        for (int y = ((int)blockIdx.x * WARPS + warp) * ROWS; y < height; y += (int)gridDim.x * WARPS * ROWS)
            for (int begin = 0, length; begin < width; begin += length) {
                warp_step([&](int lane) {
                    if (lane == 0) plan_strip(job, begin, min((int)COLUMNS, width - begin), workspace.strip);
                    if (lane >= ROWS) return;
                    unsigned char* target = job.out + ((long long)(y + lane) * width + begin) * 3 * item_size;
                    workspace.strip.target[lane] = target;
                    workspace.strip.pad[lane] = (int)((unsigned long long)target % 16) >> (item_size / 2);
                });
                length = strip.length;
                make_levels(job, side, y, height, fills, workspace);
                warp_step([&](int lane) {
                    for (int r = 0; r < ROWS; r++) {
                        const unsigned char* levels = (const unsigned char*)workspace.levels[r];
                        if (y + r >= height) continue;
                        if (item_size == 1)
                            store_row<unsigned char>(strip.target[r], levels, strip.pad[r], 3 * length, words, lane);
                        else if (item_size == 2)
                            store_row<unsigned short>(strip.target[r], levels, strip.pad[r], 3 * length, words, lane);
                        else
                            store_row<unsigned>(strip.target[r], levels, strip.pad[r], 3 * length, words, lane);
                    }
                });
            }
    });
}
