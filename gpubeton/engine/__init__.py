"""The engine: compiles pipelines into outputs, plans the batches of an epoch, and makes them."""

from __future__ import annotations

from gpubeton.engine.bad_images import BadSample
from gpubeton.engine.batch_plan import BatchPlan, Plan
from gpubeton.engine.buffers import ArrayPool
from gpubeton.engine.engine import Batch, Engine, EngineOptions
from gpubeton.engine.output_graph import Output, compile_outputs, likely_mistakes
from gpubeton.engine.sources import BATCHES_WITHOUT_ENTRIES, READS_AHEAD, Source

__all__ = [
    "BATCHES_WITHOUT_ENTRIES",
    "READS_AHEAD",
    "ArrayPool",
    "BadSample",
    "Batch",
    "BatchPlan",
    "Engine",
    "EngineOptions",
    "Output",
    "Plan",
    "Source",
    "compile_outputs",
    "likely_mistakes",
]
