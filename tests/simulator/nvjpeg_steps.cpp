// nvjpeg_steps.cpp -- the simulated nvJPEG's way to decode one image in steps: host, transfer, device.

#include "journal.h"
#include "nvjpeg.h"
#include "switches.h"

using namespace simulator;

namespace {

// The host's step reads all bytes; only the library's copy is used from then on.
int on_host(const char* function, State* state, const Decoder* decoder, const DecodeParams* params, const JpegStream* jpeg) {
    if (!jpeg->data) return INVALID_PARAMETER;
    if (!state->pinned) {
        misuse(std::string(function) + ": no pinned buffer is attached to the state");
        return INVALID_PARAMETER;
    }
    state->parameters = params ? params->values : Parameters{};
    const int status = inspect_header(jpeg->header, state->parameters, decoder->backend, is_hardware(decoder->backend));
    if (status != OK) return status;
    const unsigned char* const bytes = jpeg->copy.empty() ? jpeg->data : jpeg->copy.data();
    if (const int grown = state->pinned->resize(jpeg->size)) return grown;
    state->bytes.assign(bytes, bytes + jpeg->size);
    state->header = jpeg->header;
    state->backend = decoder->backend;
    return OK;
}

int to_device(const char* function, State* state) {
    if (state->bytes.empty()) return INVALID_PARAMETER;
    if (!state->device) {
        misuse(std::string(function) + ": no device buffer is attached to the state");
        return INVALID_PARAMETER;
    }
    return state->device->resize(state->bytes.size());
}

int on_device(const char* function, State* state, const Image* target, Stream* stream) {
    if (state->bytes.empty() || !state->device) return INVALID_PARAMETER;
    Job job;
    job.own = std::make_shared<std::vector<unsigned char>>(state->bytes);
    job.data = job.own->data();
    job.size = job.own->size();
    job.target = *target;
    job.parameters = state->parameters;
    job.backend = state->backend;
    job.is_batched = is_hardware(state->backend);  // only the engines and the batched calls are restricted
    if (const int status = inspect(&job, function)) return status;
    return submit(state, stream, {job}, function, is_hardware(state->backend) && is_on("early_write"));
}

}  // namespace

extern "C" {

EXPORT int nvjpegDecoderCreate(void* handle, int backend, void** made) {
    const Handle* const owner = look_up<Handle>(handle, __func__);
    return Call(__func__).of(owner).run([&]() -> int {
        if (!owner || !made || backend < DEFAULT || backend > LOSSLESS) return INVALID_PARAMETER;
        if (is_hardware(backend) && setting("engines") == 0) return ARCH_MISMATCH;
        if (is_device_input(backend)) return NO_IMPLEMENTATION;
        Decoder* const decoder = new Decoder;
        decoder->backend = backend;
        enlist(decoder);
        *made = decoder;
        return OK;
    });
}

EXPORT int nvjpegDecoderDestroy(void* decoder) {
    Decoder* const found = look_up<Decoder>(decoder, __func__);
    return Call(__func__).run([&]() -> int {
        if (!found || !delist(found)) return INVALID_PARAMETER;
        delete found;
        return OK;
    });
}

EXPORT int nvjpegDecoderStateCreate(void* handle, void* decoder, void** made) {
    Handle* const owner = look_up<Handle>(handle, __func__);
    const Decoder* const found = look_up<Decoder>(decoder, __func__);
    return Call(__func__).of(owner).run([&]() -> int {
        if (!owner || !found || !made) return INVALID_PARAMETER;
        State* const state = new State;
        state->handle = owner;
        state->backend = found->backend;
        enlist(state);
        *made = state;
        return OK;
    });
}

EXPORT int nvjpegStateAttachPinnedBuffer(void* state, void* buffer) {
    State* const found = look_up<State>(state, __func__);
    Buffer* const attached = look_up<Buffer>(buffer, __func__);
    return Call(__func__).of(found).run([&]() -> int {
        if (!found || !attached || !attached->is_pinned) return INVALID_PARAMETER;
        found->pinned = attached;
        return OK;
    });
}

EXPORT int nvjpegStateAttachDeviceBuffer(void* state, void* buffer) {
    State* const found = look_up<State>(state, __func__);
    Buffer* const attached = look_up<Buffer>(buffer, __func__);
    return Call(__func__).of(found).run([&]() -> int {
        if (!found || !attached || attached->is_pinned) return INVALID_PARAMETER;
        found->device = attached;
        return OK;
    });
}

EXPORT int nvjpegDecodeJpeg(void* handle, void* decoder, void* state, void* jpeg_stream, const Image* target, void* params,
                            void* stream) {
    const char* const function = __func__;
    const Handle* const owner = look_up<Handle>(handle, function);
    const Decoder* const found = look_up<Decoder>(decoder, function);
    State* const source = look_up<State>(state, function);
    const DecodeParams* const given = look_up<DecodeParams>(params, function);
    const JpegStream* const jpeg = look_up<JpegStream>(jpeg_stream, function);
    Stream* const place = find_stream(stream, function);
    return Call(function).of(owner).of(source).in(place).with(1).run([&]() -> int {
        if (!owner || !found || !source || !jpeg || !target || !place || (params && !given)) return INVALID_PARAMETER;
        if (const int status = on_host(function, source, found, given, jpeg)) return status;
        if (const int status = to_device(function, source)) return status;
        return on_device(function, source, target, place);
    });
}
}
