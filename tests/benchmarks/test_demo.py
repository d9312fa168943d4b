from __future__ import annotations

import json

from PIL import Image

from benchmarks.harness import demo
from benchmarks.harness.photos import PhotoSet, write_photos


def test_the_demo_makes_a_file_a_picture_and_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.executable", ".venv/bin/python")
    folder = tmp_path / "[" / "x]"  # together a tag that closes nothing
    demo.run_demo(folder, 64, 1, passes=1)
    printed, beside = capsys.readouterr()
    assert "0/64" not in beside  # no bar of another kind between those of the demo
    for word in (
        "Epoch 0",
        "Epoch 1",
        "64/64",
        "images/s",
        "per core",
        "CPU s / 1000 images",
        "gpubeton",
        "DataLoader",
        "Next: .venv/bin/gpubeton info ",
    ):
        assert word in printed
    assert (folder / "photos.beton").stat().st_size > 1 << 20
    with Image.open(folder / "batch.png") as sheet:
        assert sheet.width > sheet.height > 500


def test_the_figures_of_the_demo_can_be_had_as_json(tmp_path, capsys):
    write_photos(tmp_path / "photos", PhotoSet(64))
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "photos").rglob("*.jpg")}
    demo.run_demo(tmp_path, 64, 1, passes=1, json=True)
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "photos").rglob("*.jpg")}, "used again"
    written = capsys.readouterr()
    result = json.loads(written.out)
    assert set(result["loaders"]) == {"gpubeton", demo.USUAL}
    assert result["loaders"][demo.USUAL]["speed"] == 1
    assert result["loaders"]["gpubeton"]["images_per_second"] > 0
    assert (result["images"], result["file"]) == (64, str(tmp_path / "photos.beton"))
    assert "Epoch 1" in written.err


def test_the_contact_sheet_shows_levels_before_normalization(tmp_path):
    import torch

    from benchmarks.harness.pillow_loader import MEAN, STD

    levels = torch.tensor([200, 100, 50]) / 255
    image = ((levels - torch.tensor(MEAN)) / torch.tensor(STD))[None, :, None, None].expand(1, 3, 16, 16).half()
    demo.write_contact_sheet_of(tmp_path / "sheet.png", image, torch.tensor([1]), ("a", "b"))
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.getpixel((50, 50)) == (200, 100, 50)
