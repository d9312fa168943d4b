"""The Kubernetes examples: their commands run with their environment, and write only where a volume is mounted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from tests.examples.example import EXAMPLES
from tests.examples.test_elastic import NUM_SAMPLES, write_images

SIZES = ["--batch-size=20", "--side=16", "--epochs=1", "--num-workers=1"]


class Pod:
    """A pod of a Job, with a folder in place of each volume, and its commands."""

    def __init__(self, name, folder):
        documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))
        (self.job,) = (document for document in documents if document["kind"] == "Job")
        self.services = [document for document in documents if document["kind"] == "Service"]
        self.spec = self.job["spec"]["template"]["spec"]
        self.containers = [*self.spec.get("initContainers", []), *self.spec["containers"]]
        self.folder = folder
        for volume in self.spec["volumes"]:
            (folder / volume["name"]).mkdir()

    def run(self, container, *more, replaced=()):
        """Run the command of a container with nothing but its environment; `replaced` is what a test has instead."""
        variables = {variable["name"]: variable["value"] for variable in container["env"]}
        variables |= {name: value for name, value in replaced if name in variables}
        words = [re.sub(r"\$\((\w+)\)", lambda value: variables[value[1]], word) for word in self.command(container)]
        words = [self.placed(word, container, replaced) for word in words]
        environment = {name: self.placed(value, container, replaced) for name, value in variables.items()}
        environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": str(EXAMPLES.parent)}
        environment |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        done = subprocess.run([*words, *more], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @staticmethod
    def command(container):
        return [*container["command"], *container.get("args", [])]

    def placed(self, text, container, replaced):
        """Put the folders of this machine into the place of the container's."""
        for before, after in replaced:
            text = text.replace(before, after)
        for mount in container["volumeMounts"]:
            text = re.sub(rf"^{mount['mountPath']}(?=/|$)", str(self.folder / mount["name"]), text)
        return text.replace("/opt/gpubeton", str(EXAMPLES.parent))


@pytest.mark.parametrize("name", sorted(path.name for path in (EXAMPLES / "kubernetes").glob("*.yaml")))
def test_containers_run_without_root_and_write_only_to_volumes(name, tmp_path):
    pod = Pod(name, tmp_path)
    assert pod.spec["securityContext"]["runAsNonRoot"]
    for container in pod.containers:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert {mount["name"] for mount in container["volumeMounts"]} <= {each["name"] for each in pod.spec["volumes"]}
        values = {variable["name"]: variable["value"] for variable in container["env"]}
        paths = [values[name] for name in ("HOME", "TMPDIR", "NUMBA_CACHE_DIR")]
        paths += [word for word in pod.command(container) if word.startswith("/") and not word.startswith("/opt/")]
        assert all(any(path == mount or path.startswith(f"{mount}/") for mount in mounts) for path in paths)


def test_the_volume_of_the_cache_has_no_limit_above_which_the_pod_is_evicted(tmp_path):
    pod = Pod("elastic.yaml", tmp_path)
    (container,) = pod.containers
    (cache,) = (Path(variable["value"]) for variable in container["env"] if variable["name"] == "GPUBETON_CACHE_DIR")
    (name,) = (each["name"] for each in container["volumeMounts"] if cache.is_relative_to(each["mountPath"]))
    (volume,) = (each for each in pod.spec["volumes"] if each["name"] == name)
    assert "sizeLimit" not in volume["emptyDir"]  # the default limit of the cache is a part of the whole disk
    assert "ephemeral-storage" not in container["resources"]["limits"]


def test_the_elastic_job_streams_from_an_object_store(s3_server, tmp_path):
    url = s3_server.put("train.beton", write_images(tmp_path / "train.beton"))
    pod = Pod("elastic.yaml", tmp_path)
    local = [("NODES", "1:1"), ("PROCESSES", "1"), ("FIRST_POD", "127.0.0.1"), (":29400", ":0")]
    printed = pod.run(pod.containers[0], *SIZES, replaced=[*local, ("s3://bucket/train.beton", url)])
    assert '"processes": 1' in printed
    saved = torch.load(tmp_path / "runs" / "elastic" / "checkpoint.pt")
    assert (saved["loader"]["epoch"], saved["loader"]["num_samples"]) == (1, NUM_SAMPLES)
    assert any((tmp_path / "scratch" / "cache").iterdir())
    # The names of the pods are those of the service, and each pod is one of the nodes of torchrun.
    service, job = pod.services[0], pod.job
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod.spec["subdomain"] == service["metadata"]["name"]
    values = {variable["name"]: variable["value"] for variable in pod.containers[0]["env"]}
    assert values["FIRST_POD"] == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert values["NODES"] == f"1:{job['spec']['parallelism']}" == f"1:{job['spec']['completions']}"


def test_the_staging_job_trains_on_its_cache(s3_server, tmp_path):
    url = s3_server.put("train.beton", write_images(tmp_path / "train.beton"))
    pod = Pod("stage.yaml", tmp_path)
    fetch, train = pod.containers
    replaced = [("s3://bucket/train.beton", url), ("--nproc-per-node=gpu", "--nproc-per-node=1")]
    for _ in range(2):  # the second time it is there already
        assert "train.beton: 1 file" in pod.run(fetch, replaced=replaced)
    (data,) = (tmp_path / "scratch/cache/objects").glob("*/data")
    assert data.read_bytes() == (tmp_path / "train.beton").read_bytes()
    assert '"processes": 1' in pod.run(train, *SIZES, replaced=replaced)
    assert torch.load(tmp_path / "runs/stage/checkpoint.pt")["loader"]["epoch"] == 1
