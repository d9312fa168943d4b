"""Make opencv.npz: images resized by OpenCV, for sizes where its rules are easily got wrong.

Run it where OpenCV is installed (``pip install opencv-python-headless``); the tests need only the result.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

CASES = [  # height and width before, height and width after
    (62, 28, 44, 81),  # one axis shrinks, the other grows: OpenCV's rule for growing, on both
    (9, 42, 45, 30),  # grows by a whole factor
    (28, 33, 34, 37),
    (46, 40, 54, 25),
    (49, 20, 69, 34),
    (7, 9, 15, 23),
    (1, 5, 4, 3),
    (64, 48, 32, 24),  # shrinks by a whole factor
    (60, 50, 20, 41),
    (53, 61, 52, 60),
    (40, 31, 1, 1),
]


def main() -> None:
    """Write the arrays beside this file."""
    import cv2

    generator = np.random.default_rng(0)
    arrays = {}
    for number, (height, width, new_height, new_width) in enumerate(CASES):
        image = generator.integers(0, 256, (height, width, 3), np.uint8)
        arrays[f"image_{number}"] = image
        arrays[f"area_{number}"] = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_AREA)
        arrays[f"bilinear_{number}"] = cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
    np.savez_compressed(Path(__file__).with_name("opencv.npz"), **arrays)


if __name__ == "__main__":
    main()
