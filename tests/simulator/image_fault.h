// image_fault.h -- what goes wrong with chosen images, and with chosen calls.

#pragma once

#include <cstdint>

namespace simulator {

struct ImageFault {
    // Which images. All conditions have to hold.
    uint64_t hash = 0;     // of the bytes; 0 any
    int index = -1;        // in its batch; -1 any
    int every = 1;         // of those that fulfil the rest, every so many-th
    int is_batched = -1;   // 1 only in batches, 0 only alone, -1 both
    int backend = -1;      // -1 any
    long times = -1;       // so often; -1 always

    // What goes wrong.
    int status = 0;        // the call returns it
    int is_skipped = 0;    // the call returns success and the image is not written
    int more_height = 0;   // the image is written larger than its header says
    int more_width = 0;
};

// All that is wrong with one image, for one call.
ImageFault faults_of(uint64_t hash, int index, bool is_batched, int backend);

// The status that was planted for the present call of a function, or 0. Counts the call.
int planted_status(const char* function);

}  // namespace simulator
