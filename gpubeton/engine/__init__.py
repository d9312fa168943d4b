"""The engine: carries planned batches through storage, decoding and the rest of their pipelines.

`sources` (where a field's bytes are), `image_output` and `row_output` (what is made of them), `plan` (what will be done
for each batch), `staged` (the bytes of a batch in memory), `bad_images` (what happens to a sample that cannot be
decoded), `arrays` (memory for batches), `engine` (the line itself).
"""

from __future__ import annotations

from gpubeton.engine.arrays import ArrayPool
from gpubeton.engine.bad_images import BadSample
from gpubeton.engine.batch import Batch
from gpubeton.engine.engine import READS_AHEAD, Engine, EngineOptions
from gpubeton.engine.outputs import Output, compile_outputs
from gpubeton.engine.plan import BatchPlan, Plan
from gpubeton.engine.sources import Source

__all__ = [
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
]
