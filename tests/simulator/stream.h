// stream.h -- streams are threads with a queue, events are marks in it.
//
// Status values are CUDA's cudaError_t.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace simulator {

constexpr int MOST_DEVICES = 8;

enum Status {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_CONFIGURATION = 9,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
};

// A point in a stream's queue that threads and other streams can wait for.
class Mark {
  public:
    void finish();
    void wait();
    bool is_done();

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_done_ = false;
};

class Stream {
  public:
    Stream(int number, int device, bool is_urgent);

    // Append work. `is_certain`: it is done even after an error, as marks are, so that nobody waits forever.
    void put(std::string name, std::function<void()> run, bool is_certain = false);
    // Append a mark and return it.
    std::shared_ptr<Mark> mark(const std::string& name);
    void synchronize();
    bool is_idle();
    // Whether nothing is left to do but to give memory of tensors back, which waits of the program do not cover.
    bool is_settled();

    // Between these two no further work of the queue begins.
    void hold();
    void release();
    // Sleep before each piece of work: `least` to `most` microseconds, evenly distributed.
    void slow_down(long least, long most, uint64_t seed);
    // Make it a new stream; it must be idle.
    void renew(int number, int device, bool is_urgent);

    int number;
    int device;
    bool is_urgent;

  private:
    struct Work {
        std::string name;
        std::function<void()> run;
        bool is_certain;
    };

    void serve();
    void pause();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work> queue_;
    bool is_busy_ = false;
    bool is_freeing_ = false;  // what it is busy with
    bool is_held_ = false;
    long least_ = 0;
    long most_ = 0;
    std::mt19937_64 random_;
};

struct Event {
    int device;
    bool is_timed = false;
    std::mutex mutex;
    std::shared_ptr<Mark> mark;  // null until recorded
};

// The stream behind a cudaStream_t, or null (with a misuse noted) if there is none.
Stream* find_stream(void* handle, const char* caller);
Stream* find_used_stream(void* handle);
// The streams of a device that are in use.
std::vector<Stream*> streams_of(int device);

// The error that a device is stuck with: CUDA's errors from kernels and copies stay until the process ends.
int device_error(int device);
void set_device_error(int device, int status);

// The calling thread's current device.
int current_device();

// What this thread is doing, for the message when it touches memory that it may not; null if nothing.
const char* current_work();

}  // namespace simulator
