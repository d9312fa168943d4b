// journal.h -- what happened: calls, work done in streams, and misuse that real CUDA would punish late or never.

#pragma once

#include <cstdint>
#include <string>

namespace simulator {

// One line, as Python reads it (tests/simulator/library.py has the same layout).
struct Entry {
    uint64_t sequence;   // over all entries of the process
    char kind[16];       // "call": a function of nvJPEG returned; "work": something ran in a stream; "image": was decoded
    char name[48];       // of the function, the kernel, the operation
    int32_t status;      // what the call returned; of an image: 1 if its pixels were written
    int32_t stream;      // number of the stream, -1 for none
    int32_t device;
    int32_t backend;     // of the handle, -1 for none
    int32_t images;      // of a batch; of an image: its index there
    int32_t was_busy;    // 1 if the state was still at work when called
    uint64_t owner;      // number of the state; of an image: hash of its bytes
    uint64_t address;    // of an image: where its pixels go
    uint64_t thread;     // of the caller
};

void write_entry(Entry entry);
void write_work(const char* kind, const std::string& name, int stream, int device);

// Note something that no correct program does; every test asserts that nothing was noted.
void misuse(const std::string& what);

}  // namespace simulator
