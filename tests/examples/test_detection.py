"""The detection example: boxes follow their images, targets and losses are FCOS's, the score is VOC's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from examples.detection import __main__ as detection
from examples.detection import fcos, write
from examples.recipe import settings_of
from gpubeton.fields.decoders import RaggedDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import ToTensor
from tests.examples.example import check_resuming, json_lines

XML = """<annotation><object><name>{kind}</name><difficult>{difficult}</difficult>
<bndbox><xmin>1</xmin><ymin>3</ymin><xmax>20</xmax><ymax>24</ymax></bndbox>
<part><name>head</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>
</object></annotation>"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Options for a small network and files of made-up images."""
    folder = tmp_path_factory.mktemp("detection")
    for name, count in (("train", "24"), ("val", "4")):
        write.main([str(folder / f"{name}.beton"), "--shapes", count, "--workers", "1"])
    sizes = ["--side", "64", "--width", "32", "--batch-size", "8", "--num-workers", "1", "--min-area", "0.8"]
    return ["--train", f"{folder}/train.beton", "--val", f"{folder}/val.beton", *sizes, "--warmup", "0"]


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(toy, tmp_path, capsys):
    results = check_resuming(detection, tmp_path, *toy, "--epochs", "2", stop_after=4)
    assert 0 <= results["map_50"] <= 1
    lines = json_lines(capsys.readouterr().out)
    assert lines[0]["classes"] == ["disc", "square"]
    first, last, *_ = [line["loss"] for line in lines if "loss" in line]
    assert last < first


def test_boxes_follow_their_images(toy, tmp_path):
    run = detection.Run(settings_of(detection.Settings, [*toy, "--folder", str(tmp_path)]))
    images, boxes = next(iter(run.loader))
    run.loader.close()
    assert len(boxes.values) > 5
    whole = boxes.values[((boxes.values[:, :4] > 1) & (boxes.values[:, :4] < 63)).all(1)]
    rows = boxes.rows[((boxes.values[:, :4] > 1) & (boxes.values[:, :4] < 63)).all(1)]
    centers = ((whole[:, :2] + whole[:, 2:4]) / 2).long()
    assert len(whole) > 2
    assert (images[rows, :, centers[:, 1], centers[:, 0]].amax(1) > 0).all()  # shapes are bright


def test_the_files_of_voc_become_boxes(tmp_path):
    folder = tmp_path / "VOC2007"
    for part in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / part).mkdir(parents=True)
    for name, kind, difficult in (("000001", "dog", 0), ("000002", "tvmonitor", 1)):
        Image.new("RGB", (32, 32)).save(folder / "JPEGImages" / f"{name}.jpg")
        (folder / "Annotations" / f"{name}.xml").write_text(XML.format(kind=kind, difficult=difficult))
    (folder / "ImageSets" / "Main" / "test.txt").write_text("000001\n000002\n")
    write.main([str(tmp_path / "voc.beton"), str(folder), "--set", "test", "--workers", "1"])
    assert Reader(tmp_path / "voc.beton").notes["classes"] == write.VOC
    assert len(write.VOC) == 20
    with Loader(tmp_path / "voc.beton", 2, pipelines={"image": None, "boxes": [RaggedDecoder(), ToTensor()]}) as loader:
        ((boxes,),) = list(loader)
    assert boxes.values.tolist() == [[0, 2, 20, 24, 11, 0], [0, 2, 20, 24, 19, 1]]


