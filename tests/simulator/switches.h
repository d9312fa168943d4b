// switches.h -- how the simulated hardware behaves; set from Python by name.

#pragma once

#define EXPORT __attribute__((visibility("default")))

namespace simulator {

// The value of a switch; aborts on a name that is not in the table of switches.cpp.
long long setting(const char* name);
inline bool is_on(const char* name) { return setting(name) != 0; }

}  // namespace simulator
