"""FCOS: a detector without anchors (Tian et al. 2019, arXiv 1904.01355), on a pyramid with strides from 8 to 64."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from examples.pyramid import Pyramid

STRIDES = (8, 16, 32, 64)


class FCOS(nn.Module):
    """For each place of each level: a logit of each class, distances to the four borders, and how central it is."""

    def __init__(self, network: str, width: int, num_classes: int, weights: str = "") -> None:
        super().__init__()
        self.pyramid = Pyramid(network, width, weights, finest=1)
        self.kinds, self.shapes = make_tower(width), make_tower(width)
        self.kind = nn.Conv2d(width, num_classes, 3, padding=1)
        self.shape = nn.Conv2d(width, 5, 3, padding=1)
        nn.init.constant_(self.kind.bias, -math.log(99))  # type: ignore[arg-type]  # all is background at first
        nn.init.normal_(self.kind.weight, std=0.01)
        nn.init.normal_(self.shape.weight, std=0.01)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits (images, places, classes), distances (images, places, 4), logits of centrality."""
        levels = self.pyramid(images)
        levels.append(nn.functional.max_pool2d(levels[-1], 1, stride=2))
        kinds = torch.cat([self.kind(self.kinds(level)).flatten(2) for level in levels], 2)
        shapes = [self.shape(self.shapes(level)).float().flatten(2) for level in levels]
        distances = [
            nn.functional.softplus(shape[:, :4]) * stride for shape, stride in zip(shapes, STRIDES, strict=True)
        ]
        central = torch.cat([shape[:, 4] for shape in shapes], 1)
        return kinds.float().transpose(1, 2), torch.cat(distances, 2).transpose(1, 2), central


def make_tower(width: int) -> nn.Sequential:
    """Make four convolutions with their normalizations and activations."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.GroupNorm(16, width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def places_of(side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the centers (x, y) of the places of all levels in pixels, and their strides."""
    points, strides = [], []
    for stride in STRIDES:
        line = (torch.arange(side // stride, device=device) + 0.5) * stride
        y, x = torch.meshgrid(line, line, indexing="ij")
        points.append(torch.stack([x, y], 2).reshape(-1, 2))
        strides.append(torch.full((len(points[-1]),), float(stride), device=device))
    return torch.cat(points), torch.cat(strides)


def targets_of(boxes: Tensor, points: Tensor, strides: Tensor) -> tuple[Tensor, Tensor]:
    """Return the class that each place learns, -1 for background, and its distances to the borders of its box.

    A place learns the smallest box whose center is near it, if the level is the one for the box's size.
    """
    if not len(boxes):
        return torch.full((len(points),), -1, device=points.device), points.new_zeros(len(points), 4)
    distances = torch.cat([points[:, None] - boxes[:, :2], boxes[:, 2:4] - points[:, None]], 2)
    centers, largest = (boxes[:, :2] + boxes[:, 2:4]) / 2, distances.amax(2)
    least = torch.where(strides == STRIDES[0], 0.0, 4 * strides)[:, None]
    most = torch.where(strides == STRIDES[-1], math.inf, 8 * strides)[:, None]
    near = (points[:, None] - centers).abs().amax(2) < 1.5 * strides[:, None]
    fits = near & (distances.amin(2) > 0) & (largest >= least) & (largest < most)
    areas = torch.where(fits, (boxes[:, 2:4] - boxes[:, :2]).prod(1), math.inf)
    area, box = areas.min(1)
    kinds = torch.where(area < math.inf, boxes[box, 4].long(), -1)
    return kinds, distances[torch.arange(len(points), device=points.device), box]


def loss_of(outputs: tuple[Tensor, Tensor, Tensor], boxes: Iterable[Tensor], side: int) -> Tensor:
    """Return the focal loss of the classes, and for places with a box 1 - GIoU and the cross entropy of centrality."""
    logits, distances, central = outputs
    points, strides = places_of(side, logits.device)
    targets = [targets_of(box, points, strides) for box in boxes]
    kinds, expected = (torch.stack(parts) for parts in zip(*targets, strict=True))
    has_box = kinds >= 0
    count = has_box.sum().clamp(min=1)
    right = nn.functional.one_hot(kinds + 1, logits.shape[2] + 1)[..., 1:].to(logits.dtype)
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, right, reduction="none")
    wrong = torch.where(right > 0, 1 - logits.sigmoid(), logits.sigmoid())
    focal = (torch.where(right > 0, 0.25, 0.75) * wrong.square() * entropy).sum() / count
    expected, result = expected[has_box], distances[has_box]
    weights = centrality(expected)
    shapes = ((1 - overlap_at_place(result, expected)) * weights).sum() / weights.sum().clamp(min=1e-6)
    middle = nn.functional.binary_cross_entropy_with_logits(central[has_box], weights, reduction="sum") / count
    return focal + shapes + middle


def centrality(distances: Tensor) -> Tensor:
    """Return how central a place is in its box: 1 in the middle, 0 at the border."""
    across, down = distances[:, 0::2], distances[:, 1::2]
    return (across.amin(1) / across.amax(1) * down.amin(1) / down.amax(1)).sqrt()


def overlap_at_place(ones: Tensor, others: Tensor) -> Tensor:
    """Return the generalized intersection over union of two boxes around the same place, given by distances."""
    both, hull = torch.minimum(ones, others), torch.maximum(ones, others)
    area, other, shared, around = ((corners[:, :2] + corners[:, 2:]).prod(1) for corners in (ones, others, both, hull))
    union = area + other - shared
    return shared / union - (around - union) / around


def detect(outputs: tuple[Tensor, Tensor, Tensor], side: int, least: float = 0.05, most: int = 100) -> list[Tensor]:
    """Return the boxes of each image: two corners, class, and score, best first."""
    logits, distances, central = outputs
    points, _ = places_of(side, logits.device)
    corners = torch.cat([points - distances[..., :2], points + distances[..., 2:]], 2).clamp(0, side)
    scores = (logits.sigmoid() * central.sigmoid()[..., None]).sqrt()
    results = []
    for boxes, score in zip(corners, scores, strict=True):
        best, flat = score.flatten().topk(min(1000, score.numel()))
        flat = flat[best > least]
        place, kind = flat // score.shape[1], flat % score.shape[1]
        rows = torch.cat([boxes[place], kind[:, None], best[best > least, None]], 1)
        results.append(rows[without_doubles(rows, 0.6)[:most]])
    return results


def without_doubles(rows: Tensor, largest: float) -> Tensor:
    """Return the rows to keep, best first: a box goes that overlaps a better one of its class."""
    apart = rows[:, :4] + rows[:, 4:5] * 2 * rows[:, :4].max() if len(rows) else rows[:, :4]
    overlaps, order, selected = overlap(apart, apart), rows[:, 5].argsort(descending=True), []
    while len(order):
        selected.append(order[0])
        order = order[overlaps[order[0], order] <= largest]  # a box overlaps itself
    return torch.stack(selected) if selected else order


def overlap(ones: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union of each of one's boxes with each of the others."""
    low, high = torch.maximum(ones[:, None, :2], others[:, :2]), torch.minimum(ones[:, None, 2:4], others[:, 2:4])
    shared = (high - low).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:4] - boxes[:, :2]).prod(1) for boxes in (ones, others)]
    return shared / (areas[0][:, None] + areas[1] - shared).clamp(min=1e-9)


