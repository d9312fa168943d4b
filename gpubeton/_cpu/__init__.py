"""The CPU executor: makes planned batches with Numba, and the rare image with libjpeg-turbo.

From one image to a batch: `jpeg` (a baseline decoder that decodes only the crop), `resample` (raw pixels), `taps`
(filter weights), `color_simd` (color steps), `epilogue` (8-bit pixels to the output's values), `other_kinds` (images
that are not 8-bit RGB), `ring` (the ring buffer, and the loops over its images), `worker_pool` (the threads).
"""
