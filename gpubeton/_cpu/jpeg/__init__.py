"""A baseline JPEG decoder that decodes only what the crop needs (ITU-T T.81; JFIF 1.02).

The stages, in order: `markers` (headers), `intervals` (byte stuffing), `huffman` (coefficients), `idct` (samples),
`ycbcr` (resampling and RGB); `picture` runs them on one image.

Every value of a header is checked when it is read, before it sizes or indexes anything. Valid but not baseline data
(progressive, CMYK, 12 bits, arithmetic coding, unusual sampling) and data that look damaged are refused with a code of
`codes`; libjpeg-turbo then decides.
"""
