"""Draw the charts of the README and of the pages, from the committed results of benchmarks/, light and dark.

    python -m docs.charts

Each chart is an SVG file for light pages and one for dark pages. Texts stay texts, so that they can be searched, and a
test can read them. matplotlib was chosen because most of our readers know it: a chart is easy to change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.harness.photos import PhotoSet, photo_sizes
from benchmarks.harness.timing import Lap, median_cpu, median_rate
from benchmarks.results import latest
from benchmarks.table import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CHARTS", "FOLDER", "chart_texts", "draw_charts"]

FOLDER = Path(__file__).resolve().parent / "figures"

#: Inches. A phone shows a figure at nearly this width, so its texts stay legible; `_tidy` enlarges it elsewhere.
_WIDTH = 5
_MODES = ("jpg", "smart", "proportion", "raw")


@dataclass(frozen=True)
class Theme:
    """Colors of a page. They differ in lightness as well, for readers who do not see all colors."""

    name: str
    text: str
    faint: str
    ours: str
    others: str
    series: tuple[str, str, str, str]


LIGHT = Theme("light", "#1f2328", "#d0d7de", "#0a58ca", "#a9b4c0", ("#0a58ca", "#b35900", "#6b7785", "#1a7f5a"))
DARK = Theme("dark", "#e6edf3", "#3d444d", "#6cb0ff", "#59636e", ("#6cb0ff", "#f0a04b", "#9aa5b1", "#56d4a0"))


def draw_charts(folder: Path = FOLDER) -> None:
    """Write every chart twice: for light and for dark pages.

    Parameters
    ----------
    folder : Path
        The folder for the SVG files.
    """
    folder.mkdir(exist_ok=True)
    for name, draw in CHARTS.items():
        for theme in (LIGHT, DARK):
            with _style(theme):
                figure = draw(theme)
                figure.savefig(folder / f"{name}-{theme.name}.svg", transparent=True, metadata={"Date": None})
            _tidy(folder / f"{name}-{theme.name}.svg")


def chart_texts(path: Path) -> list[str]:
    """Read the texts of a chart, in the order of the file."""
    return [re.sub(r"<[^>]*>", "", found) for found in re.findall(r"<text[^>]*>(.*?)</text>", path.read_text())]


@contextmanager
def _style(theme: Theme) -> Iterator[None]:
    """Set matplotlib's defaults while a chart is drawn and saved."""
    colors = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), theme.text)
    settings: dict[Any, Any] = {
        **colors,
        "axes.edgecolor": theme.faint,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "figure.constrained_layout.use": True,
        "font.size": 9.5,
        "font.family": ["sans-serif"],
        "font.sans-serif": ["DejaVu Sans"],
        "legend.frameon": False,
        "axes.facecolor": "none",
        "svg.fonttype": "none",
        "svg.hashsalt": "gpubeton",  # the same file for the same data
        "xtick.bottom": False,
        "ytick.left": False,
    }
    with mpl.rc_context(settings):
        yield


def _tidy(path: Path) -> None:
    """Let a page shrink the chart, and use the fonts of the reader."""
    text = path.read_text()
    text = re.sub(r'(<svg [^>]*?)width="[\d.]+pt" height="[\d.]+pt"', r'\1width="560"', text, count=1)
    text = text.replace("'DejaVu Sans', sans-serif", "system-ui, 'Segoe UI', sans-serif")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


def _speed(theme: Theme) -> Figure:
    """Draw images per second beside other loaders: a panel for each way to store images."""
    result = _latest("compare")
    races = [race for race in result["races"] if race["storage"] in ("jpg", "raw")]
    figure = Figure((_WIDTH, 3.3))
    bars_of = [len(race["contenders"].keys() - VARIANTS) for race in races]
    panels = figure.subplots(len(races), 1, height_ratios=bars_of, squeeze=False)[:, 0]
    for axes, race in zip(panels, races, strict=True):
        rates = {
            name.removesuffix(", area"): median_rate(_laps(own["laps"]))
            for name, own in race["contenders"].items()
            if name not in VARIANTS
        }
        names = sorted(rates, key=lambda name: rates[name])
        colors = [theme.ours if name == "gpubeton" else theme.others for name in names]
        bars = axes.barh(
            [name.replace("PyTorch ", "") for name in names], [rates[name] for name in names], color=colors
        )
        axes.bar_label(bars, [f"{rates[name]:,.0f}" for name in names], padding=4, fontweight="bold")
        stored = "JPEG-stored" if race["storage"] == "jpg" else "raw-stored"
        axes.set_title(f"{stored}, {race['corpus']['median_width']} × {race['corpus']['median_height']}")
        axes.set_xlim(0, 1.25 * max(rates.values()))
        axes.margins(y=0.02)
        _bare(axes)
    cores = races[0]["work"]["cores"]
    figure.supxlabel(f"images/s, {cores} cores of {result['machine']['cpu']}, {result['made'][:10]}", size=9)
    return figure


