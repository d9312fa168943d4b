"""PixelOperation: a user's function of one pixel, written for CPU and GPU, and fused like the library's operations."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.batch.color_formulas import PARAMETER, PIXEL
from gpubeton.batch.image_batch import as_nhwc
from gpubeton.batch.pixel_functions import POSITION, compiled_images, compiled_line
from gpubeton.errors import OperationError, OptionError, PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.validation import check_probability, check_whole
from gpubeton.transforms.checks import given_draw, image_size
from gpubeton.transforms.color_jitter import ColorTransform
from gpubeton.transforms.transform import between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State
    from gpubeton.transforms.transform import ImagePass

_COLORS = ("r", "g", "b")
_MAX_PARAMETERS = 16

Range = float | Sequence[float]


class PixelOperation(ColorTransform):
    """Change each pixel by your function, given for the CPU, for the GPU, or for both.

    Its place is that of the library's color operations, between the decoder and ``NormalizeImage``. It is fused as they
    are: on the CPU the Numba function is compiled into the pass that makes the image, on a GPU the CUDA statements into
    its kernel. Everything that the two compute with is float32: levels from 0 to 255 in ``r``, ``g`` and ``b``,
    parameters, and the position. The result is rounded to the nearest level and clipped at 0 and 255.

    Parameters
    ----------
    cuda : str, optional
        CUDA C++ statements that assign to ``r``, ``g`` and ``b``. They may use the parameters by name, the pixel's
        position ``x`` and ``y``, the image's ``height`` and ``width``, and functions such as ``powf``.
    numba : callable, optional
        ``numba(r, g, b, ...)`` returns the new red, green and blue. It asks for parameters, ``x``, ``y``, ``height``
        and ``width`` by the names of its arguments, in any order. Numba compiles it; it may not raise.
    parameters : mapping of str to float or two floats, or sequence of str
        Values that differ from image to image: a number, or two between which it is drawn evenly. Names alone leave it
        to `draw`.
    draw : callable, optional
        ``draw(numbers)`` turns random numbers, float64 of shape (N, numbers) from 0 to 1, a row for each image, into
        the values of the parameters, shape (N, len(parameters)). Each row is to depend on its own numbers alone.
    numbers : int, optional
        How many random numbers of each image `draw` wants; by default one for each parameter.
    p : float
        Probability for each image, 0 to 1; the others stay as they are.
    name : str, optional
        What ``explain()`` and errors call it; by default the name of the Numba function.

    Raises
    ------
    OptionError
        If neither half is given, or names, ranges or arguments do not fit each other.
    PipelineError
        When the loader is made: if Numba cannot compile the function, or the half is missing that is needed there.
        A mistake in the CUDA half is a `gpubeton.errors.KernelError` with the compiler's words at the first batch.

    Notes
    -----
    Parameters are functions of the seed, the epoch, the sample and the place among the pipeline's operations: the
    same for any executor, batch size and number of workers.

    Both halves give the same bits where they do the same float32 operations: ``+ - * /``, comparisons, ``sqrt``. Write
    ``np.float32(0.5)`` in Numba and ``0.5f`` in CUDA: a plain ``0.5`` is a double in both, and slower. ``exp`` or
    ``pow`` may differ in the last digit between libraries, which now and then is another level.

    Without the CUDA half, a pipeline on a GPU copies the batch back for it and goes on on the CPU; ``explain()`` shows
    it. Without the Numba half, it runs on a GPU alone, where it has to be fused.

    `DrawnParameters` has, for each image, whether it was done, bool (N,), and under ``PixelOperation.NAME`` its
    parameter of that name, float32 (N,).

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> def vignette(r, g, b, strength, x, y, height, width):
    ...     across, down = (x + np.float32(0.5)) / width * 2 - 1, (y + np.float32(0.5)) / height * 2 - 1
    ...     light = 1 - strength * (across * across + down * down)
    ...     return r * light, g * light, b * light
    >>> operation = PixelOperation(
    ...     numba=vignette,
    ...     cuda='''
    ...         float across = (x + 0.5f) / width * 2 - 1, down = (y + 0.5f) / height * 2 - 1;
    ...         float light = 1 - strength * (across * across + down * down);
    ...         r *= light; g *= light; b *= light;
    ...     ''',
    ...     parameters={"strength": (0.0, 0.5)},
    ... )
    >>> operation
    PixelOperation('vignette', parameters={'strength': (0.0, 0.5)}, p=1.0)
    >>> images = np.full((1, 3, 3, 3), 200, np.uint8)
    >>> numbers = lambda count, rows=None: np.full((1, count), 0.9)
    >>> steps = operation.draw(numbers, 1, State(True, "cpu", (3, 3, 3), np.dtype("uint8")))
    >>> operation.apply(images, steps)[0, :, :, 0].tolist()
    [[120, 160, 120], [160, 200, 160], [120, 160, 120]]
    """

    needs_declared_device: ClassVar[bool] = True

    def __init__(
        self,
        cuda: str | None = None,
        numba: Callable[..., Any] | None = None,
        parameters: Mapping[str, Range] | Sequence[str] = (),
        draw: Callable[[NDArray[np.float64]], Any] | None = None,
        numbers: int | None = None,
        p: float = 1.0,
        name: str | None = None,
    ) -> None:
        if cuda is None and numba is None:
            raise OptionError("PixelOperation: neither cuda nor numba is given; expected one of the halves, or both")
        self.cuda = _checked_statements(cuda)
        self.numba = numba
        self.name = name or (numba.__name__ if numba is not None and hasattr(numba, "__name__") else "of its own")
        self.ranges = dict(_checked_ranges(self.name, parameters)) if isinstance(parameters, Mapping) else None
        self.parameters = _checked_names(self.name, list(parameters))
        if (self.ranges is None or not self.parameters) != (draw is not None or not self.parameters):
            raise OptionError(
                f"{self}: expected parameters as a mapping from names to values or ranges, or a sequence of names "
                f"together with draw, a function from random numbers to their values"
            )
        self.draws = draw
        self.numbers = len(self.parameters) if numbers is None else check_whole(f"{self}: numbers", numbers)
        self.p = check_probability(f"{self}: p", p)
        self.arguments = [] if numba is None else self._checked_arguments(numba)

    _change: Callable[..., Any] | None = None

    @property
    def num_steps(self) -> int:
        return len(self.parameters) + 1

    @property
    def uses_position(self) -> bool:
        words = set(re.findall(r"\w+", self.cuda or "")) | set(self.arguments)
        return not words.isdisjoint(POSITION)

    def check_state(self, state: State) -> None:
        if self.numba is not None:
            self._check_numba(self.numba)
            self._change = self._compiled()  # not in `apply`: other loaders may be made between two batches
        super().check_state(state)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        numbers = uniform(1 + self.numbers)
        _, width = image_size(self, state)
        rows = np.empty((count, self.num_steps, 2), np.int32)
        rows[:, :-1, 0], rows[:, -1, 0] = PARAMETER, PIXEL
        rows[:, :-1, 1] = self._values(numbers[:, 1:]).view(np.int32)
        rows[:, -1, 1] = np.where(numbers[:, 0] < self.p, width, 0)
        return rows.reshape(count, -1)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        numbers = uniform(1 + self.numbers)
        values = self._values(numbers[:, 1:])
        return {"": numbers[:, 0] < self.p, **dict(zip(self.parameters, values.T, strict=True))}

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        draw = given_draw(self, draw, "the images' steps")
        if self.numba is None:
            raise PipelineError(self._missing("numba"))
        images = as_nhwc(batch)
        if not isinstance(images, np.ndarray):
            images = images.numpy()  # a tensor on a GPU raises torch's error
        change = self._change or self._compiled()
        steps = np.ascontiguousarray(draw, np.int32)
        change(images, steps[:, 1::2].copy().view(np.float32).repeat(2, axis=1), steps[:, -1] != 0)
        return batch

    def _compiled(self) -> Callable[..., Any]:
        assert self.numba is not None
        return compiled_images(compiled_line(self.numba, self.arguments, self.parameters))

    def fuse(self, image_pass: ImagePass) -> bool:
        half = self.numba if image_pass.device.type == "cpu" else self.cuda
        return half is not None and super().fuse(image_pass)

    def check_unfused(self, device: str) -> None:
        if device != "cpu" or self.numba is None:
            raise PipelineError(self._missing("numba" if device == "cpu" else "cuda"))

    def _missing(self, half: str) -> str:
        """Describe a missing half, "numba" or "cuda", for an error."""
        if half == "numba":
            return (
                f"{self} has no Numba half, and would run on the CPU here. Give numba=, a function of r, g and b that "
                f"returns the new ones; or let the pipeline run on a GPU, with this operation in front of "
                f"NormalizeImage and of everything that is not fused"
            )
        return (
            f"{self} would run on a GPU here, on a finished batch, where its CUDA half cannot. Put it in front of "
            f"ToDevice and of everything that loader.explain() does not call fused"
        )

    def __repr__(self) -> str:
        return f"{self}"

    def __str__(self) -> str:
        parameters = self.ranges if getattr(self, "ranges", None) else getattr(self, "parameters", [])
        shown = f", parameters={parameters!r}" if parameters else ""
        return f"PixelOperation({self.name!r}{shown}, p={getattr(self, 'p', 1.0)!r})"

    def _values(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return the parameters of each image, (N, len(parameters))."""
        if self.draws is not None:
            values = np.asarray(self.draws(numbers), np.float32)
            shape = (len(numbers), len(self.parameters))
            if values.shape != shape and values.size != np.prod(shape):
                raise OperationError(
                    f"{self}: draw returned values of shape {values.shape} for {len(numbers)} images; expected {shape}"
                )
            return np.ascontiguousarray(values.reshape(shape))
        ranges = list((self.ranges or {}).values())
        columns = [between(limits, numbers[:, place]) for place, limits in enumerate(ranges)]
        return np.array(columns, np.float32).reshape(len(ranges), len(numbers)).T.copy()

    def _checked_arguments(self, function: Callable[..., Any]) -> list[str]:
        """Return the names of the function's arguments after the colors."""
        plain = getattr(function, "py_func", function)
        if not hasattr(plain, "__code__"):
            raise OptionError(
                f"PixelOperation: numba is {function!r}; expected a Python function: numba=lambda r, g, b: (b, g, r)"
            )
        names = list(inspect.signature(plain).parameters)
        known = {*self.parameters, *POSITION}
        unknown = [name for name in names[3:] if name not in known]
        if tuple(names[:3]) != _COLORS or unknown:
            raise OptionError(
                f"{self}: the Numba function has the arguments {', '.join(names)}; expected r, g, b, and then any of "
                f"{', '.join([*self.parameters, *POSITION])}"
            )
        if any(instruction.opname == "RAISE_VARARGS" for instruction in dis.get_instructions(plain)):
            raise OptionError(
                f"{self}: the Numba function raises an error, which would be lost: it runs inside the loop "
                f"over an image's pixels. Return the pixel as it is instead"
            )
        return names[3:]

    def _check_numba(self, function: Callable[..., Any]) -> None:
        """Compile the function for one pixel, where a mistake in it shows."""
        types = ", ".join(["float32"] * (3 + len(self.arguments)))
        try:
            compiled: Any = Compiler.compile_exact(getattr(function, "py_func", function), f"({types})")
        except PipelineError as error:
            raise PipelineError(f"{self}: {error}") from error
        result = compiled.nopython_signatures[0].return_type
        if getattr(result, "count", None) != 3 or "complex" in str(result) or not _is_of_numbers(result):
            raise PipelineError(
                f"{self}: the Numba function returns {result} for a pixel; expected three numbers: return r, g, b"
            )


