// jpeg_down.cu -- resamples JPEGs down, converts them to RGB as gpubeton/_cpu/jpeg/ycbcr.py does, paints and stores them.
//
//   jpegs      Jpeg   (count,)                 see jpeg.cuh; resampled samples are read
//   draws      int32  (count, columns)         see draw.cuh
//   first, weights, numbers, most              from jpeg_taps.cu
//   fills      uint8  (F, 3)                   colors of paints
//   table      uint32 (256, 3)                 bits of the output value of each level and channel; null: levels stay
//   item_size  int                             1, 2 or 4: bytes of an output value
//   out        (rows, height, width, 3)        written: row jpegs[i].row for image i
//   status     int32  (count,)                 WRONG_CROP is written
//
// Launch: grid (ceil(height / 8) * count, 1, 1), block (128).

#include "jpeg_taps.cuh"
#include "resample.cuh"

// JFIF's factors as 14-bit fractions: times a sample with 8 fractional bits, without the low 16 bits, leaves 6.
enum { CR_TO_RED = 22970, CB_TO_GREEN = 5638, CR_TO_GREEN = 11700, CB_TO_BLUE = 29032, NEUTRAL = 128 << 8 };

// Store the levels of a pixel whose samples have 8 fractional bits.
static __device__ __forceinline__ void store_levels(int luma, int cb, int cr, unsigned char* levels) {
    // Half a unit of the result, and half a unit for what the products lose by being rounded down.
    int base = (luma >> 2) + 32;
    cb -= NEUTRAL;
    cr -= NEUTRAL;
    levels[0] = (unsigned char)min(max((base + (cr * CR_TO_RED >> 16)) >> 6, 0), 255);
    levels[1] = (unsigned char)min(max((base - (cb * CB_TO_GREEN >> 16) - (cr * CR_TO_GREEN >> 16)) >> 6, 0), 255);
    levels[2] = (unsigned char)min(max((base + (cb * CB_TO_BLUE >> 16)) >> 6, 0), 255);
}

// Two neighboring samples, resampled down.
struct Pair {
    SampleSum low, high;
};

static __device__ __forceinline__ Pair resample_pair(const unsigned* samples, int stride, int row, const AxisTaps& taps,
                                                     int y, int lost) {
    const unsigned* source = samples + (long long)row * (stride / 2);
    const unsigned short* weight = taps.weights + y;
    Pair pair = {sample_sum_from(lost), sample_sum_from(lost)};
#pragma unroll 1
    for (int k = 0; k < taps.numbers[y]; k++) {
        unsigned both = source[(long long)k * (stride / 2)];
        auto fraction = sample_fraction_of(weight[(long long)k * taps.side]);
        add(pair.low, both & 0xffff, fraction);
        add(pair.high, both >> 16, fraction);
    }
    return pair;
}

// One image, the same for all threads of a block.
struct JpegJob {
    AxisTaps luma, chroma;
    const unsigned short *y, *cb, *cr;  // resampled across; null: a gray image
    int luma_origin, chroma_origin;     // the window's first row
    int luma_lost, chroma_lost;
    int stride;
    const int* paints;
    int num_paints;
    unsigned char* target;
};

static __device__ __forceinline__ void plan_image(const Jpeg& jpeg, const int* draw, const JpegTaps& taps,
                                                  const Target& to, int image, JpegJob& job) {
    bool is_gray = jpeg.components == 1;
    job.luma = taps_of_axis(taps, image, LUMA_DOWN);
    job.chroma = taps_of_axis(taps, image, chroma_axis(jpeg, LUMA_DOWN));
    int most = max(job.luma.most, is_gray ? 0 : job.chroma.most);
    job.luma_lost = lost_by(max(job.luma.most, 2), most);
    job.chroma_lost = lost_by(max(job.chroma.most, 2), most);
    job.stride = stride_of(to.width);
    job.y = (const unsigned short*)jpeg.resampled;
    job.cb = is_gray ? nullptr : job.y + 8ll * luma_rows(jpeg) * job.stride;
    job.cr = is_gray ? nullptr : job.cb + 8ll * jpeg.rows * job.stride;
    job.luma_origin = 8 * jpeg.first_row * jpeg.luma_down;
    job.chroma_origin = 8 * jpeg.first_row;
    job.paints = draw + DRAW_COLUMNS;
    job.num_paints = draw[NUM_PAINTS];
    job.target = (unsigned char*)to.out + (long long)jpeg.row * to.height * to.width * 3 * to.item_size;
}

