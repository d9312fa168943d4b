// header.h -- what the markers of a JPEG say, and which backend of nvJPEG takes such an image.

#pragma once

#include <cstddef>

namespace simulator {

enum Sampling { S444 = 0, S422 = 1, S420 = 2, S440 = 3, S411 = 4, S410 = 5, GRAY = 6, S410V = 7, UNKNOWN = -1 };

enum Backend { DEFAULT = 0, HYBRID = 1, GPU_HYBRID = 2, HARDWARE = 3, GPU_HYBRID_DEVICE = 4, HARDWARE_DEVICE = 5, LOSSLESS = 6 };

struct Header {
    int status = 3;  // nvjpegStatus_t: 0, 3 no JPEG, 4 something else where a marker has to be, 10 cut short
    int encoding = 0;  // second byte of the frame's marker, 0xC0 is baseline
    int precision = 0;
    int height = 0;
    int width = 0;
    int components = 0;
    int across[4] = {};  // sampling factors
    int down[4] = {};
    bool has_restarts = false;
    bool is_single_scan = false;
    bool has_end = false;  // an EOI marker

    Sampling sampling() const;
    int component_width(int component) const;
    int component_height(int component) const;
};

Header read_header(const unsigned char* data, size_t size);

bool is_hardware(int backend);

// Whether bytes are read from device memory.
bool is_device_input(int backend);

// Whether a backend decodes such an image in a batch.
bool takes(int backend, const Header& header);

}  // namespace simulator
