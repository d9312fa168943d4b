// cuda_driver.cpp -- public functions of CUDA's driver library: those that CuPy and torch look up, and launches, which
// run a kernel as it was compiled for the host. The machine code that is loaded is the real one, and has to hold the
// kernel; nothing of it is executed.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
using Kernel = void (*)(const unsigned grid[3], const unsigned block[3], void** arguments, int order, unsigned seed);

void* rehearsal_stream(void* handle);
int simulated_launch(const char* name, Kernel kernel, const unsigned grid[3], const unsigned block[3], void** arguments,
                     const uint64_t* sizes, int count, void* stream);
}

namespace {

struct HostKernel {
    std::string name;
    Kernel run;
    std::vector<uint64_t> sizes;  // of its arguments
};

// A loaded module: of which device, and the kernels that its machine code holds.
struct Module {
    int device;
    std::string code;
};

struct Function {
    int device;
    HostKernel kernel;
};

std::mutex mutex;

// Kernels of the host by the machine code that they stand for.
std::map<std::string, HostKernel>& host_kernels() {
    static auto* const only = new std::map<std::string, HostKernel>;
    return *only;
}

int current_device() {
    int device = 0;
    cudaGetDevice(&device);
    return device;
}

CUcontext context_of(int device) {
    static char contexts[16];
    return reinterpret_cast<CUcontext>(&contexts[device]);
}

// The header of an ELF file and of its sections, as far as they are needed.
struct Elf {
    char magic[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, programs, sections;
    uint32_t flags;
    uint16_t size, program_size, program_count, section_size, section_count, names;
};
struct Section {
    uint32_t name, type;
    uint64_t flags, address, offset, size;
    uint32_t link, info;
    uint64_t alignment, entry_size;
};

const Section* section(const char* image, int number) {
    Elf header;
    memcpy(&header, image, sizeof header);
    return reinterpret_cast<const Section*>(image + header.sections) + number;
}

// The whole image, whose length nobody gives; empty if it is no machine code.
std::string code_of(const void* data) {
    const auto* const image = static_cast<const char*>(data);
    if (memcmp(image, "\x7f" "ELF", 4) != 0) return "";
    Elf header;
    memcpy(&header, image, sizeof header);
    constexpr uint16_t CUDA = 190;
    constexpr uint32_t WITHOUT_BYTES = 8;
    if (header.machine != CUDA || header.section_size != sizeof(Section)) return "";
    uint64_t end = header.sections + uint64_t{header.section_count} * sizeof(Section);
    for (int i = 0; i < header.section_count; ++i) {
        const Section* const one = section(image, i);
        if (one->type != WITHOUT_BYTES) end = std::max(end, one->offset + one->size);
    }
    end = std::max(end, header.programs + uint64_t{header.program_count} * header.program_size);
    return {image, end};
}

bool has_kernel(const std::string& code, const std::string& name) {
    Elf header;
    memcpy(&header, code.data(), sizeof header);
    const char* const names = code.data() + section(code.data(), header.names)->offset;
    for (int i = 0; i < header.section_count; ++i) {
        if (names + section(code.data(), i)->name == ".text." + name) return true;
    }
    return false;
}

CUresult lacks(const char* name) {
    fprintf(stderr, "rehearsal: %s is not there\n", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

const char* name_of(CUresult status) {
    switch (status) {
        case CUDA_SUCCESS: return "CUDA_SUCCESS";
        case CUDA_ERROR_INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
        case CUDA_ERROR_INVALID_IMAGE: return "CUDA_ERROR_INVALID_IMAGE";
        case CUDA_ERROR_INVALID_HANDLE: return "CUDA_ERROR_INVALID_HANDLE";
        case CUDA_ERROR_NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
        case CUDA_ERROR_ILLEGAL_ADDRESS: return "CUDA_ERROR_ILLEGAL_ADDRESS";
        case CUDA_ERROR_NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
        default: return "CUDA_ERROR_UNKNOWN";
    }
}

}  // namespace

extern "C" {

// Let a kernel of the host stand for the one of this machine code. `letters` as tests/kernels/host/cuda_shim.h has them.
void rehearsal_kernel(const char* code, uint64_t nbytes, const char* name, Kernel run, const char* letters) {
    HostKernel kernel{name, run, {}};
    for (const char* letter = letters; *letter; ++letter) kernel.sizes.push_back(*letter == 'P' ? 8 : 4);
    std::lock_guard<std::mutex> lock(mutex);
    host_kernels()[code_of(code)] = kernel;
    if (code_of(code).size() != nbytes) fprintf(stderr, "rehearsal: %s has %zu bytes, not %zu\n", name, code_of(code).size(), nbytes);
}

// Whatever torch looks up and is not here.
CUresult rehearsal_lacks_it() { return CUDA_ERROR_NOT_SUPPORTED; }

// NVRTC asks for undocumented tables, and does without them.
CUresult cuGetExportTable(const void**, const CUuuid*) { return CUDA_ERROR_NOT_FOUND; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int* count) { return static_cast<CUresult>(cudaGetDeviceCount(count)); }
CUresult cuDeviceGet(CUdevice* device, int number) { return *device = number, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult status, const char** name) { return *name = name_of(status), CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult status, const char** text) { return *text = name_of(status), CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    return static_cast<CUresult>(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}

CUresult cuCtxGetCurrent(CUcontext* context) { return *context = context_of(current_device()), CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = current_device(), CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* is_active) {
    return *flags = 0, *is_active = 1, CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    return static_cast<CUresult>(cudaThreadExchangeStreamCaptureMode(reinterpret_cast<cudaStreamCaptureMode*>(mode)));
}

CUresult cuModuleLoadData(CUmodule* made, const void* image) {
    std::string code = code_of(image);
    if (code.empty()) return CUDA_ERROR_INVALID_IMAGE;
    *made = reinterpret_cast<CUmodule>(new Module{current_device(), std::move(code)});
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) { return delete reinterpret_cast<Module*>(module), CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* made, CUmodule handle, const char* name) {
    const auto* const module = reinterpret_cast<Module*>(handle);
    if (!has_kernel(module->code, name)) return CUDA_ERROR_NOT_FOUND;
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = host_kernels().find(module->code);
    if (found == host_kernels().end() || found->second.name != name) {
        return lacks("a kernel's build for the host");
    }
    *made = reinterpret_cast<CUfunction>(new Function{module->device, found->second});
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) { return *value = 0, CUDA_SUCCESS; }

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned, CUstream stream, void** arguments, void** extra) {
    const auto* const function = reinterpret_cast<Function*>(handle);
    if (extra) return lacks("a launch with packed arguments");
    // A function is its context's, and so is a stream.
    if (function->device != current_device()) return CUDA_ERROR_INVALID_HANDLE;
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    const HostKernel& kernel = function->kernel;
    const int status = simulated_launch(kernel.name.c_str(), kernel.run, grid, block, arguments, kernel.sizes.data(),
                                        static_cast<int>(kernel.sizes.size()), rehearsal_stream(stream));
    constexpr int INVALID_CONFIGURATION = 9;
    return status == INVALID_CONFIGURATION ? CUDA_ERROR_INVALID_VALUE : static_cast<CUresult>(status);
}
}