def _cores(theme: Theme) -> Figure:
    """Draw images per second with one core and with two, for each write mode."""
    figure = Figure((_WIDTH, 2.8))
    axes = figure.subplots()
    for place, setting in enumerate(chosen := _settings(None)):
        for count, (cores, laps) in enumerate(setting["reading"].items()):
            rate = median_rate(_laps(laps))
            label = f"{cores} core" + "s" * (cores != "1")
            bars = axes.bar(place + 0.38 * count - 0.19, rate, 0.36, color=theme.series[count], label=label)
            axes.bar_label(bars, [f"{rate:,.0f}"], padding=2, size=8.5)
    axes.margins(y=0.1)
    axes.set_xticks(range(len(chosen)), [setting["mode"] for setting in chosen])
    axes.set_title("images/s by write mode, at the original size")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[:2], labels[:2], loc="upper left")
    _bare(axes, "y")
    return figure


def _size_and_speed(theme: Theme) -> Figure:
    """Draw the size of an image in the file against images per second and core, a line for each write mode."""
    figure = Figure((_WIDTH, 3.4))
    axes = figure.subplots()
    for mode, color, marker in zip(_MODES, theme.series, "osD^", strict=True):
        own = [setting for setting in _latest("user_terms")["settings"] if setting["mode"] == mode]
        sizes = [setting["image_bytes"] / setting["images"] / 1000 for setting in own]
        rates = [1000 / median_cpu(_laps(setting["reading"]["1"])) for setting in own]
        axes.plot(sizes, rates, color=color, marker=marker, label=f"{mode}", linewidth=1.5)
        for setting, size, rate in zip(own, sizes, rates, strict=True):
            if mode in ("jpg", "raw"):
                axes.annotate(
                    str(setting["max_resolution"] or "original"),
                    (size, rate),
                    (5, 5) if setting["max_resolution"] else (-8, -13),
                    textcoords="offset points",
                    size=8.5,
                )
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
    axes.set_xlim(10, 1000)
    axes.set_xlabel("kB per image in the file")
    axes.set_title("images per second of processor time")
    axes.set_ylim(0, 15000)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(color=theme.faint, linewidth=0.5)
    axes.legend(title="write mode, at each\nmax_resolution", alignment="left", loc="upper left")
    return figure


def _batch_time(theme: Theme) -> Figure:
    """Draw what the processor time of an image is made of, at each resolution."""
    settings = {(one["mode"], one["max_resolution"]): one for one in _latest("user_terms")["settings"]}
    limits = [limit for mode, limit in settings if mode == "jpg"]
    planning = next(run for run in _latest("batch_cost")["runs"] if run["path"] == "CPU" and run["batch_size"] == 256)
    python = 1000 * min(sum(lap.values()) for lap in planning["milliseconds"]) / 256
    raw, jpg = (
        np.array([1000 * median_cpu(_laps(settings[mode, limit]["reading"]["1"])) for limit in limits])
        for mode in ("raw", "jpg")
    )
    parts = {
        "decode the JPEG": jpg - raw,
        "crop, resize, flip, normalize": raw - python,
        "plan, hand over the batch": np.full(len(limits), python),
    }
    figure = Figure((_WIDTH, 2.8))
    axes = figure.subplots()
    names = [f"{limit}" if limit else "original" for limit in limits]
    left = np.zeros(len(limits))
    for (name, part), color in zip(parts.items(), theme.series, strict=False):
        axes.barh(names, part, left=left, color=color, label=name)
        left += part
    axes.set_xlim(0, 1.5 * left.max())
    for place, total in enumerate(left):
        axes.annotate(
            f"{total:,.0f} µs", (total, place), (5, 0), textcoords="offset points", va="center", weight="bold"
        )
    axes.invert_yaxis()
    axes.set_title("µs of processor time per image, by max_resolution")
    axes.legend(loc="lower right")
    _bare(axes)
    return figure


