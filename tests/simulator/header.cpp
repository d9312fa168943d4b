#include "header.h"

#include <cstdint>
#include <cstring>

namespace simulator {
namespace {

constexpr int MOST_HARDWARE_SIDE = 16000;

int big_endian(const unsigned char* at) { return at[0] << 8 | at[1]; }

// The frame: precision, height, width, components of 3 bytes each.
bool read_frame(const unsigned char* body, size_t size, Header* header) {
    if (size < 6) return false;
    header->precision = body[0];
    header->height = big_endian(body + 1);
    header->width = big_endian(body + 3);
    header->components = body[5];
    if (header->components < 1 || header->components > 4 || size < 6 + 3 * static_cast<size_t>(header->components)) {
        return false;
    }
    for (int i = 0; i < header->components; ++i) {
        header->across[i] = body[6 + 3 * i + 1] >> 4;
        header->down[i] = body[6 + 3 * i + 1] & 15;
        if (header->across[i] < 1 || header->across[i] > 4 || header->down[i] < 1 || header->down[i] > 4) return false;
    }
    return header->height > 0 && header->width > 0;
}

// The next marker in entropy-coded data, or `size`.
size_t skip_scan(const unsigned char* data, size_t size, size_t at) {
    while (at + 1 < size) {
        const auto* const found = static_cast<const unsigned char*>(memchr(data + at, 0xFF, size - at - 1));
        if (!found) return size;
        at = static_cast<size_t>(found - data);
        const int next = data[at + 1];
        if (next != 0 && next != 0xFF && (next < 0xD0 || next > 0xD7)) return at;
        at += next == 0xFF ? 1 : 2;
    }
    return size;
}

bool is_frame(int marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

}  // namespace

Header read_header(const unsigned char* data, size_t size) {
    Header header;
    if (size < 2 || data[0] != 0xFF || data[1] != 0xD8) return header;
    int scans = 0;
    size_t at = 2;
    header.status = 10;
    for (;;) {
        // Behind the first scan nothing more has to be there.
        if (at + 2 > size) return header;
        if (data[at] != 0xFF) {
            if (scans == 0) header.status = 4;
            return header;
        }
        const int marker = data[at + 1];
        if (marker == 0xFF) {  // a fill byte
            ++at;
            continue;
        }
        if (marker == 0xD9) {
            header.has_end = true;
            if (scans == 0) header.status = 3;
            return header;
        }
        if (at + 4 > size) return header;
        const size_t length = static_cast<size_t>(big_endian(data + at + 2));
        if (length < 2) {
            if (scans == 0) header.status = 3;
            return header;
        }
        if (at + 2 + length > size) return header;
        const unsigned char* const body = data + at + 4;
        at += 2 + length;
        if (is_frame(marker)) {
            header.encoding = marker;
            if (!read_frame(body, length - 2, &header)) {
                header.status = 3;
                return header;
            }
        } else if (marker == 0xDD && length == 4) {
            header.has_restarts = big_endian(body) != 0;
        } else if (marker == 0xDA) {
            if (header.encoding == 0 || length < 3) {
                header.status = 3;
                return header;
            }
            ++scans;
            header.status = 0;
            header.is_single_scan = scans == 1;
            at = skip_scan(data, size, at);
        }
    }
}

Sampling Header::sampling() const {
    if (components == 1) return GRAY;
    if (components < 3 || across[1] != across[2] || down[1] != down[2]) return UNKNOWN;
    if (across[0] % across[1] || down[0] % down[1]) return UNKNOWN;
    const int wide = across[0] / across[1];
    const int high = down[0] / down[1];
    if (wide == 1 && high == 1) return S444;
    if (wide == 2 && high == 1) return S422;
    if (wide == 2 && high == 2) return S420;
    if (wide == 1 && high == 2) return S440;
    if (wide == 4 && high == 1) return S411;
    if (wide == 4 && high == 2) return S410;
    if (wide == 2 && high == 4) return S410V;
    return UNKNOWN;
}

int Header::component_width(int component) const {
    int most = 1;
    for (int i = 0; i < components; ++i) most = across[i] > most ? across[i] : most;
    return (width * across[component] + most - 1) / most;
}

int Header::component_height(int component) const {
    int most = 1;
    for (int i = 0; i < components; ++i) most = down[i] > most ? down[i] : most;
    return (height * down[component] + most - 1) / most;
}

bool is_hardware(int backend) { return backend == HARDWARE || backend == HARDWARE_DEVICE; }
bool is_device_input(int backend) { return backend == GPU_HYBRID_DEVICE || backend == HARDWARE_DEVICE; }

bool takes(int backend, const Header& header) {
    const Sampling sampling = header.sampling();
    if (header.status != 0 || header.precision != 8) return false;
    if (is_hardware(backend)) {
        return header.encoding <= 0xC1 && header.is_single_scan && (header.components == 1 || header.components == 3) &&
               (sampling == S444 || sampling == S422 || sampling == S420 || sampling == S440 || sampling == GRAY) &&
               header.width <= MOST_HARDWARE_SIDE && header.height <= MOST_HARDWARE_SIDE;
    }
    if (backend == LOSSLESS) return header.encoding == 0xC3;
    if (backend == GPU_HYBRID_DEVICE && (header.encoding != 0xC0 || header.has_restarts)) return false;
    return header.components != 4 && header.encoding <= 0xC2 && sampling != UNKNOWN;
}

}  // namespace simulator
