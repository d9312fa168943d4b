#include "switches.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simulator {
namespace {

struct Switch {
    const char* name;
    long long usual;
    std::atomic<long long> value;
};

Switch switches[] = {
    // Do the work at all. Off: every call returns at once and streams do nothing, which leaves the host's own cost.
    {"pixels", 1, {1}},
    {"journal", 1, {1}},
    // Fill new memory with garbage.
    {"garbage", 1, {1}},
    // Bytes of each device.
    {"device_memory", 4LL << 30, {4LL << 30}},
    // The order in which a kernel's threads run: 0 ascending, 1 descending, 2 shuffled with the seed.
    {"thread_order", 0, {0}},
    {"thread_seed", 0, {0}},
    // The hardware decoder writes when called, before what the stream still has to do, as on Hopper.
    {"early_write", 1, {1}},
    {"engines", 7, {7}},
    {"cores", 1, {1}},
    // What the batched call returns for an image that the engines do not take: 4 or 9.
    {"unsupported_status", 4, {4}},
    // What the single call returns for damaged entropy-coded data; nvJPEG decodes what is there and says success.
    {"damaged_status", 0, {0}},
    // End the process where the real library would crash.
    {"crash", 0, {0}},
    // Work that reaches memory outside of an allocation, or freed memory, is misuse and does not end the process.
    {"stray_work", 0, {0}},
    // Compressed bytes must lie in pinned memory.
    {"pinned_input", 0, {0}},
    {"version", 13'00'01, {13'00'01}},
};

Switch* find(const char* name) {
    for (Switch& entry : switches) {
        if (strcmp(entry.name, name) == 0) return &entry;
    }
    return nullptr;
}

}  // namespace

long long setting(const char* name) {
    if (const Switch* found = find(name)) return found->value;
    fprintf(stderr, "simulator: no switch is called %s\n", name);
    abort();
}

}  // namespace simulator

extern "C" {

// Returns 0, or 1 if there is no such switch.
EXPORT int simulated_switch(const char* name, long long value) {
    simulator::Switch* const found = simulator::find(name);
    if (!found) return 1;
    found->value = value;
    return 0;
}

EXPORT long long simulated_switch_value(const char* name) { return simulator::setting(name); }

EXPORT void simulated_switches_reset() {
    for (simulator::Switch& entry : simulator::switches) entry.value = entry.usual;
}
}
