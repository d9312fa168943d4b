// pixels.h -- decoded images: through a function of Python's, remembered by the hash of their bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "header.h"

namespace simulator {

struct Pixels {
    int height = 0;
    int width = 0;
    bool is_whole = false;            // false: the data are damaged, and gray stands for what is missing
    std::vector<unsigned char> rgb;  // (height, width, 3)
};

uint64_t hash_of(const unsigned char* data, size_t size);

std::shared_ptr<const Pixels> decode(const unsigned char* data, size_t size, uint64_t hash, const Header& header);

}  // namespace simulator
