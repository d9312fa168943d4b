// paint.cu -- rectangles of one colour, over images that are finished already: cutouts behind changes of colour.
//
//   draws      int32   (count, columns)          see draw.cuh
//   first      int                                the first paint of each row that is painted here
//   stop       int                                the one behind the last; no row has fewer
//   fills      uint8   (F, 3)                     colours of paints
//   table      uint32  (256, 3)                   bits of the output value of each level and channel
//   item_size  int                                1, 2 or 4: bytes of an output value
//   out        (count, height, width, 3)          written inside the rectangles
//
// One thread looks at one output pixel: few are painted, and each of these once, with the last paint that covers it.
// Launch: grid (ceil(height * width / 128), count), block (128).

#include "draw.cuh"

extern "C" __global__ void __launch_bounds__(128)
    paint(const int* __restrict__ draws, int columns, int first, int stop, int height, int width, int count,
          const unsigned char* __restrict__ fills, const unsigned* __restrict__ table, int item_size,
          void* __restrict__ out) {
    int pixel = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    int image = (int)blockIdx.y;
    if (pixel >= height * width || image >= count) return;

    int y = pixel / width, x = pixel % width;
    const int* paints = draws + (long long)image * columns + DRAW_COLUMNS;
    int fill = -1;
    for (int i = first; i < stop; i++) {
        const int* one = paints + i * PAINT_COLUMNS;
        bool covers = one[PAINT_TOP] <= y && y < one[PAINT_BOTTOM] && one[PAINT_LEFT] <= x && x < one[PAINT_RIGHT];
        fill = covers ? one[PAINT_FILL] : fill;
    }
    if (fill < 0) return;

    long long place = ((long long)image * height * width + pixel) * 3;
    for (int channel = 0; channel < 3; channel++) {
        unsigned bits = table[3 * fills[3 * fill + channel] + channel];
        if (item_size == 1) ((unsigned char*)out)[place + channel] = (unsigned char)bits;
        if (item_size == 2) ((unsigned short*)out)[place + channel] = (unsigned short)bits;
        if (item_size == 4) ((unsigned*)out)[place + channel] = bits;
    }
}
