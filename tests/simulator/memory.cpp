#include "memory.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "journal.h"
#include "stream.h"
#include "switches.h"

namespace simulator {
namespace {

constexpr size_t ALIGNMENT = 256;
constexpr unsigned char GARBAGE = 0xCD;
constexpr unsigned char MARGIN = 0xA5;  // between the memory and the unreadable pages
const char* const KINDS[] = {"device memory", "pinned memory", "a tensor's memory"};

struct Memory {
    std::mutex mutex;
    std::map<uintptr_t, Region> regions;  // by the begin of the mapping; freed ones too
    size_t live[MOST_DEVICES] = {};       // bytes of DEVICE and TENSOR, of this test
    uint64_t count = 0;
    int test = 0;
};

Memory& memory() {
    static Memory* const only = new Memory;
    return *only;
}

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

Region* region_at(uintptr_t address) {
    auto next = memory().regions.upper_bound(address);
    if (next == memory().regions.begin()) return nullptr;
    Region& region = std::prev(next)->second;
    return address < region.mapping + region.mapped ? &region : nullptr;
}

std::string describe(const Region& region) {
    return std::to_string(region.size) + " bytes of " + KINDS[region.kind] + " (allocation " +
           std::to_string(region.number) + (region.is_live ? ")" : ", freed)");
}

// Bytes in front of and behind the memory, up to the unreadable pages, must be as they were.
bool is_margin_whole(const Region& region) {
    const auto* const first = reinterpret_cast<const unsigned char*>(region.mapping + page());
    const auto* const begin = reinterpret_cast<const unsigned char*>(region.begin);
    const auto* const last = reinterpret_cast<const unsigned char*>(region.mapping + region.mapped - page());
    for (const unsigned char* at = first; at < begin; ++at) {
        if (*at != MARGIN) return false;
    }
    for (const unsigned char* at = begin + region.size; at < last; ++at) {
        if (*at != MARGIN) return false;
    }
    return true;
}

void check_margin(const Region& region) {
    if (!is_margin_whole(region)) misuse("something was written just outside of " + describe(region));
}

// Freed pages go back to the system, their addresses to nobody.
int free_region(uintptr_t address) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    Region* const region = region_at(address);
    if (!region || region->begin != address || !region->is_live) {
        misuse("free: " + std::string(region ? describe(*region) : "memory of somebody else"));
        return INVALID_VALUE;
    }
    check_margin(*region);
    region->is_live = false;
    if (region->kind != PINNED && region->test == memory().test) memory().live[region->device] -= region->size;
    mmap(reinterpret_cast<void*>(region->mapping), region->mapped, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return SUCCESS;
}

thread_local sigjmp_buf* escape = nullptr;
struct sigaction escape_before[2];
const int FAULTS[] = {SIGSEGV, SIGBUS};

void leave_work(int number, siginfo_t* info, void*) {
    Region region;
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    const bool is_fault = info->si_code > 0;  // otherwise another handler raises the signal again, without the address
    if (escape && is_fault && (is_on("stray_work") || !find_region(address, &region))) siglongjmp(*escape, 1);
    sigaction(number, &escape_before[number == SIGBUS], nullptr);  // it happens again
}

// Other libraries of the process may have put their handlers in the place of this one.
void watch_for_faults() {
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    for (const int number : FAULTS) {
        struct sigaction present = {};
        sigaction(number, nullptr, &present);
        if (present.sa_sigaction == leave_work) continue;
        struct sigaction action = {};
        action.sa_sigaction = leave_work;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigaction(number, &action, &escape_before[number == SIGBUS]);
    }
}

struct sigaction action_before;
int error_output = STDERR_FILENO;
bool is_explaining = false;

// Say what was touched, then let whoever was there before (Python's faulthandler, or the system) end the process.
void explain_fault(int, siginfo_t* info, void*) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    if (memory().mutex.try_lock()) {
        if (const Region* region = region_at(address)) {
            const char* const work = current_work();
            dprintf(error_output, "simulator: %s touches byte %lld of %s\n", work ? work : "the host",
                    static_cast<long long>(address - region->begin), describe(*region).c_str());
        }
        memory().mutex.unlock();
    }
    sigaction(SIGSEGV, &action_before, nullptr);
}

}  // namespace

void run_guarded(const std::string& name, const std::function<void()>& run) {
    watch_for_faults();
    sigjmp_buf start;
    if (sigsetjmp(start, 1) == 0) {
        escape = &start;
        run();
    } else {
        misuse(name + " reaches memory that is not there");
    }
    escape = nullptr;
}

int current_test() {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().test;
}

