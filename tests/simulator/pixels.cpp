#include "pixels.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "switches.h"

namespace simulator {
namespace {

using Decoder = int (*)(const unsigned char* data, size_t size, unsigned char* rgb, size_t pitch, int width, int height);

constexpr size_t MOST_REMEMBERED = 256u << 20;
constexpr unsigned char MISSING = 128;

std::atomic<Decoder> decoder{nullptr};
std::atomic<int> running{0};  // calls of Python

struct Memory {
    std::mutex mutex;
    size_t nbytes = 0;
    std::unordered_map<uint64_t, std::shared_ptr<const Pixels>> images;
};

Memory& memory() {
    static Memory* const only = new Memory;
    return *only;
}

// Where a pixel of the upright image is in the stored one, by EXIF's number.
void stored_place(int orientation, int height, int width, int y, int x, int* stored_y, int* stored_x) {
    const bool is_transposed = orientation >= 5;
    const int down = is_transposed ? x : y;
    const int across = is_transposed ? y : x;
    const bool is_flipped_down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const bool is_flipped_across = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    *stored_y = is_flipped_down ? height - 1 - down : down;
    *stored_x = is_flipped_across ? width - 1 - across : across;
}

}  // namespace

// FNV-1a over words of 8 bytes: quick, and nobody attacks it here.
uint64_t hash_of(const unsigned char* data, size_t size) {
    uint64_t hash = 14695981039346656037u ^ size;
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, 8);
        hash = (hash ^ word) * 1099511628211u;
        hash ^= hash >> 29;
    }
    for (; at < size; ++at) hash = (hash ^ data[at]) * 1099511628211u;
    return hash ? hash : 1;  // 0 stands for any image
}

std::shared_ptr<const Pixels> decode(const unsigned char* data, size_t size, uint64_t hash, const Header& header) {
    {
        std::lock_guard<std::mutex> lock(memory().mutex);
        const auto found = memory().images.find(hash);
        if (found != memory().images.end()) return found->second;
    }
    auto pixels = std::make_shared<Pixels>();
    pixels->height = header.height;
    pixels->width = header.width;
    const size_t pitch = 3 * static_cast<size_t>(header.width);
    pixels->rgb.assign(pitch * static_cast<size_t>(header.height), MISSING);
    ++running;
    if (const Decoder function = decoder) {
        pixels->is_whole = function(data, size, pixels->rgb.data(), pitch, header.width, header.height) == 0;
    }
    --running;
    std::lock_guard<std::mutex> lock(memory().mutex);
    if (memory().nbytes > MOST_REMEMBERED) {
        memory().images.clear();
        memory().nbytes = 0;
    }
    memory().nbytes += pixels->rgb.size();
    return memory().images[hash] = pixels;
}

void transformed_size(const Header& header, const Parameters& parameters, int* height, int* width) {
    const bool is_transposed = parameters.orientation >= 5;
    *height = parameters.has_roi() ? parameters.height : is_transposed ? header.width : header.height;
    *width = parameters.has_roi() ? parameters.width : is_transposed ? header.height : header.width;
    const int step = 1 << parameters.scale;
    *height = (*height + step - 1) / step;
    *width = (*width + step - 1) / step;
}

std::shared_ptr<const Pixels> transform(std::shared_ptr<const Pixels> pixels, const Parameters& parameters) {
    if (parameters.orientation <= 1 && !parameters.has_roi() && parameters.scale == 0) return pixels;
    Header header;
    header.height = pixels->height;
    header.width = pixels->width;
    auto result = std::make_shared<Pixels>();
    transformed_size(header, parameters, &result->height, &result->width);
    result->is_whole = pixels->is_whole;
    result->rgb.resize(3 * static_cast<size_t>(result->height) * static_cast<size_t>(result->width));
    const bool is_transposed = parameters.orientation >= 5;
    const int top = parameters.has_roi() ? parameters.top : 0;
    const int left = parameters.has_roi() ? parameters.left : 0;
    const int bottom = parameters.has_roi() ? top + parameters.height : is_transposed ? pixels->width : pixels->height;
    const int right = parameters.has_roi() ? left + parameters.width : is_transposed ? pixels->height : pixels->width;
    const int step = 1 << parameters.scale;
    for (int y = 0; y < result->height; ++y) {
        for (int x = 0; x < result->width; ++x) {
            // The mean of a square, rounded.
            int sums[3] = {0, 0, 0};
            int count = 0;
            for (int v = top + y * step; v < top + (y + 1) * step && v < bottom; ++v) {
                for (int u = left + x * step; u < left + (x + 1) * step && u < right; ++u, ++count) {
                    int stored_y, stored_x;
                    stored_place(parameters.orientation, pixels->height, pixels->width, v, u, &stored_y, &stored_x);
                    const size_t place = 3 * (static_cast<size_t>(stored_y) * static_cast<size_t>(pixels->width) +
                                              static_cast<size_t>(stored_x));
                    for (int c = 0; c < 3; ++c) sums[c] += pixels->rgb[place + static_cast<size_t>(c)];
                }
            }
            const size_t place = 3 * (static_cast<size_t>(y) * static_cast<size_t>(result->width) + static_cast<size_t>(x));
            for (int c = 0; c < 3; ++c) {
                result->rgb[place + static_cast<size_t>(c)] = static_cast<unsigned char>((sums[c] + count / 2) / count);
            }
        }
    }
    return result;
}

}  // namespace simulator

extern "C" {

EXPORT uint64_t simulated_hash(const unsigned char* data, uint64_t size) { return simulator::hash_of(data, size); }

// Null: no image can be decoded any more. Returns when no thread is in the former function, or after some seconds.
EXPORT void simulated_decoder(simulator::Decoder function) {
    simulator::decoder = function;
    for (int i = 0; i < 5000 && simulator::running; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

EXPORT void simulated_pixels_forget() {
    std::lock_guard<std::mutex> lock(simulator::memory().mutex);
    simulator::memory().images.clear();
    simulator::memory().nbytes = 0;
}
}
