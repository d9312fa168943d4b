#include "stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "journal.h"
#include "switches.h"

namespace simulator {
namespace {

thread_local int thread_device = 0;
thread_local const char* thread_work = nullptr;
std::atomic<int> errors[MOST_DEVICES];

// Never destroyed: the threads outlive main(). Streams are never destroyed either, but may serve a later test anew, by
// another handle: what the garbage collector ends late must not wait for the stream of another test.
struct Streams {
    std::mutex mutex;
    std::map<void*, Stream*> used;  // by handle
    std::set<void*> former;         // handles of earlier tests; each is an address of its own
    std::vector<Stream*> spare;
    long least = 0;
    long most = 0;
    uint64_t seed = 0;
};

Streams& streams() {
    static Streams* const only = new Streams;
    return *only;
}

// What handles of earlier tests name: a stream that nobody else uses.
Stream* former_stream() {
    static Stream* const only = new Stream(-1, 0, false);
    return only;
}

Stream* stream_of(void* handle) {
    Stream* const stream = find_used_stream(handle);
    return stream ? stream : former_stream();
}

}  // namespace

void Mark::finish() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
}

void Mark::wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return is_done_; });
}

bool Mark::is_done() {
    std::lock_guard<std::mutex> lock(mutex_);
    return is_done_;
}

Stream::Stream(int its_number, int its_device, bool is_so_urgent)
    : number(its_number), device(its_device), is_urgent(is_so_urgent) {
    std::thread(&Stream::serve, this).detach();
}

void Stream::put(std::string name, std::function<void()> run, bool is_certain) {
    if (!is_on("pixels")) {
        if (is_certain) run();
        return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back({std::move(name), std::move(run), is_certain});
    changed_.notify_all();
}

std::shared_ptr<Mark> Stream::mark(const std::string& name) {
    auto mark = std::make_shared<Mark>();
    put(name, [mark] { mark->finish(); }, true);
    return mark;
}

void Stream::synchronize() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty() && !is_busy_; });
}

bool Stream::is_idle() {
    std::lock_guard<std::mutex> lock(mutex_);
    return queue_.empty() && !is_busy_;
}

bool Stream::is_settled() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_busy_ && !is_freeing_) return false;
    return std::all_of(queue_.begin(), queue_.end(), [](const Work& work) { return work.name == "free"; });
}

void Stream::hold() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_held_ = true;
}

void Stream::release() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_held_ = false;
    changed_.notify_all();
}

void Stream::slow_down(long least, long most, uint64_t seed) {
    std::lock_guard<std::mutex> lock(mutex_);
    least_ = least;
    most_ = most;
    random_.seed(seed);
}

void Stream::renew(int new_number, int new_device, bool is_new_urgent) {
    std::lock_guard<std::mutex> lock(mutex_);
    number = new_number;
    device = new_device;
    is_urgent = is_new_urgent;
    is_held_ = false;
}

void Stream::serve() {
    for (;;) {
        Work work;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [this] { return !queue_.empty() && !is_held_; });
            work = std::move(queue_.front());
            queue_.pop_front();
            is_busy_ = true;
            is_freeing_ = work.name == "free";
        }
        pause();
        if (work.is_certain || device_error(device) == SUCCESS) {
            thread_device = device;
            thread_work = work.name.c_str();
            work.run();
            thread_work = nullptr;
            write_work("work", work.name, number, device);
        }
        work.run = nullptr;
        std::lock_guard<std::mutex> lock(mutex_);
        is_busy_ = false;
        changed_.notify_all();
    }
}

void Stream::pause() {
    long microseconds = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        if (most_ <= 0) return;
        microseconds = std::uniform_int_distribution<long>(least_, most_)(random_);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

Stream* find_used_stream(void* handle) {
    std::lock_guard<std::mutex> lock(streams().mutex);
    const auto found = streams().used.find(handle);
    if (found != streams().used.end()) return found->second;
    return streams().former.count(handle) ? former_stream() : nullptr;
}

std::vector<Stream*> streams_of(int device) {
    std::lock_guard<std::mutex> lock(streams().mutex);
    std::vector<Stream*> found;
    for (const auto& [handle, stream] : streams().used) {
        if (stream->device == device) found.push_back(stream);
    }
    return found;
}

Stream* find_stream(void* handle, const char* caller) {
    Stream* const found = find_used_stream(handle);
    if (!found) misuse(std::string(caller) + ": the default stream, or one that does not exist");
    return found;
}

int device_error(int device) { return errors[device]; }
void set_device_error(int device, int status) { errors[device] = status; }
int current_device() { return thread_device; }
const char* current_work() { return thread_work; }

}  // namespace simulator

using namespace simulator;

namespace {

Event* event_of(void* handle) { return static_cast<Event*>(handle); }

std::shared_ptr<Mark> mark_of(void* handle) {
    std::lock_guard<std::mutex> lock(event_of(handle)->mutex);
    return event_of(handle)->mark;
}

}  // namespace

