#include "image_fault.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "switches.h"

namespace simulator {
namespace {

struct Planted {
    ImageFault fault;
    long seen = 0;
    long done = 0;
};

struct CallFault {
    int status;
    long after;  // so many calls succeed first
    long times;
};

struct Faults {
    std::mutex mutex;
    std::vector<Planted> images;
    std::map<std::string, CallFault> calls;
    std::map<std::string, uint64_t> counts;
};

Faults& faults() {
    static Faults* const only = new Faults;
    return *only;
}

bool applies(const ImageFault& fault, uint64_t hash, int index, bool is_batched, int backend) {
    return (fault.hash == 0 || fault.hash == hash) && (fault.index < 0 || fault.index == index) &&
           (fault.is_batched < 0 || (fault.is_batched != 0) == is_batched) &&
           (fault.backend < 0 || fault.backend == backend);
}

}  // namespace

ImageFault faults_of(uint64_t hash, int index, bool is_batched, int backend) {
    std::lock_guard<std::mutex> lock(faults().mutex);
    ImageFault sum;
    for (Planted& planted : faults().images) {
        const ImageFault& fault = planted.fault;
        if (!applies(fault, hash, index, is_batched, backend)) continue;
        if (++planted.seen % fault.every != 0) continue;
        if (fault.times >= 0 && planted.done >= fault.times) continue;
        ++planted.done;
        if (fault.status) sum.status = fault.status;
        sum.is_skipped |= fault.is_skipped;
        sum.more_height += fault.more_height;
        sum.more_width += fault.more_width;
    }
    return sum;
}

int planted_status(const char* function) {
    std::lock_guard<std::mutex> lock(faults().mutex);
    ++faults().counts[function];
    const auto found = faults().calls.find(function);
    if (found == faults().calls.end()) return 0;
    CallFault& fault = found->second;
    if (fault.after > 0) {
        --fault.after;
        return 0;
    }
    if (fault.times == 0) return 0;
    if (fault.times > 0) --fault.times;
    return fault.status;
}

}  // namespace simulator

using simulator::faults;

extern "C" {

EXPORT void simulated_image_fault(const simulator::ImageFault* fault) {
    std::lock_guard<std::mutex> lock(faults().mutex);
    faults().images.push_back({*fault, 0, 0});
}

EXPORT void simulated_call_fault(const char* function, int status, long after, long times) {
    std::lock_guard<std::mutex> lock(faults().mutex);
    faults().calls[function] = {status, after, times};
}

EXPORT uint64_t simulated_call_count(const char* function) {
    std::lock_guard<std::mutex> lock(faults().mutex);
    const auto found = faults().counts.find(function);
    return found == faults().counts.end() ? 0 : found->second;
}

EXPORT void simulated_faults_clear() {
    std::lock_guard<std::mutex> lock(faults().mutex);
    faults().images.clear();
    faults().calls.clear();
    faults().counts.clear();
}
}
