// jpeg_huffman.cu -- from the compressed data of JPEGs to the coefficients of the blocks below their crops.
//
//   jpegs      Jpeg      (N,)            see jpeg.cuh
//   tables     uint8     (T, 4, 272)     distinct sets of Huffman tables: DC and AC of Y, DC and AC of Cb and Cr; of each 16
//                                        numbers of codes and the symbols, as in the file
//   groups     Group     (blocks,)       intervals of images with the same tables, for one block each
//   intervals  Interval  (M,)            an image and one of its entry points; those of a group take similarly long
//   status     int32     (N,)            DAMAGED is written
//
// The coefficients that come out are those of gpubeton/_cpu/jpeg/huffman.py. One thread decodes the MCUs from an entry point
// to the next: Huffman's code has no other places to begin. An interval's end must be the next entry point, bit and DC
// values, or the marker that belongs there. Whatever the data are, a thread reads the bytes of its JPEG only.
//
// All lanes of a warp decode one symbol at a time: a lane whose block ends goes on to its next block at once. If lanes
// waited for one another at the end of each block, half of them would wait.
//
// Launch: grid (blocks, 1, 1), block (128).

#include "block.cuh"
#include "jpeg.cuh"
#include "jpeg_bits.cuh"
#include "steps.cuh"

struct Group {
    int tables;  // number of the set
    int first, count;
};

struct Interval {
    int image, entry;
};

// Codes up to LOOKUP_BITS are looked up; those of more, which are rare, are searched (T.81 F.2.2.3).
enum { TABLES = 4, LOOKUP_BITS = 10, LOOKUPS = 1 << LOOKUP_BITS, CODE_BITS = 16 };
enum { SYMBOLS = 256, TABLE_BYTES = CODE_BITS + SYMBOLS };

// "End of block" as a number of coefficients to skip: it passes the last from anywhere.
enum { END_OF_BLOCK = 79 };

