// jpeg_idct.cu -- from coefficients of blocks to samples, as gpubeton/_cpu/jpeg/idct.py computes them: libjpeg's accurate
// integer method (ISLOW).
//
//   jpegs   Jpeg   (count,)   see jpeg.cuh; coefficients are read, samples written
//   count   int
//   status  int32  (count,)   DAMAGED is written
//
// Eight lanes transform a block, a column each, then a row each. Launch: grid (n * count, 1, 1), block (128); n blocks make
// 16 n blocks of each image at least, see `BLOCKS_AT_A_TIME`.

#include "block.cuh"
#include "jpeg.cuh"
#include "steps.cuh"

// A warp transforms four blocks at a time. Shared memory has room for one more value in each row, so that the lanes of a
// row or of a column are in different banks.
enum { SIDE = 8, BLOCKS_OF_WARP = 32 / SIDE, BLOCKS_AT_A_TIME = WARPS * BLOCKS_OF_WARP, ROW = SIDE + 1 };

// With 13 fractional bits. The first pass keeps two bits more than samples have; the second drops them and a factor of 8.
enum { FRACTION_BITS = 13, FIRST_SHIFT = FRACTION_BITS - 2, SECOND_SHIFT = FRACTION_BITS + 2 + 3 };
enum {
    F_0_298 = 2446, F_0_390 = 3196, F_0_541 = 4433, F_0_765 = 6270, F_0_899 = 7373, F_1_175 = 9633,
    F_1_501 = 12299, F_1_847 = 15137, F_1_961 = 16069, F_2_053 = 16819, F_2_562 = 20995, F_3_072 = 25172,
};

// In unsigned numbers, which wrap as the CPU's vectors do: damaged data may have coefficients of any size.
static __device__ __forceinline__ unsigned scaled(int value, int factor) { return (unsigned)value * (unsigned)factor; }

static __device__ __forceinline__ int wrapped(int value) { return (short)value; }

// Transform eight 16-bit numbers; plus `bias`, without the last `shift` bits.
static __device__ __forceinline__ void transform(const int* in, int shift, int bias, int* out) {
    unsigned offset = (1u << (shift - 1)) + ((unsigned)bias << shift);
    unsigned total = ((unsigned)(in[0] + in[4]) << FRACTION_BITS) + offset;
    unsigned difference = ((unsigned)(in[0] - in[4]) << FRACTION_BITS) + offset;
    unsigned inner = scaled(in[2], F_0_541) - scaled(in[6], F_1_847 - F_0_541);
    unsigned outer = scaled(in[2], F_0_541 + F_0_765) + scaled(in[6], F_0_541);
    const unsigned even[4] = {total + outer, difference + inner, difference - inner, total - outer};
    int sum_73 = wrapped(in[7] + in[3]), sum_51 = wrapped(in[5] + in[1]);
    unsigned left = scaled(sum_73, F_1_175 - F_1_961) + scaled(sum_51, F_1_175);
    unsigned right = scaled(sum_73, F_1_175) + scaled(sum_51, F_1_175 - F_0_390);
    const unsigned odd[4] = {
        right + scaled(in[1], F_1_501 - F_0_899) - scaled(in[7], F_0_899),
        left + scaled(in[3], F_3_072 - F_2_562) - scaled(in[5], F_2_562),
        right + scaled(in[5], F_2_053 - F_2_562) - scaled(in[3], F_2_562),
        left + scaled(in[7], F_0_298 - F_0_899) - scaled(in[1], F_0_899),
    };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[i] = (int)(even[i] + odd[i]) >> shift;
        out[SIDE - 1 - i] = (int)(even[i] - odd[i]) >> shift;
    }
}

// A block of the window: its component, coefficients, and samples.
struct Place {
    const short* coefficients;
    unsigned char* samples;
    int component, pitch;
};

static __device__ __forceinline__ Place place_of_block(const Jpeg& jpeg, int number) {
    int luma = luma_blocks(jpeg), chroma = chroma_blocks(jpeg);
    int component = number < luma ? 0 : 1 + (number - luma) / chroma;
    int before = component == 0 ? 0 : luma + (component - 1) * chroma;
    int across = component == 0 ? luma_columns(jpeg) : jpeg.columns;
    int y = (number - before) / across, x = (number - before) % across;
    unsigned char* plane = (unsigned char*)jpeg.samples + 64ll * before;
    return {(const short*)jpeg.coefficients + 64ll * number, plane + 8ll * ((long long)y * SIDE * across + x), component,
            SIDE * across};
}

// Transform column `x` of a block; false if its first coefficient is larger than any of a picture.
static __device__ __forceinline__ bool transform_column(const Jpeg& jpeg, const Place& place, int x, short* block) {
    const unsigned char* factors = (const unsigned char*)jpeg.quantization + 64 * place.component;
    int in[SIDE], out[SIDE], first = 0;
#pragma unroll
    for (int y = 0; y < SIDE; y++) {
        int product = place.coefficients[SIDE * y + x] * factors[SIDE * y + x];
        if (y == 0) first = product;
        in[y] = wrapped(product);
    }
    transform(in, FIRST_SHIFT, 0, out);
#pragma unroll
    for (int y = 0; y < SIDE; y++) block[ROW * y + x] = (short)min(max(out[y], -32768), 32767);
    return x > 0 || first == wrapped(first);
}

static __device__ __forceinline__ void transform_row(const Place& place, int y, const short* block) {
    int in[SIDE], out[SIDE];
#pragma unroll
    for (int x = 0; x < SIDE; x++) in[x] = block[ROW * y + x];
    transform(in, SECOND_SHIFT, 128, out);
    unsigned words[2] = {0, 0};
#pragma unroll
    for (int x = 0; x < SIDE; x++) words[x / 4] |= (unsigned)min(max(out[x], 0), 255) << (x % 4 * 8);
    *(uint2*)(place.samples + (long long)y * place.pitch) = make_uint2(words[0], words[1]);
}

extern "C" __global__ void __launch_bounds__(THREADS) jpeg_idct(const Jpeg* __restrict__ jpegs, int count, int* status) {
    __shared__ short blocks[BLOCKS_AT_A_TIME][SIDE * ROW];
    if (block_is_done()) return;
    const Share share = share_of_block(count);
    const Jpeg jpeg = jpegs[share.image];
    int all = luma_blocks(jpeg) + (jpeg.components - 1) * chroma_blocks(jpeg);
    each_warp([&](int warp) {
        int first = (share.block * WARPS + warp) * BLOCKS_OF_WARP, step = share.blocks * BLOCKS_AT_A_TIME;
        for (; first < all; first += step) {
            warp_step([&](int lane) {
                int own = lane / SIDE;
                if (first + own >= all) return;
                // On the CPU a block of only a first coefficient is transformed without rounding it to 16 bits.
                if (!transform_column(jpeg, place_of_block(jpeg, first + own), lane % SIDE, blocks[warp * BLOCKS_OF_WARP + own]))
                    status[share.image] = DAMAGED;
            });
            warp_step([&](int lane) {
                int own = lane / SIDE;
                if (first + own < all)
                    transform_row(place_of_block(jpeg, first + own), lane % SIDE, blocks[warp * BLOCKS_OF_WARP + own]);
            });
        }
    });
}
