// nvjpeg_resources.cpp -- handles and states of the simulated nvJPEG.

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "image_fault.h"
#include "journal.h"
#include "nvjpeg.h"
#include "switches.h"

namespace simulator {
namespace {

struct Resources {
    std::mutex mutex;
    std::map<void*, Resource*> live;
    uint64_t count = 0;
};

Resources& resources() {
    static Resources* const only = new Resources;
    return *only;
}

}  // namespace

void enlist(Resource* resource) {
    std::lock_guard<std::mutex> lock(resources().mutex);
    resource->number = ++resources().count;
    resources().live[resource] = resource;
}

bool delist(void* resource) {
    std::lock_guard<std::mutex> lock(resources().mutex);
    return resources().live.erase(resource) == 1;
}

Resource* look(void* resource, const char* kind, const char* function) {
    {
        std::lock_guard<std::mutex> lock(resources().mutex);
        const auto found = resources().live.find(resource);
        if (found != resources().live.end() && strcmp(found->second->kind, kind) == 0) return found->second;
    }
    if (resource) misuse(std::string(function) + ": what is given is no " + kind + ", or was destroyed");
    return nullptr;
}

// On another device than its own, whatever a call does is undefined.
void check_home(const Resource* resource, const char* function) {
    if (resource->home == current_device()) return;
    misuse(std::string(function) + ": the " + resource->kind + " belongs to device " + std::to_string(resource->home) +
           ", the thread's current one is " + std::to_string(current_device()));
}

Call& Call::of(const Handle* handle) {
    if (!handle) return *this;
    backend_ = handle->backend;
    device_ = handle->home;
    check_home(handle, function_);
    return *this;
}

Call& Call::of(State* state) {
    if (!state) return *this;
    owner_ = state->number;
    was_busy_ = state->is_busy();
    return *this;
}

Call& Call::in(const Stream* stream) {
    stream_ = stream;
    return *this;
}

Call& Call::with(int images) {
    images_ = images;
    return *this;
}

int Call::begin() { return planted_status(function_); }

int Call::end(int status) {
    Entry entry{};
    strncpy(entry.kind, "call", sizeof(entry.kind) - 1);
    strncpy(entry.name, function_, sizeof(entry.name) - 1);
    entry.status = status;
    entry.stream = stream_ ? stream_->number : -1;
    entry.device = device_;
    entry.backend = backend_;
    entry.images = images_;
    entry.was_busy = was_busy_;
    entry.owner = owner_;
    entry.thread = static_cast<uint64_t>(pthread_self());
    write_entry(entry);
    return status;
}

}  // namespace simulator

using namespace simulator;

namespace {

int create_handle(const char* function, int backend, unsigned flags, void** made) {
    return Call(function).run([&]() -> int {
        if (!made || backend < DEFAULT || backend > LOSSLESS) return INVALID_PARAMETER;
        // No engines, or no libnvcuvid.
        if (is_hardware(backend) && setting("engines") == 0) return ARCH_MISMATCH;
        Handle* const handle = new Handle;
        handle->backend = backend;
        handle->flags = flags;
        enlist(handle);
        *made = handle;
        return OK;
    });
}

template <class T>
int destroy(const char* function, void* resource) {
    return Call(function).run([&]() -> int {
        T* const found = look_up<T>(resource, function);
        if (!found || !delist(found)) return INVALID_PARAMETER;
        check_home(found, function);
        delete found;
        return OK;
    });
}

int version_part(const char* function, int type, int* value) {
    return Call(function).run([&]() -> int {
        const auto version = static_cast<int>(setting("version"));
        if (!value || type < 0 || type > 2) return INVALID_PARAMETER;
        *value = type == 0 ? version / 10000 : type == 1 ? version / 100 % 100 : version % 100;
        return OK;
    });
}

template <class Change>
int change_handle(const char* function, void* handle, Change change) {
    return Call(function).run([&]() -> int {
        Handle* const found = look_up<Handle>(handle, function);
        return found ? change(found) : INVALID_PARAMETER;
    });
}

}  // namespace

extern "C" {

// How many of a kind, made in this test, are alive: "handle", "state", "jpeg stream".
EXPORT uint64_t simulated_nvjpeg_live(const char* kind) {
    const int test = current_test();
    std::lock_guard<std::mutex> lock(resources().mutex);
    uint64_t count = 0;
    for (const auto& [address, resource] : resources().live) {
        count += resource->test == test && strcmp(resource->kind, kind) == 0;
    }
    return count;
}

EXPORT int nvjpegGetProperty(int type, int* value) { return version_part(__func__, type, value); }
EXPORT int nvjpegGetCudartProperty(int type, int* value) { return version_part(__func__, type, value); }

// --- handles

EXPORT int nvjpegCreateEx(int backend, const void* device, const void* pinned, unsigned flags, void** handle) {
    if (device || pinned) return INVALID_PARAMETER;  // allocators of a user's are not simulated
    return create_handle(__func__, backend, flags, handle);
}

EXPORT int nvjpegDestroy(void* handle) {
    {
        std::lock_guard<std::mutex> lock(resources().mutex);
        for (const auto& [address, resource] : resources().live) {
            const auto* const state = dynamic_cast<const State*>(resource);
            if (state && state->handle == handle) misuse("nvjpegDestroy: a state of the handle is still there");
        }
    }
    return destroy<Handle>(__func__, handle);
}

EXPORT int nvjpegGetHardwareDecoderInfo(void* handle, unsigned* engines, unsigned* cores) {
    return change_handle(__func__, handle, [&](const Handle*) -> int {
        if (!engines || !cores) return INVALID_PARAMETER;
        *engines = static_cast<unsigned>(setting("engines"));
        *cores = *engines ? static_cast<unsigned>(setting("cores")) : 0;
        return OK;
    });
}

// --- states

EXPORT int nvjpegJpegStateCreate(void* handle, void** made) {
    Handle* const owner = look_up<Handle>(handle, __func__);
    return Call(__func__).of(owner).run([&]() -> int {
        if (!owner || !made) return INVALID_PARAMETER;
        State* const state = new State;
        state->handle = owner;
        state->backend = owner->backend;
        enlist(state);
        *made = state;
        return OK;
    });
}

EXPORT int nvjpegJpegStateDestroy(void* state) {
    State* const found = look_up<State>(state, __func__);
    if (found && found->is_busy()) misuse("nvjpegJpegStateDestroy: its work has not finished");
    if (found && found->last) found->last->wait();
    return destroy<State>(__func__, state);
}
}