// The row-major place of the k-th coefficient of a scan (T.81 figure A.6).
static __device__ const unsigned char ZIGZAG[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

// A set of tables in shared memory.
struct Codes {
    unsigned short lookup[TABLES][LOOKUPS];  // see `symbol_of`; 0: a longer code, or none
    int limits[TABLES][CODE_BITS + 1];       // codes of a length are below this, left-aligned in 16 bits
    int offsets[TABLES][CODE_BITS + 1];      // number of a code's symbol less the code
    unsigned char symbols[TABLES][SYMBOLS];
    unsigned char zigzag[64];
};

// A decoded symbol: bits of its code, bits of its value << 5, coefficients to skip << 9.
static __device__ __forceinline__ unsigned symbol_of(int table, unsigned symbol, int length) {
    unsigned size = symbol & 15, run = symbol >> 4;
    if (table % 2 == 1 && size == 0 && run != 15) run = END_OF_BLOCK;
    return (unsigned)length | size << 5 | run << 9;
}

// Find the code that begins 16 bits, of `shortest` to `longest` bits; 0 if there is none.
static __device__ __forceinline__ unsigned search(const Codes& codes, int table, unsigned bits, int shortest, int longest) {
    for (int length = shortest; length <= longest; length++)
        if ((int)bits < codes.limits[table][length]) {
            unsigned place = (unsigned)codes.offsets[table][length] + (bits >> (CODE_BITS - length));
            return symbol_of(table, codes.symbols[table][place % SYMBOLS], length);
        }
    return 0;
}

static __device__ __forceinline__ void order_codes(const unsigned char* source, int table, Codes& codes) {
    int code = 0, k = 0;
    for (int length = 1; length <= CODE_BITS; length++) {
        int count = source[length - 1];
        codes.offsets[table][length] = k - code;
        k += count;
        code += count;
        codes.limits[table][length] = count > 0 ? code << (CODE_BITS - length) : 0;
        code *= 2;
    }
}

// Where in memory the coefficients of a block are: number `block` of the MCU in this row and column of the window.
static __device__ __forceinline__ short* block_at(const Jpeg& jpeg, int block, int row, int column) {
    int in_luma = jpeg.luma_across * jpeg.luma_down, place;
    if (block < in_luma) {
        int wide = jpeg.luma_across - 1;  // 0 or 1: GPUs divide slowly
        int y = row * jpeg.luma_down + (block >> wide), x = column * jpeg.luma_across + (block & wide);
        place = y * luma_columns(jpeg) + x;
    } else {
        place = luma_blocks(jpeg) + (block - in_luma) * chroma_blocks(jpeg) + row * jpeg.columns + column;
    }
    return (short*)jpeg.coefficients + 64ll * place;
}

static __device__ __forceinline__ void clear_block(short* block) {
    for (int i = 0; i < 8; i++) ((uint4*)block)[i] = make_uint4(0, 0, 0, 0);
}

// The DC values before a place in the scan.
struct Predictors {
    int y, cb, cr;
};

static __device__ __forceinline__ unsigned bit_of(const unsigned short* entry) {
    return entry[0] | (unsigned)entry[1] << 16;
}
static __device__ __forceinline__ Predictors predictors_of(const unsigned short* entry) {
    return {(short)entry[2], (short)entry[3], (short)entry[4]};
}

// Decode one symbol and its value; false if there is no such code.
static __device__ __forceinline__ bool decode_symbol(Bits& bits, const Codes& codes, int table, int* run, int* value) {
    refill(bits);
    unsigned found = codes.lookup[table][bits.window >> (64 - LOOKUP_BITS)];
    if (found == 0) found = search(codes, table, (unsigned)(bits.window >> 48), LOOKUP_BITS + 1, CODE_BITS);
    int length = (int)(found & 31), size = (int)(found >> 5 & 15);
    // Values that begin with a zero are negative (T.81 F.2.2.1, EXTEND).
    unsigned long long rest = bits.window << length;
    int read = (int)(rest >> 1 >> (63 - size));
    *value = rest >> 63 ? read : read + 1 - (1 << size);
    *run = (int)(found >> 9);
    drop(bits, length + size);
    return found != 0;
}

// Decode `mcus` MCUs from number `mcu` on; false if the data are damaged.
static __device__ bool decode_mcus(const Jpeg& jpeg, const Codes& codes, int mcu, int mcus, Bits& bits, Predictors& before) {
    int across = (jpeg.width + 8 * jpeg.luma_across - 1) / (8 * jpeg.luma_across);
    int row = mcu / across - jpeg.first_row, column = mcu % across - jpeg.first_column;
    int in_luma = jpeg.luma_across * jpeg.luma_down, blocks = in_luma + jpeg.components - 1;
    int block = 0, k = 0;
    short* target = nullptr;
    while (mcus > 0) {
        int component = max(0, block - in_luma + 1);
        int run, value;
        if (!decode_symbol(bits, codes, (component > 0 ? 2 : 0) + (k > 0), &run, &value)) return false;
        if (k == 0) {
            bool is_wanted = (unsigned)row < (unsigned)jpeg.rows && (unsigned)column < (unsigned)jpeg.columns;
            target = is_wanted ? block_at(jpeg, block, row, column) : nullptr;
            if (is_wanted) clear_block(target);
            value += component == 0 ? before.y : component == 1 ? before.cb : before.cr;
            if (value != (short)value) return false;
            if (component == 0) before.y = value;
            if (component == 1) before.cb = value;
            if (component == 2) before.cr = value;
        }
        k += run;
        if (target != nullptr && k < 64) target[codes.zigzag[k]] = (short)value;
        k++;
        if (k < 64) continue;
        k = 0;
        if (++block < blocks) continue;
        block = 0;
        mcus--;
        if (++column == across - jpeg.first_column) {
            column = -jpeg.first_column;
            row++;
        }
        if (bits.filled < bits.missing) return false;
    }
    return true;
}

static __device__ bool decode_interval(const Jpeg& jpeg, const Codes& codes, int number) {
    const unsigned char* bytes = (const unsigned char*)jpeg.bytes;
    const unsigned short* entry = (const unsigned short*)jpeg.entries + (long long)ENTRY_WORDS * number;
    const unsigned short* next = entry + ENTRY_WORDS;
    int down = (jpeg.height + 8 * jpeg.luma_down - 1) / (8 * jpeg.luma_down);
    int across = (jpeg.width + 8 * jpeg.luma_across - 1) / (8 * jpeg.luma_across);
    int mcu = number * jpeg.every, mcus = min(jpeg.every, across * down - mcu);
    bool is_last = mcu + mcus == across * down;
    Bits bits;
    Predictors before = jpeg.is_restarted ? Predictors{0, 0, 0} : predictors_of(entry);
    if (!begin_at(bits, bytes, jpeg.begin, jpeg.end, bit_of(entry))) return false;
    if (!decode_mcus(jpeg, codes, mcu, mcus, bits, before)) return false;
    refill(bits);
    if (is_last || jpeg.is_restarted) {
        const unsigned char* after = after_marker(bits, bytes + jpeg.end, is_last ? 0xd9u : 0xd0u + number % 8);
        return after != nullptr && (is_last || 8ll * (after - bytes) == bit_of(next));
    }
    Predictors wanted = predictors_of(next);
    return place_of(bits, bytes, jpeg.begin) == bit_of(next) && before.y == wanted.y && before.cb == wanted.cb && before.cr == wanted.cr;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    jpeg_huffman(const Jpeg* __restrict__ jpegs, const unsigned char* __restrict__ tables,
                 const Group* __restrict__ groups, const Interval* __restrict__ intervals, int* status) {
    __shared__ Codes codes;
    if (block_is_done()) return;
    const Group group = groups[blockIdx.x];
    const unsigned char* source = tables + (long long)TABLES * TABLE_BYTES * group.tables;
    block_step([&](int thread) {
        if (thread < TABLES) order_codes(source + thread * TABLE_BYTES, thread, codes);
        for (int i = thread; i < TABLES * SYMBOLS; i += THREADS)
            codes.symbols[i / SYMBOLS][i % SYMBOLS] = source[i / SYMBOLS * TABLE_BYTES + CODE_BITS + i % SYMBOLS];
        if (thread < 64) codes.zigzag[thread] = ZIGZAG[thread];
    });
    block_step([&](int thread) {
        for (int i = thread; i < TABLES * LOOKUPS; i += THREADS) {
            unsigned bits = (unsigned)(i % LOOKUPS) << (CODE_BITS - LOOKUP_BITS);
            codes.lookup[i / LOOKUPS][i % LOOKUPS] = (unsigned short)search(codes, i / LOOKUPS, bits, 1, LOOKUP_BITS);
        }
    });
    block_step([&](int thread) {
        if (thread >= group.count) return;
        const Interval interval = intervals[group.first + thread];
        const Jpeg jpeg = jpegs[interval.image];  // in registers
        if (!decode_interval(jpeg, codes, interval.entry)) status[interval.image] = DAMAGED;
    });
}
