"""Loaders for the training loops of other libraries.

`data_loader`: for code that expects a ``torch.utils.data.DataLoader``. `lightning`: PyTorch Lightning. `accelerate`:
Hugging Face Accelerate. `ray`: tasks and a sink of Ray. The last three import their library, so import them by their
full name.
"""

from __future__ import annotations

from gpubeton.integrations.data_loader import DataLoaderAdapter

__all__ = ["DataLoaderAdapter"]