extern "C" {

// --- devices

EXPORT int simulated_use_device(int device) {
    const int before = thread_device;
    thread_device = device;
    return before;
}

EXPORT void simulated_device_fail(int device, int status) {
    if (status == SUCCESS) {
        // Drop the work that is queued: it would run after the error, on memory that was freed meanwhile.
        for (Stream* stream : streams_of(device)) stream->synchronize();
    }
    set_device_error(device, status);
}

// --- streams

EXPORT void* simulated_stream_make(int device, int is_urgent) {
    Streams& all = streams();
    std::lock_guard<std::mutex> lock(all.mutex);
    const int number = static_cast<int>(all.used.size());
    Stream* stream = nullptr;
    if (all.spare.empty()) {
        stream = new Stream(number, device, is_urgent != 0);
    } else {
        stream = all.spare.back();
        all.spare.pop_back();
        stream->renew(number, device, is_urgent != 0);
    }
    stream->slow_down(all.least, all.most, all.seed + static_cast<uint64_t>(number));
    void* const handle = new char;
    all.used[handle] = stream;
    return handle;
}

EXPORT int simulated_stream_number(void* handle) { return stream_of(handle)->number; }
EXPORT int simulated_stream_is_urgent(void* handle) { return stream_of(handle)->is_urgent; }
EXPORT int simulated_stream_is_idle(void* handle) { return stream_of(handle)->is_idle(); }
EXPORT int simulated_stream_is_settled(void* handle) { return stream_of(handle)->is_settled(); }
EXPORT void simulated_stream_hold(void* handle) { stream_of(handle)->hold(); }
EXPORT void simulated_stream_release(void* handle) { stream_of(handle)->release(); }

EXPORT void simulated_stream_slow_down(void* handle, long least, long most, uint64_t seed) {
    stream_of(handle)->slow_down(least, most, seed);
}

EXPORT void simulated_streams_slow_down(long least, long most, uint64_t seed) {
    Streams& all = streams();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.least = least;
    all.most = most;
    all.seed = seed;
    for (const auto& [handle, stream] : all.used) stream->slow_down(least, most, seed + static_cast<uint64_t>(stream->number));
}

EXPORT int simulated_stream_synchronize(void* handle) {
    Stream* const stream = find_stream(handle, "synchronize");
    if (!stream) return INVALID_HANDLE;
    stream->synchronize();
    return device_error(stream->device);
}

EXPORT int simulated_stream_wait(void* handle, void* event) {
    Stream* const stream = find_stream(handle, "wait");
    if (!stream) return INVALID_HANDLE;
    const std::shared_ptr<Mark> mark = mark_of(event);
    if (mark) stream->put("wait", [mark] { mark->wait(); }, true);
    return device_error(stream->device);
}

// The device is stuck with an error from the stream's turn on.
EXPORT int simulated_stream_fail(void* handle, int status) {
    Stream* const stream = find_stream(handle, "fail");
    if (!stream) return INVALID_HANDLE;
    stream->put("fail", [stream, status] { set_device_error(stream->device, status); });
    return SUCCESS;
}

// Give all streams back, for later tests to use; returns how many are not idle after so many milliseconds.
EXPORT int simulated_streams_recycle(long milliseconds) {
    Streams& all = streams();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
    std::vector<Stream*> used;
    {
        std::lock_guard<std::mutex> lock(all.mutex);
        for (const auto& [handle, stream] : all.used) {
            used.push_back(stream);
            all.former.insert(handle);
        }
        all.used.clear();
    }
    for (Stream* stream : used) {
        stream->release();
        stream->slow_down(0, 0, 0);
    }
    int busy = 0;
    for (Stream* stream : used) {
        while (!stream->is_idle() && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        const bool is_idle = stream->is_idle();
        busy += is_idle ? 0 : 1;
        std::lock_guard<std::mutex> lock(all.mutex);
        if (is_idle) all.spare.push_back(stream);
    }
    std::lock_guard<std::mutex> lock(all.mutex);
    all.least = all.most = 0;
    all.seed = 0;
    return busy;
}

// --- events

EXPORT void* simulated_event_make(int device) {
    Event* const event = new Event;
    event->device = device;
    return event;
}

EXPORT void simulated_event_drop(void* handle) { delete event_of(handle); }

EXPORT int simulated_event_record(void* handle, void* stream_handle) {
    Stream* const stream = find_stream(stream_handle, "record");
    if (!stream) return INVALID_HANDLE;
    Event* const event = event_of(handle);
    if (event->device != stream->device) {
        misuse("record: an event of device " + std::to_string(event->device) + " in a stream of device " +
               std::to_string(stream->device));
        return INVALID_HANDLE;
    }
    std::lock_guard<std::mutex> lock(event->mutex);
    event->mark = stream->mark("record");
    return device_error(stream->device);
}

EXPORT int simulated_event_synchronize(void* handle) {
    const std::shared_ptr<Mark> mark = mark_of(handle);
    if (mark) mark->wait();
    return device_error(event_of(handle)->device);
}

EXPORT int simulated_event_query(void* handle) {
    const int error = device_error(event_of(handle)->device);
    if (error != SUCCESS) return error;
    const std::shared_ptr<Mark> mark = mark_of(handle);
    return !mark || mark->is_done() ? SUCCESS : NOT_READY;
}
}