// Make the levels of a row of a strip, two columns per lane.
static __device__ __forceinline__ void make_row(const JpegJob& job, int y, const Strip& strip, int lane,
                                                unsigned char* levels) {
    int luma_row = job.luma.first[y] - job.luma_origin, chroma_row = job.chroma.first[y] - job.chroma_origin;
    for (int x = 2 * lane; x < strip.length; x += 64) {
        int place = strip.begin + x;
        Pair luma = resample_pair((const unsigned*)(job.y + place), job.stride, luma_row, job.luma, y, job.luma_lost);
        int cb[2] = {NEUTRAL, NEUTRAL}, cr[2] = {NEUTRAL, NEUTRAL};
        if (job.cb != nullptr) {
            Pair blue = resample_pair((const unsigned*)(job.cb + place), job.stride, chroma_row, job.chroma, y, job.chroma_lost);
            Pair red = resample_pair((const unsigned*)(job.cr + place), job.stride, chroma_row, job.chroma, y, job.chroma_lost);
            cb[0] = (int)sample_of(blue.low);
            cb[1] = (int)sample_of(blue.high);
            cr[0] = (int)sample_of(red.low);
            cr[1] = (int)sample_of(red.high);
        }
        store_levels((int)sample_of(luma.low), cb[0], cr[0], levels + 3 * x);
        if (x + 1 < strip.length) store_levels((int)sample_of(luma.high), cb[1], cr[1], levels + 3 * x + 3);
    }
}

// The shared memory of a warp, and of a block.
struct JpegWorkspace {
    uint4 levels[ROWS][(3 * COLUMNS + CHUNK) / CHUNK];  // output columns, `pad` values before them
    Strip strip;
};
struct JpegRoom {
    JpegJob job;
    JpegWorkspace workspaces[WARPS];
    unsigned values[LEVELS * CHANNELS];
};

static __device__ __forceinline__ void make_strip(const JpegRoom& room, const Target& to, const unsigned char* fills,
                                                  JpegWorkspace& workspace) {
    const Strip& strip = workspace.strip;
    const JpegJob& job = room.job;
    warp_step([&](int lane) {
#pragma unroll 1
        for (int r = 0; r < ROWS && strip.y + r < to.height; r++)
            make_row(job, strip.y + r, strip, lane, (unsigned char*)workspace.levels[r] + strip.pad[r]);
    });
    for (int i = 0; i < job.num_paints; i++)
        warp_step([&](int lane) {
            for (int r = 0; r < ROWS; r++)
                paint_row(job.paints + i * PAINT_COLUMNS, fills, strip.y + r, strip, lane,
                          (unsigned char*)workspace.levels[r] + strip.pad[r]);
        });
    warp_step([&](int lane) {
#pragma unroll 1
        for (int r = 0; r < ROWS && strip.y + r < to.height; r++) {
            const unsigned char* levels = (const unsigned char*)workspace.levels[r];
            int pad = strip.pad[r], length = 3 * strip.length;
            if (to.item_size == 1)
                store_row<unsigned char>(strip.target[r], levels, pad, length, room.values, lane);
            else if (to.item_size == 2)
                store_row<unsigned short>(strip.target[r], levels, pad, length, room.values, lane);
            else
                store_row<unsigned>(strip.target[r], levels, pad, length, room.values, lane);
        }
    });
}

extern "C" __global__ void __launch_bounds__(THREADS, 8)
    jpeg_down(const Jpeg* __restrict__ jpegs, const int* __restrict__ draws, int columns, int height, int width, int count,
              int most_taps, int* first, unsigned short* weights, int* numbers, int* most,
              const unsigned char* __restrict__ fills, const unsigned* __restrict__ table, int item_size, void* out,
              int* __restrict__ status) {
    __shared__ JpegRoom room;
    if (block_is_done()) return;
    const Share share = share_of_block(count);
    const JpegTaps taps = {first, weights, numbers, most, max(height, width), most_taps};
    const Target to = {out, table, item_size, height, width};
    const int* draw = draws + (long long)share.image * columns;
    if (!is_possible(jpegs[share.image], draw, taps, share.image)) {
        block_step([&](int thread) {
            if (thread == 0) status[share.image] = WRONG_CROP;
        });
        return;
    }
    block_step([&](int thread) {
        load_table_of(item_size, table, room.values, thread, THREADS);
        if (thread == 0) plan_image(jpegs[share.image], draw, taps, to, share.image, room.job);
    });
    each_warp([&](int warp) {
        JpegWorkspace& workspace = room.workspaces[warp];
        int y = (share.block * WARPS + warp) * ROWS;
        if (y >= height) return;
        for (int begin = 0; begin < width; begin += COLUMNS) {
            warp_step([&](int lane) {
                Strip& strip = workspace.strip;
                if (lane == 0) strip.y = y;
                if (lane == 0) strip.begin = begin;
                if (lane == 0) strip.length = min((int)COLUMNS, width - begin);
                if (lane >= ROWS) return;
                unsigned char* target = room.job.target + ((long long)(y + lane) * width + begin) * 3 * item_size;
                strip.target[lane] = target;
                strip.pad[lane] = (int)((unsigned long long)target % 16) >> (item_size / 2);
            });
            make_strip(room, to, fills, workspace);
        }
    });
}
