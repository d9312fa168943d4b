"""The two networks of CLIP: a vision transformer for images and a transformer for tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def make_layers(width: int, depth: int) -> nn.TransformerEncoder:
    """Make transformer layers that normalize first, with heads of 64 channels."""
    layer = nn.TransformerEncoderLayer(
        width, max(1, width // 64), 4 * width, 0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)


class ImageTower(nn.Module):
    """A vision transformer that gives the mean over patches (Dosovitskiy et al. 2021, without a class token)."""

    def __init__(self, side: int, patch: int, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.02)
        self.layers = make_layers(width, depth)
        self.last = nn.Linear(width, outputs, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of each image."""
        patches = self.patches(images).flatten(2).transpose(1, 2) + self.places
        features: Tensor = self.last(self.layers(patches).mean(1))
        return features


class TextTower(nn.Module):
    """A transformer that gives the mean over tokens; token 0 fills the end of a text and is ignored."""

    def __init__(self, vocabulary: int, length: int, width: int, depth: int, outputs: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = make_layers(width, depth)
        self.last = nn.Linear(width, outputs, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the features of each text."""
        is_filling = tokens == 0
        result = self.layers(self.tokens(tokens) + self.places, src_key_padding_mask=is_filling)
        weights = (~is_filling).to(result.dtype)[..., None]
        features: Tensor = self.last((result * weights).sum(1) / weights.sum(1))
        return features


class PairNetwork(nn.Module):
    """Both towers and the temperature of the loss."""

    def __init__(self, images: ImageTower, texts: TextTower) -> None:
        super().__init__()
        self.images, self.texts = images, texts
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def forward(self, images: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return features of length 1 for images and texts, and the scale of their cosines, at most 100."""
        ones = nn.functional.normalize(self.images(images).float(), dim=1)
        others = nn.functional.normalize(self.texts(tokens).float(), dim=1)
        return ones, others, self.log_scale.exp().clamp(max=100)
