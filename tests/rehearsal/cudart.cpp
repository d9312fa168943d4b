// cudart.cpp -- CUDA's runtime library over the simulator: the public functions that torch and CuPy need to start, and
// to make streams, events, memory and copies. Compiled against NVIDIA's own header. What is not here is in a generated
// file, and fails with cudaErrorNotSupported: torch's own kernels above all.

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../simulator/journal.h"
#include "../simulator/memory.h"
#include "../simulator/stream.h"
#include "../simulator/switches.h"

using namespace simulator;

extern "C" {
int simulated_use_device(int device);
void* simulated_stream_make(int device, int is_urgent);
int simulated_stream_wait(void* handle, void* event);
void* simulated_event_make(int device);
void simulated_event_drop(void* handle);
int simulated_event_record(void* handle, void* stream);
int simulated_event_synchronize(void* handle);
int simulated_event_query(void* handle);
int simulated_memory_make(int device, int kind, uint64_t nbytes, uint64_t* address);
int simulated_memory_free(uint64_t address);
uint64_t simulated_memory_left(int device);
}

namespace {

constexpr int DEVICES = 2;
thread_local int last_error = SUCCESS;

// Every function ends with it: the thread's last error is what `cudaGetLastError` returns.
cudaError_t done(int status) {
    if (status != SUCCESS) last_error = status;
    return static_cast<cudaError_t>(status);
}

// The stream of a handle; CUDA's default stream is one of the device's own.
Stream* stream_of(cudaStream_t handle) {
    if (handle != nullptr && handle != cudaStreamLegacy && handle != cudaStreamPerThread) return find_used_stream(handle);
    static std::mutex mutex;
    static Stream* streams[DEVICES];
    std::lock_guard<std::mutex> lock(mutex);
    Stream*& own = streams[current_device()];
    if (!own) own = static_cast<Stream*>(simulated_stream_make(current_device(), 0));
    return own;
}

void synchronize(int device) {
    for (Stream* stream : streams_of(device)) stream->synchronize();
}

// Memory of torch's allocator is known by its caller: nvJPEG may not write into it.
Kind kind_for(void* caller) {
    Dl_info info;
    return dladdr(caller, &info) && strstr(info.dli_fname, "libc10_cuda") ? TENSOR : DEVICE;
}

cudaError_t allocate(void** memory, size_t nbytes, Kind kind) {
    uint64_t address = 0;
    const int status = nbytes == 0 ? static_cast<int>(SUCCESS) : simulated_memory_make(current_device(), kind, nbytes, &address);
    *memory = reinterpret_cast<void*>(address);
    return done(status);
}

cudaError_t release(void* memory) {
    if (!memory) return done(SUCCESS);
    // CUDA frees when the whole device is idle.
    Region region;
    if (find_region(reinterpret_cast<uintptr_t>(memory), &region)) synchronize(region.device);
    return done(simulated_memory_free(reinterpret_cast<uint64_t>(memory)));
}

// Whether bytes may be used; what the simulator never gave out is the host's usual, pageable memory.
bool is_usable(const char* which, const void* memory, size_t nbytes, bool* is_pageable) {
    const std::string why = why_unusable(reinterpret_cast<uintptr_t>(memory), nbytes, is_pageable);
    if (!why.empty() && !*is_pageable) misuse(std::string("copy: the ") + which + " is " + why);
    return why.empty() || *is_pageable;
}

void copy_rows(char* target, size_t target_pitch, const char* source, size_t source_pitch, size_t width, size_t height) {
    for (size_t row = 0; row < height; ++row) memmove(target + row * target_pitch, source + row * source_pitch, width);
}

cudaError_t copy(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width, size_t height,
                 cudaStream_t handle, bool waits = false) {
    Stream* const stream = stream_of(handle);
    if (!stream) return done(INVALID_HANDLE);
    if (width == 0 || height == 0) return done(device_error(stream->device));
    const size_t read = (height - 1) * source_pitch + width, written = (height - 1) * target_pitch + width;
    bool from_host = false, to_host = false;
    if (!is_usable("source", source, read, &from_host) || !is_usable("target", target, written, &to_host)) {
        return done(INVALID_VALUE);
    }
    std::shared_ptr<std::vector<char>> staged;
    if (from_host) {  // read before the call returns
        staged = std::make_shared<std::vector<char>>(static_cast<const char*>(source), static_cast<const char*>(source) + read);
    }
    stream->put("copy", [=] {
        bool ignored = false;
        if (!from_host && !is_usable("source at its turn", source, read, &ignored)) return;
        if (!to_host && !is_usable("target at its turn", target, written, &ignored)) return;
        copy_rows(static_cast<char*>(target), target_pitch, staged ? staged->data() : static_cast<const char*>(source),
                  source_pitch, width, height);
    });
    if (waits || to_host) stream->synchronize();
    return done(device_error(stream->device));
}

cudaError_t fill(void* target, int value, size_t nbytes, cudaStream_t handle, bool waits) {
    Stream* const stream = stream_of(handle);
    bool is_pageable = false;
    if (!stream || !is_usable("target", target, nbytes, &is_pageable) || is_pageable) return done(INVALID_VALUE);
    stream->put("fill", [=] { memset(target, value, nbytes); });
    if (waits) stream->synchronize();
    return done(device_error(stream->device));
}

cudaError_t make_stream(cudaStream_t* made, int priority) {
    *made = static_cast<cudaStream_t>(simulated_stream_make(current_device(), priority < 0));
    return done(SUCCESS);
}

// Kernels of torch by the address of their function on the host, for the message that they do not run.
std::map<const void*, std::string>& kernel_names() {
    static auto* const only = new std::map<const void*, std::string>;
    return *only;
}

}  // namespace

