"""Images in containers of object stores and web servers give what the converted file gives, by few requests."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpubeton import Loader
from gpubeton._bytes import node_cache, object_store
from gpubeton._engine import remote_entry_points
from gpubeton.dataset import Settings, convert, index_source, open_source
from gpubeton.errors import OptionError, RemoteChangedError, RemoteMissingError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.loader import RemoteOptions
from gpubeton.transforms import ToTensor
from tests.bytes.fault_server import Fault
from tests.loader.pipelines import same
from tests.loader.test_elastic import global_batches, run
from tests.loader.test_read_in_place import ORDERS, converted, photos, pipelines, write_tars, write_zip
from tests.small_files import picture

__all__ = ["converted", "photos"]

TARS = "train-{000..002}.tar"


def opened(path, **options):
    usual = {"order": "window", "seed": 3, "num_workers": 1, "drop_last": False, "pipelines": pipelines()}
    return Loader(path, 4, **{**usual, **options})


def read(path, **options):
    """Two epochs: the first batches of each are decoded without entry points."""
    with opened(path, **options) as loader:
        return [[output.numpy().tobytes() for output in batch] for _ in range(2) for batch in loader]


def indexed(urls, path, options=None):
    """Index containers; give the path, and what a loader has to be told."""
    done = index_source(open_source(urls, remote=options), path, num_workers=1)
    assert (done.samples, done.indexed, done.unread) == (30, 30, [])
    return path, {"containers": done.outside}


@pytest.fixture
def tars(photos, tmp_path, s3_server):
    """Tar files in a folder of a bucket: their URLs."""
    (tmp_path / "tars").mkdir()
    write_tars(photos, tmp_path / "tars")
    for path in (tmp_path / "tars").iterdir():
        s3_server.put(f"tars/{path.name}", path)
    return s3_server.url(f"tars/{TARS}")


@pytest.fixture(params=["pattern", "folder", "list", "zip", "index here", "index there", "web", "index of web"])
def place(request, photos, tmp_path, s3_server, fault_server):
    """Containers in a store or on a web server, as they are named to a loader, and more arguments of it."""
    kind, options = request.param, s3_server.options
    if kind == "zip":
        return s3_server.put("photos.zip", write_zip(photos, tmp_path)), {"remote": options}
    url = request.getfixturevalue("tars")
    if "web" in kind:
        for path in (tmp_path / "tars").iterdir():
            fault_server.objects[f"tars/{path.name}"] = path.read_bytes()
        urls = [fault_server.url(f"tars/train-{number:03}.tar") for number in range(3)]
        return indexed(urls, tmp_path / "web.index") if kind == "index of web" else ([f"{u}?X-a=b" for u in urls], {})
    if kind == "folder":
        s3_server.put("tars/notes.txt", b"no container")
        return s3_server.url("tars/"), {"remote": options}
    if kind == "index here":
        path, more = indexed(url, tmp_path / "a.index", options)
        assert more == {"containers": [s3_server.url("tars/")]}
        return path, {**more, "remote": options}
    if kind == "index there":
        path, more = indexed(f"{tmp_path}/tars/{TARS}", tmp_path / "tars" / "a.index")
        assert more == {"containers": []}
        return s3_server.put("tars/a.index", path), {"remote": options}
    return url if kind == "pattern" else [s3_server.url(f"tars/train-{number:03}.tar") for number in range(3)], {
        "remote": options
    }


@pytest.mark.filterwarnings("error")
def test_batches_and_orders_are_those_of_the_converted_file(place, converted, monkeypatch):
    name, more = place
    if "remote" in more:
        monkeypatch.delenv("AWS_ENDPOINT_URL")
    for order in ORDERS:
        assert read(name, order=order, **more) == read(converted, order=order)
    with opened(name, **more) as loader, opened(converted) as expected:
        assert loader.reader.index.fingerprint == expected.reader.index.fingerprint
        assert [len(loader), loader.reader.class_names] == [len(expected), None]