def _memory(theme: Theme) -> Figure:
    """Draw a loader's memory by the formula, and the measured peak."""
    runs = _latest("memory")["runs"]
    figure = Figure((_WIDTH, 2.6))
    axes = figure.subplots()
    for offset, (key, label, color) in enumerate(
        [("bound_bytes", "by the formula", theme.others), ("peak_bytes", "measured peak", theme.ours)]
    ):
        values = [run[key] / 2**20 for run in runs]
        places = np.arange(len(runs)) + 0.38 * offset
        bars = axes.barh(places, values, 0.36, color=color, label=label)
        axes.bar_label(bars, [f"{value:,.0f} MiB" for value in values], padding=4)
    axes.set_yticks(np.arange(len(runs)) + 0.19, [run["name"] for run in runs])
    axes.set_xlim(0, 1.35 * max(run["bound_bytes"] for run in runs) / 2**20)
    axes.invert_yaxis()
    axes.set_title(f"memory of a loader, batches of {runs[0]['batch_size']}")
    figure.legend(loc="outside lower right", ncols=2)
    _bare(axes)
    return figure


def _resolutions(theme: Theme) -> Figure:
    """Draw the resolutions of the photos of the benchmarks."""
    sizes = photo_sizes(PhotoSet(3000, (90, 90)))
    figure = Figure((_WIDTH, 2.8))
    axes = figure.subplots()
    for side, color, label in ((0, theme.series[0], "width"), (1, theme.series[1], "height")):
        edges = np.arange(200, 860, 20)
        axes.hist(sizes[:, side], edges.tolist(), color=color, label=label, histtype="step", linewidth=2)
    axes.set_title(f"resolutions of the {len(sizes):,} photos of the benchmarks")
    axes.set_xlabel("pixels")
    axes.set_ylabel("photos")
    axes.legend()
    return figure


def _accuracy(theme: Theme) -> Figure:
    """Draw the differences in accuracy of pairs of trainings: each pair, the mean's interval and the margin."""
    sets = _latest("accuracy")["sets"]
    figure = Figure((_WIDTH, 1.6 * len(sets) + 0.5))
    titles = {"glyphs": "glyphs over photos", "turns": "photos, upright or not"}
    for axes, part in zip(figure.subplots(len(sets), 1, sharex=True, squeeze=False)[:, 0], sets, strict=True):
        rows = [("Pillow, nudged", "Pillow and NumPy, nudged", "accuracy", "accuracy")]
        rows += [
            ("gpubeton, tested with Pillow's", "gpubeton", "accuracy, reference's images", "crossed"),
            ("gpubeton", "gpubeton", "accuracy", "accuracy"),
        ]
        axes.axvspan(-0.5, 0.5, color=theme.faint, alpha=0.4, linewidth=0)
        for place, (_, name, measure, entry) in enumerate(rows):
            verdict = _verdict(part, name, measure)
            runs = zip(part["runs"][name], part["runs"]["Pillow and NumPy"], strict=True)
            points = [run[entry] - other["accuracy"] for run, other in runs]
            color = theme.ours if name == "gpubeton" else theme.series[2]
            axes.plot(points, [place + 0.2] * len(points), "o", color=color, markersize=4, alpha=0.6)
            axes.plot([verdict["low"], verdict["high"]], [place - 0.1] * 2, color=color, linewidth=4)
            axes.plot(verdict["mean"], place - 0.1, "|", color=theme.text, markersize=11, markeredgewidth=2)
        axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(-1, 1)
        axes.set_title(titles[part["set"]["kind"]])
    figure.supxlabel(
        "points of accuracy more than Pillow\ndots: pairs; bars: 90 % interval of the mean; gray: margin", size=9
    )
    return figure


