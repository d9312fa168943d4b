// mix_row.cuh -- columns of an image's mix; gpubeton/_batch/mix.py in Python.
//
// A level inside the box becomes (weight * own + (1 - weight) * partner), weight in units of 2**-15, rounded down.
#pragma once

enum Mix { PARTNER, WEIGHT, TOP, LEFT, BOTTOM, RIGHT, MIX_COLUMNS };

enum { ONE_SHIFT = 15, ONE = 1 << ONE_SHIFT };
