// nvjpeg.h -- what stands behind the handles of the simulated nvJPEG.
//
// Written from the facts of the interface; no header of NVIDIA's is used. Only the binary interface has to agree.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "header.h"
#include "memory.h"
#include "pixels.h"
#include "stream.h"

namespace simulator {

enum NvjpegStatus {
    OK = 0,
    NOT_INITIALIZED = 1,
    INVALID_PARAMETER = 2,
    BAD_JPEG = 3,
    JPEG_NOT_SUPPORTED = 4,
    ALLOCATOR_FAILURE = 5,
    EXECUTION_FAILED = 6,
    ARCH_MISMATCH = 7,
    NO_IMPLEMENTATION = 9,
    INCOMPLETE = 10,
};

enum Format { RGB = 3, BGR = 4, RGBI = 5, BGRI = 6 };

// nvjpegImage_t
struct Image {
    unsigned char* channel[4];
    size_t pitch[4];
};

// Everything that nvJPEG makes is on one list, so that a handle that was closed, or of another kind, is noticed.
struct Resource {
    explicit Resource(const char* its_kind) : kind(its_kind) {}
    virtual ~Resource() = default;
    const char* const kind;
    const int home = current_device();  // it belongs to the device that is current when it is made
    const int test = current_test();
    uint64_t number = 0;
};

struct Handle : Resource {
    static constexpr const char* KIND = "handle";
    Handle() : Resource(KIND) {}
    int backend = DEFAULT;
    unsigned flags = 0;
};

struct JpegStream : Resource {
    static constexpr const char* KIND = "jpeg stream";
    JpegStream() : Resource(KIND) {}
    Header header;
};

struct State : Resource {
    static constexpr const char* KIND = "state";
    State() : Resource(KIND) {}
    Handle* handle = nullptr;
    int backend = DEFAULT;
    int batch = 0;  // 0: not initialized
    int format = RGBI;
    size_t prepared = 0;  // pixels of an image that the engines have memory for
    std::shared_ptr<Mark> last;  // behind the latest work
    void* stream = nullptr;      // of the latest work
    std::atomic<int> callers{0};

    bool is_busy() { return last && !last->is_done(); }
};

// Put on, take from and look at the list. `look` notes a misuse and returns null if it is not there.
void enlist(Resource* resource);
bool delist(void* resource);
Resource* look(void* resource, const char* kind, const char* function);

template <class T>
T* look_up(void* resource, const char* function) {
    return static_cast<T*>(look(resource, T::KIND, function));
}

// One call: counts it, has it fail where that was planted, and writes it into the journal when it returns.
class Call {
  public:
    explicit Call(const char* function) : function_(function) {}
    Call& of(const Handle* handle);
    Call& of(State* state);
    Call& in(const Stream* stream);
    Call& with(int images);
    template <class Body>
    int run(Body body) {
        const int planted = begin();
        return end(planted ? planted : body());
    }
    const char* function() const { return function_; }

  private:
    int begin();
    int end(int status);

    const char* function_;
    int backend_ = -1;
    int device_ = -1;
    const Stream* stream_ = nullptr;
    int images_ = 0;
    uint64_t owner_ = 0;
    bool was_busy_ = false;
};

// One image of a call.
struct Job {
    const unsigned char* data = nullptr;
    size_t size = 0;
    Image target{};
    Header header;
    uint64_t hash = 0;
    int index = 0;
    int format = RGBI;
    int backend = DEFAULT;
    bool is_batched = false;
    bool is_skipped = false;
    int more_height = 0;
    int more_width = 0;
};

// Decode and write one image: the work of the device. `when` says at what time, for misuses.
void perform(const Job& job, const char* function, const char* when);

// Look at a job when called: header, memory, planted faults; the status that the call has to return.
int inspect(Job* job, const char* function);
// The same for what does not concern memory: whether the backend decodes such an image.
int inspect_header(const Header& header, int backend, bool is_batched);

// Let the device do the jobs of a call, `is_early` before everything else that the stream still has to do.
int submit(State* state, Stream* stream, std::vector<Job> jobs, const char* function, bool is_early);

}  // namespace simulator
