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

// What nvJPEG does with pixels on request.
struct Parameters {
    int format = 5;  // RGBI
    int left = 0, top = 0, width = -1, height = -1;
    int scale = 0;  // sides are divided by 2 to the power of it
    int orientation = 1;
    bool allow_cmyk = false;

    bool has_roi() const { return width > 0 && height > 0; }
};

// Turned upright, cut to the region of interest and made smaller, in this order.
std::shared_ptr<const Pixels> transform(std::shared_ptr<const Pixels> pixels, const Parameters& parameters);

// Height and width of the result for an image of the header's size.
void transformed_size(const Header& header, const Parameters& parameters, int* height, int* width);

}  // namespace simulator
