"""The CIFAR example: either archive gives the same files, and a network learns from them."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
from typing import ClassVar

import numpy as np
import pytest
import torch

from examples.cifar import __main__ as trainer
from examples.cifar import write as writer
from gpubeton.fields.decoders import SimpleRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from tests.examples.example import check_resuming, json_lines

PARTS = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def made_up(part, images=16):
    """Ten classes that the first colors identify: planes of 3072 bytes as CIFAR's, and labels."""
    rng = np.random.default_rng(PARTS.index(part))
    labels = rng.permutation(images) % 10
    planes = rng.integers(0, 100, (images, 3, 32, 32)) + 15 * labels[:, None, None, None]
    return planes.astype(np.uint8).reshape(images, 3072), labels.astype(np.uint8)


class Python2Pickler(pickle._Pickler):
    """Writes text as Python 2 did, which CIFAR's archive was written with: as strings without an encoding."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        content = value if isinstance(value, bytes) else value.encode("latin1")
        self.write(b"T" + struct.pack("<i", len(content)) + content)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_string

    def save_global(self, thing, name=None):
        place = thing.__module__.replace("numpy._core", "numpy.core")
        self.write(f"c{place}\n{thing.__name__}\n".encode())
        self.memoize(thing)

    dispatch[type] = dispatch[type(len)] = dispatch[type(made_up)] = save_global


def python_part(part):
    planes, labels = made_up(part)
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump({"data": planes, "labels": labels.tolist(), "batch_label": part})
    return file.getvalue()


def binary_part(part):
    planes, labels = made_up(part)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def write_archive(path, contents):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            entry = tarfile.TarInfo(f"cifar-10/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return str(path)


@pytest.fixture
def folder(tmp_path):
    """train.beton and test.beton of 80 and 16 made-up images."""
    source = write_archive(tmp_path / "binary.tar.gz", {f"{part}.bin": binary_part(part) for part in PARTS})
    writer.main([source, str(tmp_path)])
    return tmp_path


def test_both_archives_and_a_folder_give_the_same_files(folder):
    python = {part: python_part(part) for part in PARTS}
    source = write_archive(folder / "python.tar.gz", python)
    (folder / "data" / "cifar-10-batches-py").mkdir(parents=True)
    for part, content in python.items():
        (folder / "data" / "cifar-10-batches-py" / part).write_bytes(content)
    for place in (source, str(folder / "data")):
        writer.main([place, str(folder / "again")])
        for name in ("train.beton", "test.beton"):
            assert (folder / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_images_come_back_with_their_labels(folder):
    planes, labels = zip(*map(made_up, PARTS[:5]), strict=True)
    expected = np.concatenate(planes).reshape(80, 3, 32, 32).transpose(0, 2, 3, 1)
    loader = Loader(folder / "train.beton", 80, pipelines={"image": [SimpleRGBImageDecoder(), ToTensor()]})
    images, result = next(iter(loader))
    assert np.array_equal(images.numpy(), expected)
    assert np.array_equal(result[:, 0].numpy(), np.concatenate(labels))
    loader.close()


def test_an_archive_without_a_part_is_refused(tmp_path):
    source = write_archive(tmp_path / "cut.tar.gz", {f"{part}.bin": binary_part(part) for part in PARTS[1:]})
    with pytest.raises(FileNotFoundError, match="data_batch_1 not in it"):
        writer.main([source, str(tmp_path)])


def test_a_pickle_that_calls_something_is_refused(tmp_path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "attacked"),)

    contents = {part: python_part(part) for part in PARTS} | {"data_batch_3": pickle.dumps(Attack(), protocol=2)}
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir .*CIFAR-10"):
        writer.main([write_archive(tmp_path / "attack.tar.gz", contents), str(tmp_path)])
    assert not (tmp_path / "attacked").exists()


def options_of(folder):
    files = ["--train", f"{folder}/train.beton", "--val", f"{folder}/test.beton"]
    return [*files, "--batch-size", "16", "--width", "4", "--lr", "0.1", "--warmup", "2", "--num-workers", "2"]


def test_a_small_network_learns_the_classes(folder, capsys):
    results = trainer.main([*options_of(folder), "--folder", str(folder / "run"), "--epochs", "6"])
    lines = json_lines(capsys.readouterr().out)
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 6
    assert losses[-1] < 0.75 * losses[0]
    assert results.items() <= lines[-1].items()


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(folder):
    check_resuming(trainer, folder, *options_of(folder), "--epochs", "2", stop_after=7)


def test_the_network_is_pages():
    network = trainer.make_resnet9(64)
    # Eight convolutions, their normalisations, a linear layer.
    convolutions = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    expected = sum(9 * inputs * outputs + 2 * outputs for inputs, outputs in convolutions) + 10 * 512
    assert sum(parameter.numel() for parameter in network.parameters()) == expected
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_flipped_images_are_evaluated_too(folder):
    class LeftPixel(torch.nn.Module):
        def forward(self, batch):
            left = batch[:, 0, 0, 0]
            return torch.stack([torch.full_like(left, 0.4), left], dim=1)

    run = trainer.Run(trainer.recipe.settings_of(trainer.Settings, [*options_of(folder), "--folder", str(folder)]))
    run.loader.close()
    for flip in (False, True):
        bright_on_the_right = torch.tensor([0.0, 1.0]).expand(4, 1, 1, 2)
        loader = Batches([(bright_on_the_right, torch.ones(4, dtype=torch.long))])
        assert run.test_classes(LeftPixel(), loader, flip=flip)["top_1"] == float(flip)


class Batches(list):
    def close(self):
        pass
