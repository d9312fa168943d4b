"""What a user extends: operations, their states, their memory and how they are compiled."""

from __future__ import annotations

from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.pipeline.state import State

__all__ = ["AllocationQuery", "Compiler", "DrawnParameters", "Operation", "PipelineSpec", "State"]