def mean_average_precision(detections: list[Tensor], true: list[Tensor], num_classes: int) -> float:
    """Return the mean over classes of the precision at eleven recalls, as VOC 2007 measures it, at an overlap of 0.5.

    Difficult boxes (a 1 in the last column) are neither expected nor wrong.
    """
    precisions = []
    for kind in range(num_classes):
        records: list[tuple[float, bool]] = []
        count = 0
        for some, boxes in zip(detections, true, strict=True):
            rows, expected = some[some[:, 4] == kind], boxes[boxes[:, 4] == kind]
            count += int((expected[:, 5] == 0).sum())
            records += judged(rows, expected)
        if count:
            records.sort(key=lambda record: -record[0])
            right = torch.tensor([is_right for _, is_right in records], dtype=torch.float64).cumsum(0)
            recall, precision = right / count, right / torch.arange(1, len(right) + 1)
            best = [precision[recall >= least - 1e-9] for least in torch.linspace(0, 1, 11, dtype=torch.float64)]
            precisions.append(sum(float(values.max()) if len(values) else 0.0 for values in best) / 11)
    return sum(precisions) / max(1, len(precisions))


def judged(rows: Tensor, expected: Tensor) -> list[tuple[float, bool]]:
    """Return the score of each box that was found, best first, and whether it is the first on an expected one."""
    if not len(expected):
        return [(float(score), False) for score in rows[:, 5]]
    overlaps, nearest = overlap(rows, expected).max(1)
    records, taken = [], set[int]()
    for score, shared, box in zip(rows[:, 5].tolist(), overlaps.tolist(), nearest.tolist(), strict=True):
        if shared >= 0.5 and expected[box, 5]:
            continue
        records.append((score, shared >= 0.5 and box not in taken))
        taken |= {box} if shared >= 0.5 else set()
    return records
