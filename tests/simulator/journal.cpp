#include "journal.h"

#include <pthread.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "switches.h"

namespace simulator {
namespace {

// Never destroyed: the threads of the streams outlive main().
struct Journal {
    std::mutex mutex;
    uint64_t sequence = 0;
    std::vector<Entry> entries;
    std::vector<std::string> misuses;
};

Journal& journal() {
    static Journal* const only = new Journal;
    return *only;
}

}  // namespace

void write_entry(Entry entry) {
    if (!is_on("journal")) return;
    Journal& book = journal();
    std::lock_guard<std::mutex> lock(book.mutex);
    entry.sequence = book.sequence++;
    book.entries.push_back(entry);
}

void write_work(const char* kind, const std::string& name, int stream, int device) {
    Entry entry{};
    strncpy(entry.kind, kind, sizeof(entry.kind) - 1);
    strncpy(entry.name, name.c_str(), sizeof(entry.name) - 1);
    entry.stream = stream;
    entry.device = device;
    entry.backend = -1;
    entry.thread = static_cast<uint64_t>(pthread_self());
    write_entry(entry);
}

void misuse(const std::string& what) {
    Journal& book = journal();
    std::lock_guard<std::mutex> lock(book.mutex);
    book.misuses.push_back(what);
}

}  // namespace simulator

using simulator::journal;

extern "C" {

EXPORT uint64_t simulated_journal_length() {
    std::lock_guard<std::mutex> lock(journal().mutex);
    return journal().entries.size();
}

EXPORT uint64_t simulated_journal_read(uint64_t first, uint64_t count, simulator::Entry* entries) {
    std::lock_guard<std::mutex> lock(journal().mutex);
    uint64_t done = 0;
    for (; done < count && first + done < journal().entries.size(); ++done) entries[done] = journal().entries[first + done];
    return done;
}

EXPORT void simulated_journal_clear() {
    std::lock_guard<std::mutex> lock(journal().mutex);
    journal().entries.clear();
}

EXPORT uint64_t simulated_misuses() {
    std::lock_guard<std::mutex> lock(journal().mutex);
    return journal().misuses.size();
}

// The text of one misuse; returns its length, which may be more than was copied.
EXPORT uint64_t simulated_misuse_read(uint64_t index, char* text, uint64_t size) {
    std::lock_guard<std::mutex> lock(journal().mutex);
    if (index >= journal().misuses.size() || size == 0) return 0;
    const std::string& found = journal().misuses[index];
    strncpy(text, found.c_str(), size - 1);
    text[size - 1] = 0;
    return found.size();
}

EXPORT void simulated_misuses_clear() {
    std::lock_guard<std::mutex> lock(journal().mutex);
    journal().misuses.clear();
}
}