bool find_region(uintptr_t address, Region* found) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    const Region* const region = region_at(address);
    if (region) *found = *region;
    return region != nullptr;
}

std::string why_unusable(uintptr_t address, size_t nbytes, bool* is_foreign) {
    Region region;
    const bool is_known = find_region(address, &region);
    if (is_foreign) *is_foreign = !is_known;
    if (!is_known) return "memory that is neither the device's nor pinned";
    if (region.is_live && address >= region.begin && address + nbytes <= region.begin + region.size) return "";
    return "bytes " + std::to_string(static_cast<long long>(address - region.begin)) + " to " +
           std::to_string(static_cast<long long>(address + nbytes - region.begin)) + " of " + describe(region);
}

}  // namespace simulator

using namespace simulator;

extern "C" {

// Begin a test, on devices whose memory is free.
EXPORT void simulated_test_begin() {
    Memory& all = memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    ++all.test;
    all.count = 0;
    std::fill(std::begin(all.live), std::end(all.live), 0);
}

EXPORT int simulated_memory_make(int device, int kind, uint64_t nbytes, uint64_t* address) {
    const int error = device_error(device);
    if (error != SUCCESS) return error;
    const size_t inner = round_up(round_up(nbytes ? nbytes : 1, ALIGNMENT), page());
    Memory& all = memory();
    std::lock_guard<std::mutex> lock(all.mutex);
    if (kind != PINNED && all.live[device] + nbytes > static_cast<size_t>(setting("device_memory"))) return OUT_OF_MEMORY;
    void* const mapping = mmap(nullptr, inner + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return OUT_OF_MEMORY;
    const uintptr_t first = reinterpret_cast<uintptr_t>(mapping) + page();
    if (mprotect(reinterpret_cast<void*>(first), inner, PROT_READ | PROT_WRITE) != 0) return OUT_OF_MEMORY;
    // As close to the unreadable page behind it as its alignment allows.
    const uintptr_t begin = first + inner - round_up(nbytes ? nbytes : 1, ALIGNMENT);
    memset(reinterpret_cast<void*>(first), MARGIN, begin - first);
    memset(reinterpret_cast<void*>(begin + nbytes), MARGIN, first + inner - begin - nbytes);
    if (is_on("garbage") && is_on("pixels")) memset(reinterpret_cast<void*>(begin), GARBAGE, nbytes);
    all.regions[reinterpret_cast<uintptr_t>(mapping)] = {
        begin, nbytes, reinterpret_cast<uintptr_t>(mapping), inner + 2 * page(), static_cast<Kind>(kind), device, true,
        all.count++, all.test};
    if (kind != PINNED) all.live[device] += nbytes;
    *address = begin;
    return SUCCESS;
}

EXPORT int simulated_memory_free(uint64_t address) {
    Region region{};
    find_region(address, &region);
    const int status = free_region(address);
    return status == SUCCESS ? device_error(region.device) : status;
}

// As torch's allocator does: what is in the stream's queue may still use it.
EXPORT int simulated_memory_free_in_order(uint64_t address, void* handle) {
    Stream* const stream = find_used_stream(handle);
    // Somebody kept the tensor longer than the stream was in use.
    if (!stream) return free_region(address);
    stream->put("free", [address] { free_region(address); }, true);
    return SUCCESS;
}

EXPORT uint64_t simulated_memory_live(int kind) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    uint64_t nbytes = 0;
    for (const auto& [mapping, region] : memory().regions) {
        if (region.is_live && region.kind == kind && region.test == memory().test) nbytes += region.size;
    }
    return nbytes;
}

// Bytes of a device that are in use, and that are left.
EXPORT uint64_t simulated_memory_used(int device) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().live[device];
}

EXPORT uint64_t simulated_memory_left(int device) {
    std::lock_guard<std::mutex> lock(memory().mutex);
    const auto all = static_cast<uint64_t>(setting("device_memory"));
    return all > memory().live[device] ? all - memory().live[device] : 0;
}

// How many allocations the test has made.
EXPORT uint64_t simulated_memory_count() {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().count;
}

// Note what was written just outside of live memory.
EXPORT void simulated_memory_check() {
    std::lock_guard<std::mutex> lock(memory().mutex);
    for (const auto& [mapping, region] : memory().regions) {
        if (region.is_live) check_margin(region);
    }
}

// Say on a file descriptor what was touched, should somebody touch what is not there.
EXPORT void simulated_faults_explain(int output) {
    error_output = output;
    if (is_explaining) return;
    is_explaining = true;
    struct sigaction action = {};
    action.sa_sigaction = explain_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &action_before);
}
}
