// nvjpeg_decode.cpp -- headers, batches and single images of the simulated nvJPEG.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "journal.h"
#include "nvjpeg.h"
#include "switches.h"

using namespace simulator;

namespace {

// What the real library answers with a crash.
int crash(const std::string& what) {
    misuse(what);
    if (is_on("crash")) {
        fprintf(stderr, "simulator: %s; the real nvJPEG crashes here\n", what.c_str());
        abort();
    }
    return NOT_INITIALIZED;
}

// A state is of one thread at a time.
class Turn {
  public:
    Turn(State* state, const char* function) : state_(state) {
        if (state_->callers.fetch_add(1) > 0) misuse(std::string(function) + ": two threads use one state at once");
    }
    ~Turn() { state_->callers.fetch_sub(1); }

  private:
    State* const state_;
};

// The engines' own memory is for images up to a size; larger ones make it grow, which waits for the device.
int prepare(State* state, const std::vector<Job>& jobs) {
    size_t most = 0;
    for (const Job& job : jobs) {
        const size_t pixels = static_cast<size_t>(job.header.height) * static_cast<size_t>(job.header.width);
        most = pixels > most ? pixels : most;
    }
    if (!is_hardware(state->backend) || most <= state->prepared) return OK;
    write_work("grow", "memory of the engines", -1, state->handle->home);
    state->prepared = most;
    return OK;
}

int decode_batch(Call call, void* handle, void* state_handle, const unsigned char* const* data, const size_t* sizes,
                 const Image* targets, void* stream_handle) {
    Handle* const owner = look_up<Handle>(handle, call.function());
    State* const state = look_up<State>(state_handle, call.function());
    Stream* const stream = find_stream(stream_handle, call.function());
    if (state) call.with(state->batch);
    return call.of(owner).of(state).in(stream).run([&]() -> int {
        if (!owner || !state || state->handle != owner || !stream || !data || !sizes || !targets) return INVALID_PARAMETER;
        const Turn turn(state, call.function());
        if (state->batch == 0) return crash(std::string(call.function()) + " before nvjpegDecodeBatchedInitialize");
        if (!is_on("pixels")) return OK;
        if (stream->device != owner->home) {
            misuse(std::string(call.function()) + ": the stream belongs to another device than the handle");
        }
        const bool is_early = is_hardware(owner->backend) && is_on("early_write");
        std::vector<Job> jobs;
        for (int i = 0; i < state->batch; ++i) {
            Job job;
            job.data = data[i];
            job.size = sizes[i];
            job.target = targets[i];
            job.index = i;
            job.backend = owner->backend;
            job.is_batched = true;
            job.format = state->format;
            if (const int status = inspect(&job, call.function())) {
                // What comes before the culprit may be there already, and the state has to be initialized again.
                if (is_early) submit(state, stream, std::move(jobs), call.function(), is_early);
                state->batch = 0;
                return status;
            }
            jobs.push_back(job);
        }
        if (const int status = prepare(state, jobs)) return status;
        return submit(state, stream, std::move(jobs), call.function(), is_early);
    });
}

int parse(Call call, void* handle, const unsigned char* data, size_t size, void* jpeg_stream) {
    const Handle* const owner = look_up<Handle>(handle, call.function());
    JpegStream* const target = look_up<JpegStream>(jpeg_stream, call.function());
    return call.run([&]() -> int {
        if (!owner || !target || !data) return INVALID_PARAMETER;
        target->header = read_header(data, size);
        return target->header.status;
    });
}

int supported(Call call, void* handle, void* jpeg_stream, int* is_unsupported) {
    const Handle* const owner = look_up<Handle>(handle, call.function());
    const JpegStream* const stream = look_up<JpegStream>(jpeg_stream, call.function());
    return call.run([&]() -> int {
        if (!owner || !stream || !is_unsupported) return INVALID_PARAMETER;
        Header header = stream->header;
        header.has_end = true;  // whether the data are whole is not asked
        *is_unsupported = inspect_header(header, owner->backend, true) != OK;
        return OK;
    });
}

}  // namespace