def test_a_place_learns_the_smallest_box_of_its_level_around_it():
    points, strides = fcos.places_of(128, torch.device("cpu"))
    assert [int((strides == stride).sum()) for stride in fcos.STRIDES] == [256, 64, 16, 4]
    boxes = torch.tensor([[40.0, 40, 80, 80, 1, 0], [56, 56, 64, 64, 0, 0], [0, 0, 128, 120, 2, 0]])
    kinds, distances = fcos.targets_of(boxes, points, strides)
    # Centers are (60, 60) and (64, 60): places of level 8 within 12 pixels, of level 16 within 24.
    assert [int((kinds == kind).sum()) for kind in range(3)] == [1, 8, 6]
    assert set(strides[(kinds == 0) | (kinds == 1)].tolist()) == {8.0}
    assert set(strides[kinds == 2].tolist()) == {16.0}  # its largest distances are 64 to 128
    for box in boxes:
        result = kinds == box[4]
        corners = torch.cat([points - distances[:, :2], points + distances[:, 2:]], 1)[result]
        assert torch.allclose(corners, box[:4].expand_as(corners))
    assert (fcos.targets_of(boxes[:0], points, strides)[0] == -1).all()


def test_the_overlap_at_a_place_is_giou():
    rng = np.random.default_rng(0)
    ones, others = rng.uniform(1, 9, (2, 20, 4))
    expected = []
    for box, other in zip(ones, others, strict=True):
        area = [(edges[0] + edges[2]) * (edges[1] + edges[3]) for edges in (box, other, np.minimum(box, other))]
        hull = (np.maximum(box, other)[[0, 1]] + np.maximum(box, other)[[2, 3]]).prod()
        union = area[0] + area[1] - area[2]
        expected.append(area[2] / union - (hull - union) / hull)
    assert np.allclose(fcos.overlap_at_place(torch.tensor(ones), torch.tensor(others)), expected)


def outputs_for(boxes, side):
    """What a perfect network gives for one image."""
    points, strides = fcos.places_of(side, torch.device("cpu"))
    kinds, distances = fcos.targets_of(boxes, points, strides)
    right = torch.nn.functional.one_hot(kinds + 1, 4)[None, :, 1:]
    central = torch.where(kinds >= 0, fcos.centrality(distances.clamp(min=1e-3)).logit(eps=1e-4), -9.0)
    return (right * 40.0 - 20, distances[None], central[None])


def test_a_perfect_network_has_the_least_loss_and_finds_each_box_once():
    boxes = torch.tensor([[10.0, 10, 40, 50, 1, 0], [20, 60, 110, 120, 0, 0]])
    outputs = outputs_for(boxes, 128)
    (result,) = fcos.detect(outputs, 128)
    assert result.shape == (2, 6)
    assert torch.allclose(result[result[:, 4].argsort(descending=True), :5], boxes[:, :5], atol=1e-3)
    assert fcos.mean_average_precision([result], [boxes], 3) == pytest.approx(1)
    best = fcos.loss_of(outputs, [boxes], 128)
    for number, change in enumerate((-outputs[0], outputs[1] * 1.2, outputs[2] + 1)):
        worse = [change if place == number else output for place, output in enumerate(outputs)]
        assert fcos.loss_of(tuple(worse), [boxes], 128) > best + 0.01
    nothing = fcos.loss_of(outputs_for(boxes[:0], 128), [boxes[:0]], 128)
    assert float(nothing) == pytest.approx(0, abs=1e-3)


def test_the_score_is_the_precision_at_eleven_recalls():
    true = torch.tensor([[0.0, 0, 10, 10, 0, 0], [20, 0, 30, 10, 0, 0], [40, 0, 50, 10, 0, 1]])
    right, double, wrong, difficult, late = (
        [0.0, 0, 10, 9, 0, 0.9],
        [0.0, 0, 10, 10, 0, 0.8],
        [70.0, 0, 80, 10, 0, 0.7],
        [40.0, 0, 50, 10, 0, 0.6],
        [20.0, 0, 30, 10, 0, 0.5],
    )
    result = torch.tensor([right, double, wrong, difficult, late])
    # Right at the first place, then two wrong ones, then right: a precision of 1 up to recall 0.5, of 2/4 above.
    assert fcos.mean_average_precision([result], [true], 1) == pytest.approx((6 * 1 + 5 * 0.5) / 11)
    assert fcos.mean_average_precision([result[:0]], [true], 1) == 0
    # A class that no image has does not count.
    assert fcos.mean_average_precision([result], [true], 3) == pytest.approx((6 * 1 + 5 * 0.5) / 11)
