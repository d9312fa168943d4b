// nvjpeg_job.cpp -- one image of a call: looked at when called, decoded and written when it is its turn.

#include <pthread.h>

#include <cstring>

#include "image_fault.h"
#include "journal.h"
#include "memory.h"
#include "nvjpeg.h"
#include "switches.h"

namespace simulator {
namespace {

std::string name_of(const Job& job, const char* function) {
    return std::string(function) + ": image " + std::to_string(job.index);
}

bool is_planar(int format) { return format == RGB || format == BGR; }

// From the first byte of a channel to behind its last.
size_t extent(const Job& job) {
    const size_t row = static_cast<size_t>(job.header.width) * (is_planar(job.format) ? 1 : 3);
    return static_cast<size_t>(job.header.height - 1) * job.target.pitch[0] + row;
}

// nvJPEG may write into device and pinned memory; never into what torch gives out and takes back as it likes.
bool check_target(const Job& job, const char* function, const char* when) {
    for (int i = 0; i < (is_planar(job.format) ? 3 : 1); ++i) {
        const auto address = reinterpret_cast<uintptr_t>(job.target.channel[i]);
        std::string why = why_unusable(address, extent(job));
        Region region;
        if (why.empty() && find_region(address, &region) && region.kind == TENSOR) why = "memory of torch's allocator";
        if (!why.empty()) {
            misuse(name_of(job, function) + ": " + when + " its target is " + why);
            return false;
        }
    }
    return true;
}

bool check_input(const Job& job, const char* function, const char* when) {
    const auto address = reinterpret_cast<uintptr_t>(job.data);
    bool is_foreign = false;
    std::string why = why_unusable(address, job.size, &is_foreign);
    Region region;
    if (is_foreign) {
        // Any memory of the host will do, though pinned memory is read faster.
        why = is_device_input(job.backend) || is_on("pinned_input") ? "memory that is neither the device's nor pinned" : "";
    } else if (why.empty() && find_region(address, &region) && (region.kind == PINNED) == is_device_input(job.backend)) {
        why = region.kind == PINNED ? "pinned memory, not the device's" : "memory of the device";
    }
    if (!why.empty()) misuse(name_of(job, function) + ": " + when + " its bytes are " + why);
    return why.empty();
}

// Bytes have to stay as they are until the device has read them.
bool check_unchanged(const Job& job, const char* function) {
    if (!check_input(job, function, "at its turn")) return false;
    if (hash_of(job.data, job.size) == job.hash) return true;
    misuse(name_of(job, function) + ": its bytes were changed before the stream came to it");
    return false;
}

// Rows of `more` size stay inside of the memory that the image is in.
void write(const Job& job, const Pixels& pixels) {
    const int format = job.format;
    const bool is_reversed = format == BGR || format == BGRI;
    const int step = is_planar(format) ? 1 : 3;
    Region region{};
    find_region(reinterpret_cast<uintptr_t>(job.target.channel[0]), &region);
    const auto* const end = reinterpret_cast<const unsigned char*>(region.begin + region.size);
    for (int y = 0; y < pixels.height + job.more_height; ++y) {
        const int from_y = y < pixels.height ? y : pixels.height - 1;
        for (int c = 0; c < 3; ++c) {
            unsigned char* const first = job.target.channel[is_planar(format) ? c : 0] + (is_planar(format) ? 0 : c);
            unsigned char* const row = first + static_cast<size_t>(y) * job.target.pitch[is_planar(format) ? c : 0];
            for (int x = 0; x < pixels.width + job.more_width; ++x) {
                const int from_x = x < pixels.width ? x : pixels.width - 1;
                unsigned char* const place = row + static_cast<size_t>(x) * static_cast<size_t>(step);
                if (place >= end && (job.more_height || job.more_width)) continue;
                const size_t from = 3 * (static_cast<size_t>(from_y) * static_cast<size_t>(pixels.width) +
                                         static_cast<size_t>(from_x));
                *place = pixels.rgb[from + static_cast<size_t>(is_reversed ? 2 - c : c)];
            }
        }
    }
}

void write_image(const Job& job, const char* function, bool is_written) {
    Entry entry{};
    strncpy(entry.kind, "image", sizeof(entry.kind) - 1);
    strncpy(entry.name, function, sizeof(entry.name) - 1);
    entry.status = is_written;
    entry.stream = -1;
    entry.device = current_device();
    entry.backend = job.backend;
    entry.images = job.index;
    entry.owner = job.hash;
    entry.address = reinterpret_cast<uint64_t>(job.target.channel[0]);
    entry.thread = static_cast<uint64_t>(pthread_self());
    write_entry(entry);
}

}  // namespace

int inspect_header(const Header& header, int backend, bool is_batched) {
    if (header.status != OK) return header.status;
    if (is_batched && !header.has_end) return INCOMPLETE;
    // Alone, an image is decoded without the engines, whatever the handle.
    const int decoder = is_batched ? backend : HYBRID;
    if (!takes(decoder, header)) {
        return is_batched && is_hardware(backend) ? static_cast<int>(setting("unsupported_status")) : JPEG_NOT_SUPPORTED;
    }
    return OK;
}

int inspect(Job* job, const char* function) {
    if (!job->data || !job->target.channel[0] || job->size == 0) return INVALID_PARAMETER;
    if (!check_input(*job, function, "when called")) return INVALID_PARAMETER;
    // What lies in device memory may still be on its way there.
    if (is_device_input(job->backend)) return OK;
    job->header = read_header(job->data, job->size);
    const int status = inspect_header(job->header, job->backend, job->is_batched);
    if (status != OK) return status;
    job->hash = hash_of(job->data, job->size);
    const ImageFault fault = faults_of(job->hash, job->index, job->is_batched, job->backend);
    job->is_skipped = fault.is_skipped;
    job->more_height = fault.more_height;
    job->more_width = fault.more_width;
    if (fault.status) return fault.status;
    const auto damaged = static_cast<int>(setting("damaged_status"));
    if (damaged && !decode(job->data, job->size, job->hash, job->header)->is_whole) return damaged;
    if (job->target.pitch[0] < static_cast<size_t>(job->header.width) * (is_planar(job->format) ? 1 : 3)) {
        return INVALID_PARAMETER;
    }
    return check_target(*job, function, "when called") ? OK : INVALID_PARAMETER;
}

void perform(const Job& job, const char* function, const char* when) {
    Job present = job;
    if (is_device_input(job.backend)) {
        if (!check_input(job, function, when)) return;
        present.header = read_header(job.data, job.size);
        present.hash = hash_of(job.data, job.size);
        if (inspect_header(present.header, job.backend, job.is_batched) != OK) {
            return write_image(present, function, false);
        }
    } else if (!check_unchanged(job, function)) {
        return;
    }
    if (job.is_skipped) return write_image(present, function, false);
    if (!check_target(present, function, when)) return;
    const auto pixels = decode(present.data, present.size, present.hash, present.header);
    run_guarded(function, [&] { write(present, *pixels); });
    write_image(present, function, true);
}

int submit(State* state, Stream* stream, std::vector<Job> jobs, const char* function, bool is_early) {
    if (state->is_busy() && state->stream != stream) {
        misuse(std::string(function) + ": the state is still at work in another stream");
    }
    if (is_early) {
        for (const Job& job : jobs) perform(job, function, "when called");
    }
    auto work = std::make_shared<const std::vector<Job>>(std::move(jobs));
    stream->put(function, [work, function, is_early] {
        for (const Job& job : *work) {
            if (!is_early) {
                perform(job, function, "at its turn");
            } else if (!is_device_input(job.backend)) {
                check_unchanged(job, function);
            }
        }
    });
    state->last = stream->mark(std::string("end of ") + function);
    state->stream = stream;
    return OK;
}

}  // namespace simulator
