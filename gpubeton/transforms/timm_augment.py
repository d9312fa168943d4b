"""TimmAugment: timm's policies, by the strings that name them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gpubeton._batch import step_rows as kinds
from gpubeton._batch.color_formulas import ONE
from gpubeton._batch.step_rows import KIND, MIXING, PARAMETERS, SPAN, STEP_COLUMNS, fill_columns, words
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_choice, check_number, check_whole
from gpubeton.transforms.blur import blur_steps
from gpubeton.transforms.checks import image_size
from gpubeton.transforms.policies import FACTORS, PAIRS, Policy, mixture_rows, mixture_shares, operations_of
from gpubeton.transforms.transform import Moves
from gpubeton.transforms.warps import warp_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

_KERNEL = 13  # pixels; Pillow's blur with the largest radius, 2, reaches as far

_MOVES = {"Rotate": 30.0, "ShearX": 0.3, "ShearY": 0.3, "TranslateXRel": 0.45, "TranslateYRel": 0.45}  # their slopes


class _Operation(NamedTuple):
    """How the parameter of an operation follows from a magnitude."""

    kind: int
    start: float = 0.0  # at magnitude 0
    slope: float = 0.0  # added up to magnitude 10
    unit: int = 1  # of the step's parameter; whole numbers are rounded towards 0 before they are added
    has_sign: int = 0  # whether the slope is negated as often as not
    least: float = -math.inf
    most: float = math.inf


_OPERATIONS = {
    "Identity": _Operation(kinds.KEEP),
    "AutoContrast": _Operation(kinds.AUTOCONTRAST),
    "Equalize": _Operation(kinds.EQUALIZE),
    "Invert": _Operation(kinds.INVERT),
    "Posterize": _Operation(kinds.POSTERIZE, 0, 4, most=8),
    "PosterizeIncreasing": _Operation(kinds.POSTERIZE, 4, -4, least=0),
    "PosterizeOriginal": _Operation(kinds.POSTERIZE, 4, 4, most=8),
    "Solarize": _Operation(kinds.SOLARIZE, 0, 256, most=256),
    "SolarizeIncreasing": _Operation(kinds.SOLARIZE, 256, -256, least=0),
    "SolarizeAdd": _Operation(kinds.SOLARIZE_ADD, 0, 110, most=128),
    **{name: _Operation(kind, 0.1, 1.8, ONE) for name, kind in FACTORS.items()},
    **{f"{name}Increasing": _Operation(kind, 1, 0.9, ONE, 1, 0.1) for name, kind in FACTORS.items()},
    "Desaturate": _Operation(kinds.SATURATION, 0.5, -0.5, ONE, least=0),
    "GaussianBlur": _Operation(kinds.BLUR, 0.1, 1.9, ONE, most=2),
    "GaussianBlurRand": _Operation(kinds.BLUR, 0, 2, ONE, least=0.01, most=2),  # the largest of the radii
    **{name: _Operation(kinds.WARP_BILINEAR, 0, slope, ONE, 1) for name, slope in _MOVES.items()},
}
_KINDS = np.array([operation.kind for operation in _OPERATIONS.values()], np.int32)

#: The operations of timm's policies; the first one changes nothing.
TIMM_OPERATIONS: tuple[str, ...] = tuple(_OPERATIONS)
_RANDOM_BLUR = TIMM_OPERATIONS.index("GaussianBlurRand")
_WARPS = range(len(TIMM_OPERATIONS) - len(_MOVES), len(TIMM_OPERATIONS))

_MIXED = f"AutoContrast Equalize Posterize Solarize {' '.join((*FACTORS, *_MOVES))}"

#: Of each set of "rand", the operations with their weights; those of weight 0 are equally likely, and may come twice.
_SETS: dict[str, dict[float, str]] = {
    "": {0: f"{_MIXED} Invert SolarizeAdd"},
    "3a": {0: "Solarize Desaturate GaussianBlur"},
    "3aw": {6: "Solarize Desaturate GaussianBlur", 3: "Rotate", 2: "ShearX ShearY",
            1: "Posterize AutoContrast Color Sharpness Contrast Brightness Equalize Invert"},
    "weights": {3: "Rotate", 2: "ShearX ShearY", 1: "TranslateXRel TranslateYRel",
                0.25: "Color Sharpness AutoContrast",
                0.05: "Solarize SolarizeAdd Contrast Brightness Equalize Posterize Invert"},
}  # fmt: skip

#: Written as the pairs of `AutoAugment`.
_V0 = """
    Equalize 0.8 + ShearY 0.8 4, Color 0.4 9 + Equalize 0.6, Color 0.4 1 + Rotate 0.6 8, Solarize 0.8 3 + Equalize 0.4,
    Solarize 0.4 2 + Solarize 0.6 2, Color 0.2 0 + Equalize 0.8, Equalize 0.4 + SolarizeAdd 0.8 3,
    ShearX 0.2 9 + Rotate 0.6 8, Color 0.6 1 + Equalize 1, Invert 0.4 + Rotate 0.6 0, Equalize 1 + ShearY 0.6 3,
    Color 0.4 7 + Equalize 0.6, Posterize 0.4 6 + AutoContrast 0.4, Solarize 0.6 8 + Color 0.6 9,
    Solarize 0.2 4 + Rotate 0.8 9, Rotate 1 7 + TranslateYRel 0.8 9, ShearX 0 0 + Solarize 0.8 4,
    ShearY 0.8 0 + Color 0.6 4, Color 1 0 + Rotate 0.6 2, Equalize 0.8 + Equalize 0, Equalize 1 + AutoContrast 0.6,
    ShearY 0.4 7 + SolarizeAdd 0.6 7, Posterize 0.8 2 + Solarize 0.6 10, Solarize 0.6 8 + Equalize 0.6,
    Color 0.8 6 + Rotate 0.4 5
