// block.cuh -- how large the blocks are whose threads work together.
#pragma once

enum { WARPS = 4, THREADS = 32 * WARPS };
