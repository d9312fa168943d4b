"""Loaders for the training loops of other libraries.

`data_loader`: for code that expects a ``torch.utils.data.DataLoader``. `lightning`: PyTorch Lightning. `accelerate`:
Hugging Face Accelerate. `torchdata`: a source for torchdata's nodes. `timm`: timm's ``create_loader``. All but the
first and `timm` import their library, so import them by their full name.
"""

from __future__ import annotations

from gpubeton.integrations.data_loader import DataLoaderAdapter

__all__ = ["DataLoaderAdapter"]
