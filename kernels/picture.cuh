// picture.cuh -- the place of one decoded image in memory; gpubeton._gpu.launch.PICTURE in Python.
#pragma once

struct Picture {
    unsigned long long address;  // first byte of the first row, uint8 RGB, interleaved
    int pitch;                   // bytes from one row to the next
    int height;                  // in pixels
    int width;
    int row;         // of the batch that the image belongs to; negative: another kernel makes it
    int is_guarded;  // 1 if a canary was written to it
    int reserved;
};
static_assert(sizeof(Picture) == 32, "as gpubeton._gpu.launch.PICTURE");
