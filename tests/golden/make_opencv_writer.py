"""Make opencv_writer.json: what OpenCV, with which FFCV reduces and compresses images, makes of some.

Run with opencv-python-headless==4.11.0.86; the tests need its hashes only.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

REDUCTIONS = [  # height, width, max_resolution
    *[(375, 500, limit) for limit in (499, 400, 300, 256, 250, 125, 96, 31, 7)],
    *[(500, 333, limit) for limit in (400, 256, 250, 100)],
    *[(1000, 999, 256), (999, 1000, 500), (64, 64, 16), (64, 64, 32), (90, 60, 30), (60, 90, 89), (63, 1000, 100)],
    *[(513, 512, 256), (512, 512, 511), (3, 1000, 400), (1000, 4, 334), (7, 5, 3), (2, 3, 2)],
]
COMPRESSIONS = [  # height, width, quality
    *[(93, 125, quality) for quality in (1, 30, 75, 90, 95, 100)],
    *[(8, 8, 90), (16, 17, 90), (1, 1, 90), (5, 200, 90), (187, 250, 90)],
]


def picture(height: int, width: int) -> np.ndarray:
    """A picture with slopes, edges and noise, from integer arithmetic alone."""
    y, x, color = np.meshgrid(
        np.arange(height, dtype=np.uint32),
        np.arange(width, dtype=np.uint32),
        np.arange(3, dtype=np.uint32),
        indexing="ij",
    )
    noise = ((y * 2654435761 + x * 40503 + color * 2246822519) >> 13) % 32
    slopes = (y * 3 + x * (2 + color)) % 176
    edges = ((y // 16 + x // 24) % 2) * 48
    return (noise + slopes + edges).astype(np.uint8)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    import cv2

    reductions = []
    for height, width, limit in REDUCTIONS:
        ratio = limit / max(height, width)
        size = int(ratio * width), int(ratio * height)
        pixels = cv2.resize(picture(height, width), size, interpolation=cv2.INTER_AREA)
        reductions.append([height, width, limit, list(pixels.shape[:2]), digest(pixels.tobytes())])
    compressions = []
    for height, width, quality in COMPRESSIONS:
        bgr = cv2.cvtColor(picture(height, width), cv2.COLOR_RGB2BGR)
        _, file = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])
        compressions.append([height, width, quality, digest(file.tobytes())])
    text = json.dumps({"made_with": f"cv2 {cv2.__version__}", "reductions": reductions, "compressions": compressions})
    Path(__file__).with_name("opencv_writer.json").write_text(text.replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()
