"""A baseline JPEG decoder that decodes what the crop needs and no more (ITU-T T.81; JFIF 1.02).

The stages stand apart, each in its file, in the order in which an image passes them: `markers` (headers), `huffman`
(decoding tables), `scan` (byte stuffing and restart markers), `entropy` (coefficients), `idct` (samples), `strips`
(horizontal resampling), `colour` (vertical resampling and RGB), `picture` (all of them on one image).

Whatever a header claims is checked where it is read, before it sizes or indexes anything. What is valid but not
baseline (progressive, CMYK, 12 bits, arithmetic coding, unusual sampling) and what looks damaged is refused with a code
from `codes`, and libjpeg-turbo has the last word on it.
"""
