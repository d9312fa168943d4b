"""Check whether a training loop may capture CUDA graphs while a loader works."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from benchmarks.gpu.hazards.finding import Finding
from benchmarks.gpu.pipelines import usual_pipeline
from gpubeton.errors import GpubetonError
from gpubeton.format.index import Index
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.loader import Loader

__all__ = ["can_graphs_be_captured", "capture_graph"]


def capture_graph() -> bool:
    """Capture a graph as torch does by default, slowly, and return whether its replay computes what it should."""
    import torch

    graph, given = torch.cuda.CUDAGraph(), torch.arange(1000.0, device="cuda:0")
    with torch.cuda.graph(graph):  # in mode "global": a call that cannot be captured fails in any thread
        doubled = 2 * given
        time.sleep(0.02)  # so that the loader makes such calls
        made = doubled + 1
    graph.replay()
    return torch.equal(made, 2 * given + 1)


def can_graphs_be_captured(
    beton: str, *, batch_size: int = 256, epochs: int = 3, capture: Callable[[], bool] = capture_graph
) -> Finding:
    """Capture a graph at each batch of some epochs; compare the batches with those of epochs without captures."""
    counts: dict[str, Any] = {"captures": 0, "wrong_replays": 0, "errors": [], "batches": 0, "batches_not_the_same": 0}
    batch_size = min(batch_size, Index.open(beton).num_samples)
    options = GpuOptions(resident=False)
    with closing(Loader(
        beton, batch_size, num_workers=1, seed=0, pipelines={"image": usual_pipeline(64), "label": None},
        device="cuda:0", gpu_options=options,
    )) as loader:  # fmt: skip
        wanted = [batch.cpu() for (batch,) in loader]
        for _ in range(epochs):
            loader.set_epoch(0)
            try:
                for number, (batch,) in enumerate(loader):
                    counts["captures"] += 1
                    counts["wrong_replays"] += not capture()
                    counts["batches"] += 1
                    counts["batches_not_the_same"] += not batch.cpu().equal(wanted[number])
            except (RuntimeError, GpubetonError) as error:  # of the capture, or of the loader
                counts["errors"].append(f"{type(error).__name__}: {error}")
    errors = len(counts["errors"])
    verdict = (
        f"{counts['captures']} captures: {errors} errors, {counts['wrong_replays']} graphs compute something else, "
        f"{counts['batches_not_the_same']} of {counts['batches']} batches are not the same"
    )
    holds = not (errors or counts["wrong_replays"] or counts["batches_not_the_same"])
    return Finding("graphs", "Can graphs be captured while a loader works?", verdict, counts, holds)