extern "C" {

// Called by the generated functions, and for kernels.
int rehearsal_lacks(const char* name) {
    fprintf(stderr, "rehearsal: %s is not there\n", name);
    return done(cudaErrorNotSupported);
}

// The stream behind a handle, for the driver's library.
void* rehearsal_stream(void* handle) { return stream_of(static_cast<cudaStream_t>(handle)); }

// --- errors and versions

cudaError_t cudaGetLastError() {
    const int sticky = device_error(current_device());
    const int error = sticky != SUCCESS ? sticky : last_error;
    last_error = SUCCESS;
    return static_cast<cudaError_t>(error);
}
cudaError_t cudaPeekAtLastError() {
    const int sticky = device_error(current_device());
    return static_cast<cudaError_t>(sticky != SUCCESS ? sticky : last_error);
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
        case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
        case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
        case cudaErrorNotReady: return "cudaErrorNotReady";
        case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        case cudaErrorNotSupported: return "cudaErrorNotSupported";
        default: return "cudaErrorUnknown";
    }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, done(SUCCESS); }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, done(SUCCESS); }

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    *function = driver ? dlsym(driver, name) : nullptr;
    if (!*function && driver) *function = dlsym(driver, (std::string(name) + "_v2").c_str());
    if (!*function && driver) *function = dlsym(driver, "rehearsal_lacks_it");
    if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return done(SUCCESS);
}

// --- devices

cudaError_t cudaGetDeviceCount(int* count) { return *count = DEVICES, done(SUCCESS); }
cudaError_t cudaGetDevice(int* device) { return *device = current_device(), done(SUCCESS); }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= DEVICES) return done(cudaErrorInvalidDevice);
    simulated_use_device(device);
    return done(SUCCESS);
}
cudaError_t cudaDeviceSynchronize() { return synchronize(current_device()), done(device_error(current_device())); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* made, int) {
    *made = {};
    strcpy(made->name, "Simulated GPU");
    made->major = 9;
    made->totalGlobalMem = static_cast<size_t>(setting("device_memory"));
    made->multiProcessorCount = 132;
    made->warpSize = 32;
    made->maxThreadsPerBlock = made->maxThreadsDim[0] = made->maxThreadsDim[1] = 1024;
    made->maxThreadsDim[2] = 64;
    made->maxGridSize[0] = 0x7fffffff;
    made->maxGridSize[1] = made->maxGridSize[2] = 65535;
    made->maxThreadsPerMultiProcessor = 2048;
    made->sharedMemPerBlock = 48 << 10;
    made->unifiedAddressing = made->concurrentKernels = 1;
    return done(SUCCESS);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrMultiProcessorCount: *value = 132; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrUnifiedAddressing: *value = 1; break;
        default: *value = 0;
    }
    return done(SUCCESS);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, done(SUCCESS); }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, done(SUCCESS); }
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
    return done(SUCCESS);
}

// --- streams and events