extern "C" {

// --- headers

EXPORT int nvjpegJpegStreamCreate(void* handle, void** made) {
    const Handle* const owner = look_up<Handle>(handle, __func__);
    return Call(__func__).of(owner).run([&]() -> int {
        if (!owner || !made) return INVALID_PARAMETER;
        JpegStream* const stream = new JpegStream;
        enlist(stream);
        *made = stream;
        return OK;
    });
}

EXPORT int nvjpegJpegStreamDestroy(void* stream) {
    JpegStream* const found = look_up<JpegStream>(stream, __func__);
    return Call(__func__).run([&]() -> int {
        if (!found || !delist(found)) return INVALID_PARAMETER;
        delete found;
        return OK;
    });
}

EXPORT int nvjpegJpegStreamParseHeader(void* handle, const unsigned char* data, size_t size, void* stream) {
    return parse(Call(__func__), handle, data, size, stream);
}

// --- batches

EXPORT int nvjpegDecodeBatchedSupported(void* handle, void* jpeg_stream, int* is_unsupported) {
    return supported(Call(__func__), handle, jpeg_stream, is_unsupported);
}

EXPORT int nvjpegDecodeBatchedInitialize(void* handle, void* state_handle, int batch, int threads, int format) {
    const char* const function = __func__;
    const Handle* const owner = look_up<Handle>(handle, function);
    State* const state = look_up<State>(state_handle, function);
    return Call(function).of(owner).of(state).with(batch).run([&]() -> int {
        if (!owner || !state || state->handle != owner) return INVALID_PARAMETER;
        if (batch <= 0 || threads <= 0 || format < RGB || format > BGRI) return INVALID_PARAMETER;
        const Turn turn(state, function);
        if (state->is_busy()) misuse(std::string(function) + ": the state's work has not finished");
        state->batch = batch;
        state->format = format;
        return OK;
    });
}

EXPORT int nvjpegDecodeBatchedPreAllocate(void* handle, void* state_handle, int batch, int width, int height, int sampling,
                                          int format) {
    const char* const function = __func__;
    const Handle* const owner = look_up<Handle>(handle, function);
    State* const state = look_up<State>(state_handle, function);
    return Call(function).of(owner).of(state).with(batch).run([&]() -> int {
        if (!owner || !state || state->handle != owner || batch <= 0 || width <= 0 || height <= 0) return INVALID_PARAMETER;
        if (sampling < S444 || sampling > S410V || format < RGB || format > BGRI) return INVALID_PARAMETER;
        if (!is_hardware(owner->backend)) return OK;
        const Turn turn(state, function);
        if (state->is_busy()) misuse(std::string(function) + ": the state's work has not finished");
        state->prepared = static_cast<size_t>(width) * static_cast<size_t>(height);
        return OK;
    });
}

EXPORT int nvjpegDecodeBatched(void* handle, void* state, const unsigned char* const* data, const size_t* sizes,
                               const Image* targets, void* stream) {
    return decode_batch(Call(__func__), handle, state, data, sizes, targets, stream);
}

// --- single images

EXPORT int nvjpegDecode(void* handle, void* state_handle, const unsigned char* data, size_t size, int format,
                        const Image* target, void* stream_handle) {
    const char* const function = __func__;
    const Handle* const owner = look_up<Handle>(handle, function);
    State* const state = look_up<State>(state_handle, function);
    Stream* const stream = find_stream(stream_handle, function);
    return Call(function).of(owner).of(state).in(stream).with(1).run([&]() -> int {
        if (!owner || !state || state->handle != owner || !stream || !target) return INVALID_PARAMETER;
        if (format < RGB || format > BGRI) return INVALID_PARAMETER;
        const Turn turn(state, function);
        if (!is_on("pixels")) return OK;
        Job job;
        job.data = data;
        job.size = size;
        job.target = *target;
        job.backend = is_device_input(owner->backend) ? HYBRID : owner->backend;
        job.format = format;
        if (const int status = inspect(&job, function)) return status;
        return submit(state, stream, {job}, function, false);
    });
}
}
