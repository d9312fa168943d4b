// cuda.cpp -- copies and kernels, in the order of their stream.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "journal.h"
#include "memory.h"
#include "stream.h"
#include "switches.h"

using namespace simulator;

namespace {

// What tests/kernels/host_build.py makes of a kernel.
using Kernel = void (*)(const unsigned grid[3], const unsigned block[3], void** arguments, int order, unsigned seed);

// The limits of every GPU since 2012.
bool is_launchable(const unsigned grid[3], const unsigned block[3]) {
    for (int i = 0; i < 3; ++i) {
        if (grid[i] == 0 || block[i] == 0) return false;
    }
    const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
    return threads <= 1024 && block[2] <= 64 && grid[0] <= 0x7fffffffU && grid[1] <= 65535 && grid[2] <= 65535;
}

bool check(const char* which, uint64_t address, uint64_t nbytes, const char* when) {
    const std::string why = why_unusable(address, nbytes);
    if (!why.empty()) misuse(std::string("copy: ") + when + " the " + which + " is " + why);
    return why.empty();
}

struct Launch {
    std::string name;
    unsigned grid[3], block[3];
    std::vector<std::vector<uint64_t>> values;  // copies of the arguments, aligned for any scalar
    std::vector<void*> arguments;
    std::vector<uint64_t> addresses;  // those among the arguments

    int number(size_t which) const { return *static_cast<int*>(arguments[which]); }
};

// The addresses that a kernel of kernels/ gets by a table, its first argument: the bytes of a row, the addresses that the
// row begins with, and which argument counts the rows. As in gather.cu, picture.cuh and jpeg.cuh.
struct Table {
    const char* kernel;
    size_t row_size, addresses, count;
};
constexpr Table TABLES[] = {{"gather", 32, 2, 1}, {"canary", 32, 1, 1}, {"resample", 32, 1, 5}, {"jpeg_idct", 104, 6, 1}};

// Whether the device can reach what is there. A kernel of the host could read any memory of the process; for a GPU that is an
// illegal address. What is freed, or outside of an allocation, ends the process without a check.
bool can_reach(const Launch& launch, uint64_t address, int device) {
    Region region{};
    const bool is_known = address == 0 || find_region(address, &region);
    if (is_known && (region.kind == PINNED || address == 0 || region.device == device)) return true;
    misuse("launch: " + launch.name + " gets the address of memory that " +
           (is_known ? "another device has" : "is neither the device's nor pinned"));
    return false;
}

// Bytes from an address of a row of jpeg.cuh to the first byte that is there: of a JPEG, and of its entry points, the device
// has only those that the window needs.
uint64_t first_of_jpeg(const uint64_t* row, size_t which) {
    const auto* const numbers = reinterpret_cast<const int32_t*>(row + 6);
    const int64_t every = numbers[2], width = numbers[5], luma_across = numbers[7];
    const int64_t first_row = numbers[9], first_column = numbers[10];
    if (which == 0) return static_cast<uint32_t>(numbers[0]);
    if (which > 1 || every <= 0 || luma_across <= 0) return 0;  // a row may be anything when a wait was left out
    const int64_t across = (width + 8 * luma_across - 1) / (8 * luma_across);
    return static_cast<uint64_t>(10 * ((first_row * across + first_column) / every));
}

bool can_reach_all(const Launch& launch, int device) {
    for (uint64_t address : launch.addresses) {
        if (!can_reach(launch, address, device)) return false;
    }
    for (const Table& table : TABLES) {
        if (launch.name.substr(0, launch.name.find('-')) != table.kernel) continue;
        for (int row = 0; row < launch.number(table.count); ++row) {
            const auto* const own = reinterpret_cast<const uint64_t*>(launch.addresses[0] + static_cast<size_t>(row) * table.row_size);
            for (size_t i = 0; i < table.addresses; ++i) {
                const uint64_t offset = launch.name == "jpeg_idct" ? first_of_jpeg(own, i) : 0;
                if (!can_reach(launch, own[i] + offset, device)) return false;
            }
        }
    }
    return true;
}

}  // namespace

extern "C" {

EXPORT int simulated_copy(uint64_t target, uint64_t source, uint64_t nbytes, void* handle) {
    Stream* const stream = find_stream(handle, "copy");
    if (!stream) return INVALID_HANDLE;
    if (nbytes == 0 || !is_on("pixels")) return device_error(stream->device);
    if (!check("source", source, nbytes, "when called") || !check("target", target, nbytes, "when called")) {
        return INVALID_VALUE;
    }
    stream->put("copy", [=] {
        if (!check("source", source, nbytes, "at its turn") || !check("target", target, nbytes, "at its turn")) return;
        run_guarded("copy", [=] { memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), nbytes); });
    });
    return device_error(stream->device);
}

EXPORT int simulated_launch(const char* name, Kernel kernel, const unsigned grid[3], const unsigned block[3],
                            void** arguments, const uint64_t* sizes, int count, void* handle) {
    Stream* const stream = find_stream(handle, name);
    if (!stream) return INVALID_HANDLE;
    if (!is_launchable(grid, block)) return INVALID_CONFIGURATION;
    if (stream->device != current_device()) {
        misuse(std::string("launch: ") + name + " in a stream of another device than the current one");
        return INVALID_HANDLE;
    }
    auto launch = std::make_shared<Launch>();
    launch->name = name;
    std::copy(grid, grid + 3, launch->grid);
    std::copy(block, block + 3, launch->block);
    for (int i = 0; i < count; ++i) {
        launch->values.emplace_back((sizes[i] + 7) / 8);
        memcpy(launch->values.back().data(), arguments[i], sizes[i]);
        launch->arguments.push_back(launch->values.back().data());
        if (sizes[i] == 8) launch->addresses.push_back(launch->values.back()[0]);
    }
    const int order = static_cast<int>(setting("thread_order"));
    const auto seed = static_cast<unsigned>(setting("thread_seed"));
    stream->put(name, [=] {
        if (!can_reach_all(*launch, stream->device)) return;
        run_guarded("launch: " + launch->name, [&] {
            kernel(launch->grid, launch->block, launch->arguments.data(), order, seed);
        });
    });
    return device_error(stream->device);
}

// A kernel for the simulator's own tests: (unsigned* target, const unsigned* source, unsigned added, int count).
EXPORT void run_add(const unsigned grid[3], const unsigned block[3], void** arguments, int, unsigned) {
    auto* const target = *static_cast<unsigned**>(arguments[0]);
    const auto* const source = *static_cast<const unsigned**>(arguments[1]);
    const unsigned added = *static_cast<unsigned*>(arguments[2]);
    const int count = *static_cast<int*>(arguments[3]);
    const auto threads = static_cast<int>(grid[0] * block[0]);
    for (int i = 0; i < threads && i < count; ++i) target[i] = source[i] + added;
}

// Another one: (unsigned* target, int distance), which writes at a place that its arguments do not show.
EXPORT void run_stray(const unsigned[3], const unsigned[3], void** arguments, int, unsigned) {
    const auto target = *static_cast<uint64_t*>(arguments[0]);
    *reinterpret_cast<volatile unsigned*>(target + (uint64_t{1} << *static_cast<int*>(arguments[1]))) = 1;
}
}
