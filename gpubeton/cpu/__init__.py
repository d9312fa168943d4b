"""The CPU executor: carries out a planned batch with Numba, and libjpeg-turbo for the odd image.

From one image to a batch: `jpeg` (a baseline decoder that decodes only the crop), `rgb` (raw-stored pixels), `taps`
(interpolation weights), `finish` (levels to the tensor's type), `image` (one image, whichever way), `crew` (threads
that take images off a ring of batches).
"""