def _faults(theme: Theme) -> Figure:
    """Draw how far each arm is from the reference, in margins: a mark for each measure, a color for each stage."""
    part = _latest("accuracy")["sets"][0]
    stages = {
        "images and labels": (("labels", "mean level", "mean difference"), "o"),
        "losses": (("first losses", "last losses"), "D"),
        "accuracies": (("accuracy", "accuracy, reference's images"), "^"),
    }
    figure = Figure((_WIDTH, 3.9))
    axes = figure.subplots()
    arms = part["arms"][::-1]
    axes.axvspan(1e-3, 1, color=theme.faint, alpha=0.4, linewidth=0)
    for color, (label, (measures, marker)) in zip(theme.series, stages.items(), strict=False):
        marks = [
            (abs(verdict["mean"]) / (verdict["margin"] or 0.01), place)
            for place, arm in enumerate(arms)
            for verdict in (_verdict(part, arm["name"], measure) for measure in measures)
        ]
        distances, places = zip(*marks, strict=True)
        axes.plot(np.clip(distances, 2e-3, 9e3), places, marker, color=color, label=label, markersize=5, alpha=0.85)
    axes.set_xscale("log")
    axes.set_xlim(1e-3, 2e4)
    axes.set_yticks(range(len(arms)), [arm["name"] for arm in arms])
    axes.set_xticks([1e-2, 1, 100, 1e4], ["0.01", "1", "100", "10,000"])
    axes.minorticks_off()
    axes.set_title("margins away from Pillow")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _losses(theme: Theme) -> Figure:
    """Draw the mean loss curves of gpubeton and of the reference, of each set."""
    sets = _latest("accuracy")["sets"]
    figure = Figure((_WIDTH, 2.8))
    axes = figure.subplots()
    styles = {"Pillow and NumPy": (theme.series[1], 4, "-"), "gpubeton": (theme.ours, 1.5, "--")}
    for part in sets:
        for name, (color, width, line) in styles.items():
            curve = np.mean([run["curve"] for run in part["runs"][name]], axis=0)
            places = (np.arange(len(curve)) + 0.5) / len(curve)
            label = name if part is sets[0] else None
            axes.plot(100 * places, curve, line, color=color, linewidth=width, label=label)
            if name == "gpubeton":
                axes.annotate(part["set"]["kind"], (101, curve[-1]), va="center")
    axes.set_xlim(0, 118)
    axes.set_xticks([0, 50, 100], ["0", "50 %", "100 % of the steps"])
    axes.set_title("loss, mean of the trainings")
    axes.legend()
    return figure


def _verdict(part: dict[str, Any], arm: str, measure: str) -> dict[str, Any]:
    """Find the verdict on a measure of an arm."""
    (verdicts,) = (entry["verdicts"] for entry in part["arms"] if entry["name"] == arm)
    chosen: dict[str, Any]
    (chosen,) = (verdict for verdict in verdicts if verdict["measure"] == measure)
    return chosen


def _settings(limit: int | None) -> list[dict[str, Any]]:
    """Choose the measured settings with this `max_resolution`, in the order of the modes."""
    settings = {one["mode"]: one for one in _latest("user_terms")["settings"] if one["max_resolution"] == limit}
    return [settings[mode] for mode in _MODES]


def _bare(axes: Axes, axis: str = "x") -> None:
    """Hide an axis whose values are written beside the bars."""
    (axes.xaxis if axis == "x" else axes.yaxis).set_visible(False)
    axes.spines["bottom" if axis == "x" else "left"].set_visible(False)


def _laps(stored: list[dict[str, Any]]) -> list[Lap]:
    return [Lap(**lap) for lap in stored]


def _latest(kind: str) -> dict[str, Any]:
    """Read the newest result of a benchmark."""
    result = latest(kind)
    if result is None:
        raise FileNotFoundError(f"benchmarks/results: no result of {kind!r}. Try: python -m benchmarks.{kind}")
    return result


CHARTS: dict[str, Callable[[Theme], Figure]] = {
    "speed": _speed,
    "cores": _cores,
    "size_and_speed": _size_and_speed,
    "batch_time": _batch_time,
    "memory": _memory,
    "resolutions": _resolutions,
}
if latest("accuracy"):  # an hour's work, which may be missing
    CHARTS |= {"accuracy": _accuracy, "faults": _faults, "losses": _losses}


if __name__ == "__main__":
    draw_charts()