def _is_of_numbers(result: Any) -> bool:
    """Return whether Numba's type of a tuple has only real numbers in it."""
    return all(str(one).startswith(("float", "int", "uint", "bool", "Literal[int]")) for one in result.types)


def _checked_statements(cuda: str | None) -> str | None:
    """Check that braces match: otherwise the compiler would report errors in the code after them."""
    bare = re.sub(r"//[^\n]*|/\*.*?\*/", " ", cuda or "", flags=re.DOTALL)
    depth = 0
    for character in bare:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            break
    if depth:
        raise OptionError(f"PixelOperation: braces {{ and }} do not match in the CUDA statements {cuda!r}")
    return cuda


def _checked_names(operation: str, names: list[str]) -> list[str]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in {*_COLORS, *POSITION}:
            raise OptionError(
                f"PixelOperation {operation!r}: {name!r} cannot be the name of a parameter; expected a name that both "
                f"languages know, other than {', '.join([*_COLORS, *POSITION])}"
            )
    if len(set(names)) < len(names) or len(names) > _MAX_PARAMETERS:
        raise OptionError(
            f"PixelOperation {operation!r} has {len(names)} parameters, {', '.join(names)}; expected at most "
            f"{_MAX_PARAMETERS}, each of another name"
        )
    return names


def _checked_ranges(operation: str, given: Mapping[str, Range]) -> dict[str, tuple[float, float]]:
    ranges = {}
    for name, value in given.items():
        limits = np.atleast_1d(np.asarray(value, np.float64))
        if limits.ndim != 1 or len(limits) > 2 or not np.isfinite(limits).all():
            raise OptionError(
                f"PixelOperation {operation!r}: parameter {name!r} is {value!r}; expected a number, or two between "
                f"which it is drawn"
            )
        ranges[name] = (float(limits[0]), float(limits[-1]))
    return ranges
