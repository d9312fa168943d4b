"""BatchDecoder in the data pipelines of others, each the real package."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from tests.examples.example import run, write_images

#: Two classes of eight images, one of which is damaged.
PRINTED = "15 images of (3, 64, 64), labels [0, 1]\n"
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = write_images(tmp_path_factory.mktemp("decode") / "photos")
    damaged = folder / "class1" / "3.jpg"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    Image.open(folder / "class0" / "0.jpg").save(folder / "class0" / "0.png")
    (folder / "class0" / "0.jpg").unlink()
    return folder


def files(photos):
    return [(path, number) for number in (0, 1) for path in sorted((photos / f"class{number}").iterdir())]


@FORKS
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_data_loader_decodes_in_its_collate_fn(photos, workers):
    assert run("decode.py", "data_loader", str(photos), "--workers", workers, "--batch-size", "5") == PRINTED


@FORKS
@pytest.mark.parametrize("workers", ["0", "2"])
def test_webdataset_decodes_after_its_shards(photos, tmp_path, workers):
    pytest.importorskip("webdataset")
    for shard in range(2):
        with tarfile.open(tmp_path / f"shard-{shard}.tar", "w") as tar:
            for place, (path, label) in list(enumerate(files(photos)))[shard::2]:
                for suffix, content in ((path.suffix, path.read_bytes()), (".cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{place:06d}{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    urls = f"{tmp_path}/shard-{{0..1}}.tar"
    assert run("decode.py", "webdataset", urls, "--workers", workers, "--batch-size", "5") == PRINTED


@FORKS
@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_dataset_of_hugging_face_decodes_in_its_transform(photos, tmp_path, workers):
    datasets = pytest.importorskip("datasets")
    rows = {
        "image": [{"bytes": path.read_bytes(), "path": None} for path, _ in files(photos)],
        "label": [label for _, label in files(photos)],
    }
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    saved = str(tmp_path / "saved")
    assert run("decode.py", "hugging_face", saved, "--workers", workers, "--batch-size", "5") == PRINTED


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # Ray's own
def test_ray_data_decodes_in_its_processes(photos):
    ray = pytest.importorskip("ray")
    root = os.fspath(Path(__file__).resolve().parents[2])
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_gcs_server_port_wait_time_s", "300")  # on a busy machine it takes longer than 30
        environment = {"env_vars": {"PYTHONPATH": os.pathsep.join([root, f"{root}/examples"])}}
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=200 << 20,
            log_to_driver=False,
            runtime_env=environment,
        )
    try:
        assert run("decode.py", "ray", str(photos), "--workers", "1", "--batch-size", "5").endswith(PRINTED)
    finally:
        ray.shutdown()
