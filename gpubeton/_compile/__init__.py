"""Machine code: how functions are compiled by Numba, and kept between runs."""