cudaError_t cudaStreamCreate(cudaStream_t* made) { return make_stream(made, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned) { return make_stream(made, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned, int priority) { return make_stream(made, priority); }
// Its thread stays: CUDA, too, ends a stream when its work is done.
cudaError_t cudaStreamDestroy(cudaStream_t handle) { return done(stream_of(handle) ? SUCCESS : INVALID_HANDLE); }
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Stream* const stream = stream_of(handle);
    if (!stream) return done(INVALID_HANDLE);
    stream->synchronize();
    return done(device_error(stream->device));
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
    Stream* const stream = stream_of(handle);
    if (!stream) return done(INVALID_HANDLE);
    const int error = device_error(stream->device);
    return done(error != SUCCESS ? error : stream->is_idle() ? SUCCESS : NOT_READY);
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    return *priority = stream_of(handle)->is_urgent ? -5 : 0, done(SUCCESS);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    return done(simulated_stream_wait(stream_of(handle), event));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
    stream_of(handle)->put("host function", [=] { function(data); });
    return done(SUCCESS);
}

cudaError_t cudaEventCreate(cudaEvent_t* made) { return cudaEventCreateWithFlags(made, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
    *made = static_cast<cudaEvent_t>(simulated_event_make(current_device()));
    reinterpret_cast<Event*>(*made)->is_timed = !(flags & cudaEventDisableTiming);
    return done(SUCCESS);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return simulated_event_drop(event), done(SUCCESS); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    return done(simulated_event_record(event, stream_of(handle)));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
    return done(simulated_event_record(event, stream_of(handle)));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return done(simulated_event_query(event)); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return done(simulated_event_synchronize(event)); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    for (const auto* event : {reinterpret_cast<Event*>(first), reinterpret_cast<Event*>(last)}) {
        if (!event->is_timed || !event->mark) return done(INVALID_HANDLE);
    }
    for (cudaEvent_t event : {first, last}) {
        if (const int status = simulated_event_query(event)) return done(status);
    }
    return *milliseconds = 1, done(SUCCESS);
}

// --- memory

cudaError_t cudaMalloc(void** memory, size_t nbytes) {
    return allocate(memory, nbytes, kind_for(__builtin_return_address(0)));
}
cudaError_t cudaFree(void* memory) { return release(memory); }
cudaError_t cudaHostAlloc(void** memory, size_t nbytes, unsigned) { return allocate(memory, nbytes, PINNED); }
cudaError_t cudaFreeHost(void* memory) { return release(memory); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    *free = simulated_memory_left(current_device());
    *total = static_cast<size_t>(setting("device_memory"));
    return done(SUCCESS);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* memory) {
    *found = {};
    Region region;
    if (!find_region(reinterpret_cast<uintptr_t>(memory), &region) || !region.is_live) {
        found->type = cudaMemoryTypeUnregistered;
        found->device = -2;
        found->hostPointer = const_cast<void*>(memory);
        return done(SUCCESS);
    }
    found->type = region.kind == PINNED ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    found->device = region.device;
    found->devicePointer = const_cast<void*>(memory);
    found->hostPointer = region.kind == PINNED ? const_cast<void*>(memory) : nullptr;
    return done(SUCCESS);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t nbytes, cudaMemcpyKind, cudaStream_t stream) {
    return copy(target, nbytes, source, nbytes, nbytes, 1, stream);
}
cudaError_t cudaMemcpy(void* target, const void* source, size_t nbytes, cudaMemcpyKind) {
    return copy(target, nbytes, source, nbytes, nbytes, 1, nullptr, true);
}
cudaError_t cudaMemcpyPeerAsync(void* target, int, const void* source, int, size_t nbytes, cudaStream_t stream) {
    return copy(target, nbytes, source, nbytes, nbytes, 1, stream);
}
cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
    return copy(target, target_pitch, source, source_pitch, width, height, stream);
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t nbytes, cudaStream_t stream) {
    return fill(target, value, nbytes, stream, false);
}
cudaError_t cudaMemset(void* target, int value, size_t nbytes) { return fill(target, value, nbytes, nullptr, true); }

// --- captures: none is ever under way

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
    return *status = cudaStreamCaptureStatusNone, done(SUCCESS);
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t*,
                                     const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
    return *status = cudaStreamCaptureStatusNone, done(SUCCESS);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    static thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;
    std::swap(own, *mode);
    return done(SUCCESS);
}

// --- torch's kernels: known by name, and never run

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
    kernel_names()[host] = name;
}
char __cudaInitModule(void**) { return 1; }
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* host, dim3, dim3, void**, size_t, cudaStream_t) {
    return static_cast<cudaError_t>(rehearsal_lacks(("the kernel " + kernel_names()[host]).c_str()));
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
}