"""
_SEARCHED = {
    "original": PAIRS["imagenet"].replace("Posterize", "PosterizeOriginal"),
    "originalr": PAIRS["imagenet"].replace("Posterize", "PosterizeIncreasing"),
    "v0": _V0,
    "v0r": _V0.replace("Posterize", "PosterizeIncreasing"),
    "3a": "Solarize 1 5, Desaturate 1 10, GaussianBlurRand 1 10",
}

#: Of each policy, its options with their defaults.
_OPTIONS: dict[str, dict[str, Any]] = {
    "rand": {"m": 10, "n": 2, "p": 0.5, "mstd": 0.0, "mmax": 10, "inc": 0, "t": ""},
    "augmix": {"m": 3, "w": 3, "d": -1, "a": 1.0, "b": 0, "mstd": math.inf},
    **{name: {"mstd": 0.0} for name in _SEARCHED},
}


class _Plan(NamedTuple):
    """What a string asks for."""

    choices: NDArray[np.float64]  # (C, L, 3): operations that are picked together, with probabilities and magnitudes
    weights: NDArray[np.float64] | None  # (C,): of choices of which none is picked twice
    num_picks: int
    std: float  # of magnitudes; infinite if they are uniform from 0 on
    most: float  # largest magnitude
    table: NDArray[np.float64]  # of the operations
    width: int = 0  # chains of a mixture, or 0
    is_short: bool = False  # whether chains may be shorter
    alpha: float = 1.0

    @property
    def num_steps(self) -> int:
        """Operations of each image."""
        return self.num_picks * len(self.choices[0])


class TimmAugment(Policy):
    """Carry out a policy of timm, given by the string that timm takes for it.

    Parameters
    ----------
    config : str
        The policy and its options, such as ``"rand-m9-mstd0.5-inc1"``. Every policy takes ``mstd``, the standard
        deviation of magnitudes.

        ``rand``: RandAugment. ``m`` magnitude, 10; ``n`` operations of an image, 2; ``p`` probability of each, 0.5;
        ``mstd``, 0, of more than 100 or ``inf`` magnitudes are uniform; ``mmax`` largest magnitude, 10; ``inc1`` makes
        all operations stronger with the magnitude; ``t`` another set of operations: ``t3a``, ``t3aw``, ``tweights``.

        ``original``, ``originalr``, ``v0``, ``v0r``: AutoAugment for ImageNet, from the paper and from TPU code; with
        an r, posterize has fewer bits at larger magnitudes. ``3a``: the three augmentations of DeiT III.

        ``augmix``: AugMix. ``m`` severity, 3; ``w`` chains, 3; ``d`` operations of a chain, by default one to three;
        ``a`` parameter of the distributions of the shares, 1; ``mstd``, by default ``inf``; ``b`` makes no difference.
    interpolation : {"nearest", "bilinear"}
        How warps read pixels between others.
    fill : sequence of three numbers
        Levels of the area outside the image; timm takes the mean color, by default ImageNet's.

    Notes
    -----
    The policies, operations, probabilities and magnitudes are those of timm's ``auto_augment.py``. Images differ from
    timm's in this: timm picks bilinear or bicubic for each warp, and outside the image it does not blend with the
    fill; its blur is three box filters, here a Gaussian kernel of 13 pixels; it cuts mixtures off, here they are
    rounded; and levels may differ by 1, as Pillow rounds gray values, and means of them for contrast.

    Normally distributed magnitudes are Box and Muller's: exact, from two uniform numbers each.

    Masks follow all but ``augmix``. `DrawnParameters` has, for each image, ``operation``, int64 (N, S), places in
    `gpubeton.transforms.timm_augment.TIMM_OPERATIONS`, 0 where nothing is done; and ``magnitude``, float64 (N, S), in
    degrees, factors, bits, levels, pixels of a blur, or parts of the side. With ``augmix`` also ``share``, (N, 1 + W).

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> drawn = TimmAugment("v0").drawn(lambda count: np.zeros((1, count)), 1, state)
    >>> [TIMM_OPERATIONS[place] for place in drawn["operation"][0]], drawn["magnitude"].tolist()
    (['Equalize', 'ShearY'], [[0.0, -0.12]])
    """

    def __init__(
        self,
        config: str,
        interpolation: Literal["nearest", "bilinear"] = "bilinear",
        fill: Sequence[float] = (124, 116, 104),
    ) -> None:
        self.config = config
        _planned(config)
        super().__init__(interpolation, fill)

    @property
    def _places(self) -> NDArray[np.intp]:
        """The operations that may be carried out."""
        places = np.unique(_planned(self.config).choices[:, :, 0]).astype(np.intp)
        return places[places >= _WARPS.start] if self.moves_only else places

    @property
    def moves(self) -> Moves:
        if _planned(self.config).width:
            return Moves.UNKNOWN
        return Moves.FREELY if self._places[-1:].sum() >= _WARPS.start else Moves.NOTHING

    @property
    def kinds(self) -> frozenset[int]:
        listed = {*_KINDS[self._places].tolist(), *(MIXING if _planned(self.config).width else ())}
        return frozenset(warp_kind(self.interpolation) if kind == kinds.WARP_BILINEAR else kind for kind in listed)

    @property
    def num_rows(self) -> int:
        plan = _planned(self.config)
        return plan.num_steps + (3 + plan.width if plan.width else 0)

    @property
    def num_numbers(self) -> int:
        plan = _planned(self.config)
        return plan.num_picks + 4 * plan.num_steps + (2 + 2 * plan.width if plan.width else 0)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        place, value, shares = self._drawn(uniform)
        if self.moves_only:
            place[place < _WARPS.start] = 0
        kind, size = _KINDS[place], image_size(self, state, any_channels=True)
        rows = np.zeros((*place.shape, STEP_COLUMNS), np.int32)
        rows[..., SPAN], rows[..., PARAMETERS] = 1, np.rint(value * _planned(self.config).table[place, 3])
        is_warp, is_blur = kind == kinds.WARP_BILINEAR, kind == kinds.BLUR
        rows[..., KIND] = np.where(is_warp, warp_kind(self.interpolation), kind)
        rows[is_warp, PARAMETERS : PARAMETERS + 2] = fill_columns(self.fill)
        rows[is_warp, PARAMETERS + 2 :] = words(_warps(place[is_warp], value[is_warp], size))
        rows[is_blur] = blur_steps(value[is_blur], min(_KERNEL, 2 * min(size) - 1))[:, 0]
        rows[kind == kinds.KEEP] = 0
        return rows if shares is None else mixture_rows(rows, shares)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        place, value, shares = self._drawn(uniform)
        return {"operation": place, "magnitude": value, **({} if shares is None else {"share": shares})}

    def _drawn(self, uniform: Uniform) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64] | None]:
        """Return operations and their parameters, (N, num_steps), and the shares of a mixture."""
        # Numbers: which choices; of each step whether, its sign or radius, and two of its magnitude; those of mixtures.
        plan, numbers = _planned(self.config), uniform(self.num_numbers)
        of_steps, of_mixtures = np.split(numbers[:, plan.num_picks :], [4 * plan.num_steps], axis=1)
        picked = plan.choices[_picked(plan, numbers[:, : plan.num_picks])].reshape(len(numbers), -1, 3)
        listed, probability, magnitude = np.moveaxis(picked, 2, 0)
        whether, side, first, second = np.moveaxis(of_steps.reshape(len(numbers), -1, 4), 2, 0)
        place: NDArray[np.intp] = np.where(whether < probability, listed, 0).astype(np.intp)
        if plan.std == math.inf:
            magnitude = magnitude * first
        elif plan.std:
            magnitude = magnitude + plan.std * np.sqrt(-2 * np.log(1 - first)) * np.cos(2 * np.pi * second)
        _, start, slope, unit, has_sign, least, most = np.moveaxis(plan.table[place], 2, 0)
        change = np.clip(magnitude, 0, plan.most) / 10 * slope * np.where((has_sign == 1) & (side < 0.5), -1, 1)
        value: NDArray[np.float64] = np.clip(start + np.where(unit == 1, np.trunc(change), change), least, most)
        value = np.where(place == _RANDOM_BLUR, 0.1 + side * (value - 0.1), value)
        if not plan.width:
            return place, value, None
        of_shares, of_depths = np.split(of_mixtures, [2 + plan.width], axis=1)
        if plan.is_short:
            chains = place.reshape(len(numbers), plan.width, -1)
            chains[np.arange(chains.shape[2]) > (chains.shape[2] * of_depths[:, :, None]).astype(int)] = 0
        return place, value, mixture_shares(plan.alpha, of_shares)


def _picked(plan: _Plan, numbers: NDArray[np.float64]) -> NDArray[np.intp]:  # (N, num_picks), of as many numbers
    """Pick choices."""
    if plan.weights is None:
        return (numbers * len(plan.choices)).astype(np.intp)
    weights, which = np.tile(plan.weights, (len(numbers), 1)), np.empty(numbers.shape, np.intp)
    for picked, number in zip(which.T, numbers.T, strict=True):
        sums = np.cumsum(weights, axis=1)
        picked[:] = (number[:, None] * sums[:, -1:] >= sums).sum(axis=1)
        weights[np.arange(len(picked)), picked] = 0
    return which


def _warps(place: NDArray[np.intp], value: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.int64]:
    """Write Pillow's warps, (R, 6), of operations, (R,): shears from the corner, rotations around the middle."""
    turn, shear_x, shear_y, right, down = (np.where(place == number, value, 0.0) for number in _WARPS)
    turn, is_turn = np.radians(turn), place == _WARPS.start
    height, width = size
    x, y = (np.where(is_turn, (side - 1) / 2, -0.5) for side in (width, height))
    a, b, d = np.cos(turn), shear_x - np.sin(turn), shear_y + np.sin(turn)
    numbers = a, b, x - a * x - b * y + right * width, d, a, y - d * x - a * y + down * height
    rows: NDArray[np.int64] = np.rint(np.stack(numbers, axis=1) * 2.0**32).astype(np.int64)
    return rows


