// memory.h -- device, pinned and tensor memory: host memory between unreadable pages, full of garbage when new.
//
// Freed memory stays unreadable for the rest of the process: whoever uses it ends the process at once, with a message
// that names the memory and the work that touched it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace simulator {

enum Kind { DEVICE = 0, PINNED = 1, TENSOR = 2 };  // TENSOR: of torch's allocator

struct Region {
    uintptr_t begin;     // a multiple of 256; what is asked for begins here
    size_t size;
    uintptr_t mapping;   // with the unreadable page before it
    size_t mapped;       // with the unreadable page behind it
    Kind kind;
    int device;
    bool is_live;
    uint64_t number;     // counts the allocations of a test
    int test;            // that allocated it
};

// Number of the test that runs. Memory and nvJPEG's objects that earlier tests have left count no more: the garbage
// collector may give them back at any time.
int current_test();

// Find where an address belongs, live or freed; false if the simulator never gave it out.
bool find_region(uintptr_t address, Region* found);

// Why bytes cannot be used, empty if they lie in one piece of live memory.
// `is_foreign`, if given, tells that the simulator never gave the address out.
std::string why_unusable(uintptr_t address, size_t nbytes, bool* is_foreign = nullptr);

// Run work on memory. What is led astray, as by numbers that have not arrived, ends as on a GPU, and not with the process.
// The use of memory that is outside of an allocation or was freed ends the process as ever, unless the switch "stray_work"
// is on: where a wait was left out, numbers are anything, and memory may be freed under a copy.
void run_guarded(const std::string& name, const std::function<void()>& run);

}  // namespace simulator
