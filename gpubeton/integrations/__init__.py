"""Loaders in the training loops of others.

`data_loader`: for code that expects a ``torch.utils.data.DataLoader``. `lightning`: PyTorch Lightning. `accelerate`:
Hugging Face Accelerate. The last two import their library, so they are imported by name.
"""

from __future__ import annotations

from gpubeton.integrations.data_loader import DataLoaderAdapter

__all__ = ["DataLoaderAdapter"]