@lru_cache(maxsize=64)
def _planned(config: str) -> _Plan:
    name, options = _named_options(config)
    std, table = options["mstd"], np.array(list(_OPERATIONS.values()))
    if not std >= 0:
        raise OptionError(f"TimmAugment: mstd in {config!r} is {std}; expected a number of at least 0")
    if name in _SEARCHED:
        return _Plan(operations_of(_SEARCHED[name], TIMM_OPERATIONS), None, 1, std, 10, table)
    m = check_whole("TimmAugment: m", options["m"], 0)
    if name == "augmix":
        width = check_whole("TimmAugment: w", options["w"], 1)
        depth = 3 if options["d"] == -1 else check_whole("TimmAugment: d", options["d"], 1)
        alpha = check_number("TimmAugment: a", options["a"], 0.1, 100)
        table[_WARPS.start + 3 :, 2] = 0.3  # the slope of translations
        choices = _choices(_MIXED, 1.0, m, is_increasing=True)
        return _Plan(choices, None, width * depth, std, 10, table, width, options["d"] == -1, alpha)
    p = check_number("TimmAugment: p", options["p"], 0, 1)
    sets = _SETS[check_choice("TimmAugment: t", options["t"], _SETS)]
    choices = _choices(" ".join(sets.values()), p, m, is_increasing=bool(options["inc"] or options["t"]))
    weights = None if 0 in sets else np.repeat(list(sets), [len(names.split()) for names in sets.values()])
    num_picks = check_whole("TimmAugment: n", options["n"], 1, None if weights is None else len(weights))
    most = check_whole("TimmAugment: mmax", options["mmax"], 1)
    return _Plan(choices, weights, num_picks, math.inf if std > 100 else std, most, table)


def _choices(names: str, p: float, m: int, *, is_increasing: bool) -> NDArray[np.float64]:  # (C, 1, 3)
    """List operations with the same probability and magnitude."""
    ending = "Increasing" if is_increasing else ""
    listed = [name + ending if name + ending in _OPERATIONS else name for name in names.split()]
    return operations_of(",".join(f"{name} {p!r} {m}" for name in listed), TIMM_OPERATIONS)


def _named_options(config: str) -> tuple[str, dict[str, Any]]:
    """Read the name of a policy and its options."""
    name, *parts = config.split("-")
    options = dict(_OPTIONS[check_choice("TimmAugment: the policy of config", name, _OPTIONS)])
    for part in parts:
        key = max((key for key in options if part.startswith(key)), key=len, default="")
        try:
            options[key] = type(options[key])(part[len(key) :])
        except (KeyError, ValueError):
            known = ", ".join(f"{key}{value}" for key, value in _OPTIONS[name].items())
            raise OptionError(
                f"TimmAugment: {part!r} in {config!r} is no option of {name!r}; expected options with their values, as "
                f"in these defaults: {known}"
            ) from None
    return name, options
