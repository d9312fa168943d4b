"""Orders in which a loader goes through its samples."""

from __future__ import annotations

from gpubeton.traversal_order.base import TraversalOrder
from gpubeton.traversal_order.quasi_random import QuasiRandom
from gpubeton.traversal_order.random import Random
from gpubeton.traversal_order.repeated import Repeated
from gpubeton.traversal_order.sequential import Sequential
from gpubeton.traversal_order.weighted import Balanced, Weighted
from gpubeton.traversal_order.window import Window

__all__ = ["Balanced", "QuasiRandom", "Random", "Repeated", "Sequential", "TraversalOrder", "Weighted", "Window"]
