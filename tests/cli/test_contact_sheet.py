from __future__ import annotations

import numpy as np
from PIL import Image

from gpubeton.cli.read_commands import write_contact_sheet


def test_images_are_drawn_side_by_side_in_rows(tmp_path):
    colors = np.array([[250, 0, 0], [0, 250, 0], [0, 0, 250]], np.float32)
    images = np.broadcast_to(colors[:, None, None], (3, 20, 40, 3))
    write_contact_sheet(tmp_path / "sheet.png", images, ["red", "green", "blue"], columns=2, side=40)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.getpixel((6 + 20, 6 + 10)) == (250, 0, 0)
        assert sheet.getpixel((6 + 46 + 20, 6 + 10)) == (0, 250, 0)
        assert sheet.getpixel((6 + 20, 6 + 42 + 10)) == (0, 0, 250)
        assert sheet.getpixel((6 + 46 + 20, 6 + 42 + 10)) == (255, 255, 255)
        below_red = np.asarray(sheet)[26:44, 6:46]
        assert below_red.min() < 100, "no caption"


def test_levels_beyond_white_and_black_are_clipped(tmp_path):
    images = np.array([-30, 290], np.float32).reshape(2, 1, 1, 1) * np.ones((1, 8, 8, 3), np.float32)
    write_contact_sheet(tmp_path / "sheet.png", images, ["", ""], side=8)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.getpixel((8, 8)) == (0, 0, 0)
        assert sheet.getpixel((6 + 14 + 2, 8)) == (255, 255, 255)
