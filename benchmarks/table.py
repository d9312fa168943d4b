"""Draw the tables of the READMEs from the newest result files.

    python -m benchmarks.table

All figures in a README come from committed results through this module; a test draws the tables again and compares.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.accuracy.tables import draw_agreement, draw_faults, draw_pairs, draw_same_again
from benchmarks.difference_table import draw_differences
from benchmarks.gpu.tables import draw_gpu, draw_host_cost
from benchmarks.harness.timing import Lap, cpu_ratios, median_cpu, median_rate, ratios
from benchmarks.markdown import provenance, row, rule, spread
from benchmarks.order_tables import draw_hosts, draw_label_pairs, draw_mixing, draw_mixture
from benchmarks.recipe_tables import draw_operations, draw_opponents, draw_recipes
from benchmarks.referee_tables import draw_accelerators, draw_imread, draw_machines, draw_random
from benchmarks.remote_table import draw_in_place, draw_remote
from benchmarks.results import RESULTS, latest, save
from benchmarks.user_tables import draw_reading, draw_size, draw_writing
from gpubeton.pipeline.interpolation import INTERPOLATIONS

__all__ = ["READMES", "VARIANTS", "draw", "draw_tables", "fill", "save_and_draw"]

_ROOT = Path(__file__).resolve().parent.parent
READMES = tuple(
    _ROOT / page
    for page in (
        *("README.md", "benchmarks/README.md", "docs/figures.md"),
        *("docs/guides/accuracy.md", "docs/guides/augmentation.md", "docs/guides/clusters.md"),
    )
)

#: Our interpolations besides the default, which other loaders are compared with.
VARIANTS = {f"gpubeton, {name}" for name in INTERPOLATIONS if name != "area"}
_STORED = {
    "jpg": "JPEG-stored",
    "imagenet": "JPEG-stored, ImageNet's bytes",
    "evaluation": "evaluation, ImageNet's bytes",
    "raw_full": "raw-stored, full size",
    "raw": "raw-stored",
}
_CROPS = {"random": "random resized crop to {side}, flip", "center": "resized by 256/224, center crop to {side}"}
_FFCV = "FFCV"
_DATALOADER = "PyTorch DataLoader, Pillow"


def save_and_draw(kind: str, measured: dict[str, Any], results: Path, console: Console) -> None:
    """Write a result file, and draw the tables again if it is one of this checkout."""
    console.print(f"Written: {save(kind, measured, results)}", soft_wrap=True)
    if results == RESULTS:
        draw_tables()


def draw_tables(readmes: Sequence[Path] = READMES, results: Path = RESULTS) -> None:
    """Draw every table of the READMEs again."""
    for readme in readmes:
        readme.write_text(fill(readme.read_text(), results))


def fill(text: str, results: Path = RESULTS) -> str:
    """Return a Markdown text with its tables drawn from the newest results."""

    def table(match: re.Match[str]) -> str:
        if match["name"] == "machines":
            return f"{match['begin']}\n{draw_machines(results)}\n{match['end']}"
        kind, draw_table = _TABLES[match["name"]]
        result = latest(kind, results)
        drawn = draw_table(result) if result else "Not measured yet."
        return f"{match['begin']}\n{drawn}\n{match['end']}"

    mark = r"(?P<begin><!-- table: (?P<name>\w+) -->)\n.*?(?P<end><!-- end of table -->)"
    return re.sub(mark, table, text, flags=re.DOTALL)


def draw(result: dict[str, Any]) -> str:
    """Draw the table that has the name of a result's kind; "" if there is none."""
    return _TABLES[result["kind"]][1](result) if result["kind"] in _TABLES else ""


def _compare(result: dict[str, Any]) -> str:
    return "\n\n".join([*(_race(race) for race in result["races"]), f"{provenance(result)}\n{_versions(result)}"])


def _headline(result: dict[str, Any]) -> str:
    """Draw images per second with the default interpolation, beside other loaders."""
    rates: dict[str, dict[str, list[Lap]]] = {}
    races = [race for race in result["races"] if race["storage"] != "evaluation"]
    for race in races:
        for name, contender in race["contenders"].items():
            if name not in VARIANTS:
                rates.setdefault(name.removesuffix(", area"), {})[race["storage"]] = [
                    Lap(**lap) for lap in contender["laps"]
                ]
    stored = [race["storage"] for race in races]
    headings = [f"{_STORED[name]}, {_size(race)}" for name, race in zip(stored, races, strict=True)]
    lines = [row(["images/s", *headings]), rule(len(headings))]
    lines += [
        row([name, *(f"{median_rate(laps[key]):,.0f}" if key in laps else "" for key in stored)])
        for name, laps in sorted(rates.items(), key=lambda item: -median_rate(next(iter(item[1].values()))))
    ]
    work, machine = races[0]["work"], result["machine"]
    where = f"gpubeton without an index; {work['cores']} cores of {machine['cpu']}, warm cache, {result['made'][:10]}"
    what = f"Random resized crop to {work['side']}, flip, normalize to float16 channels_last; {where}."
    return "\n".join([*lines, "", what])


def _size(race: dict[str, Any]) -> str:
    corpus = race["corpus"]
    kilobytes = corpus["image_bytes"] / corpus["images"] / 1000
    return f"{corpus['median_width']} × {corpus['median_height']}, {kilobytes:.0f} kB"


def _race(race: dict[str, Any]) -> str:
    laps = {name: [Lap(**lap) for lap in contender["laps"]] for name, contender in race["contenders"].items()}
    references = [name for name in (_FFCV, _DATALOADER) if name in laps]
    has_starts = all("warm_seconds" in contender for contender in race["contenders"].values())
    heading = ["", "images/s", "per CPU second", *(_START_HEADINGS if has_starts else ())]
    heading += [f"× {name.split(',')[0]}" for name in references]
    lines = [_description(race), "", row(heading), rule(len(heading) - 1)]
    for name, laps_of_loader in sorted(laps.items(), key=lambda item: -median_rate(item[1])):
        cells = [spread([lap.images_per_second for lap in laps_of_loader], "{:,.0f}")]
        cells += [f"{1000 / median_cpu(laps_of_loader):,.0f}"]
        cells += _start_cells(race["contenders"][name], laps_of_loader) if has_starts else []
        cells += [
            "1" if name == other else spread(ratios(laps_of_loader, laps[other]), "{:.2f}") for other in references
        ]
        lines.append(row([name, *cells]))
    if {"gpubeton, area", "gpubeton, bilinear"} <= laps.keys():
        beside = spread(ratios(laps["gpubeton, area"], laps["gpubeton, bilinear"]), "{:.2f}")
        lines += ["", f"`area` runs at {beside} of the rate of `bilinear`."]
    for name, reason in race["left_out"].items():
        lines += ["", f"Left out: {name}: {reason}."]
    return "\n".join(lines)


_START_HEADINGS = ("first batch, s: first run / new process / next epoch", "MiB")


def _start_cells(contender: dict[str, Any], laps: Sequence[Lap]) -> list[str]:
    epoch = statistics.median(lap.first_batch_seconds or 0 for lap in laps)
    cold, memory = contender["cold_seconds"], contender["memory_bytes"]
    first = f"{cold:.1f}" if cold is not None else "–"
    seconds = f"{first} / {contender['warm_seconds']:.1f} / {epoch:.2f}"
    return [seconds, f"{memory / 2**20:,.0f}" if memory else ""]


def _description(race: dict[str, Any]) -> str:
    work, corpus = race["work"], race["corpus"]
    rounds = len(next(iter(race["contenders"].values()))["laps"])
    return (
        f"**{_STORED[race['storage']]}**: {corpus['images']:,} photos, median {_size(race)} each; "
        f"{_CROPS[race.get('crop', 'random')].format(side=work['side'])}, normalize to float16 channels_last; "
        f"batches of {work['batch_size']}, "
        f"{work['cores']} cores, warm cache; {rounds} rounds of {corpus['images'] * work['passes']:,} images, in "
        "alternation"
    )


def _open_index(result: dict[str, Any]) -> str:
    lines = [row(["opening a file", "median", "fastest to slowest"]), rule(2)]
    for name, seconds in result["seconds"].items():
        lines.append(row([name, f"{statistics.median(seconds):.2f} s", f"{min(seconds):.2f} to {max(seconds):.2f} s"]))
    facts = f"{result['samples']:,} samples with an image and a label, {result['file_bytes'] / 1e9:,.0f} GB"
    return "\n".join([facts, "", *lines, "", provenance(result)])


def _index_memory(result: dict[str, Any]) -> str:
    samples = result["samples"]
    lines = [row(["opening", "CPU", "of the process alone", "at most"]), rule(3)]
    lines += [
        row([run["way"], f"{run['cpu_seconds']:.2f} s", f"{kept_bytes:.1f} bytes a sample", f"{peak:.1f}"])
        for run in result["runs"]
        for kept_bytes, peak in [(run["kept_bytes"] / samples, run["peak_bytes"] / samples)]
    ]
    facts = (
        f"{samples:,} samples with an image and a label in {result['files']:,} files; "
        f"{result['shared_bytes'] / samples:.1f} bytes a sample that all processes share"
    )
    return "\n".join([facts, "", *lines, "", provenance(result)])


def _memory(result: dict[str, Any]) -> str:
    lines = [row(["`os_cache=False`", "by the formula", "measured peak"]), rule(2)]
    lines += [
        row([run["name"], _mebibytes(run["bound_bytes"]), _mebibytes(run["peak_bytes"])]) for run in result["runs"]
    ]
    return "\n".join([*lines, "", provenance(result)])


def _fusing(result: dict[str, Any]) -> str:
    parts = []
    for run in result["runs"]:
        headings = ["", "CPU ms per image", "× the first", "of the shortest times"]
        rows = [row(headings), rule(3)]
        first = next(iter(run["cpu_seconds"].values()))
        for name, seconds in run["cpu_seconds"].items():
            beside = [mine / theirs for mine, theirs in zip(seconds, first, strict=True)]
            cells = ["1", "1"] if seconds is first else [spread(beside, "{:.2f}"), f"{min(seconds) / min(first):.2f}"]
            rows.append(row([name, spread([1000 * second / result["images"] for second in seconds], "{:.3f}"), *cells]))
        corpus = run["corpus"]
        size = f"{corpus['median_width']} × {corpus['median_height']}"
        rounds = f"{result['rounds']} rounds in alternation"
        parts += [f"**{_STORED[run['storage']]}**, {size} to {result['side']}; {rounds}", "\n".join(rows)]
    return "\n\n".join([*parts, provenance(result)])


def _views(result: dict[str, Any]) -> str:
    heading = ["µs of processor time per image", "together", "apart", "together / apart"]
    lines = [row(heading), rule(3)]
    for run in result["runs"]:
        spread = f"{run['ratio']:.2f} <sub>{run['least_ratio']:.2f}–{run['largest_ratio']:.2f}</sub>"
        name = f"{run['storage']}-stored, {run['name']}"
        lines.append(row([name, f"{run['together_us']:,.0f}", f"{run['apart_us']:,.0f}", spread]))
    facts = f"{result['images']} photos, {result['rounds']} rounds in alternation"
    return "\n".join([*lines, "", f"{facts}. {provenance(result)}"])


def _entry_points(result: dict[str, Any]) -> str:
    names = ("without entry points", "with entry points", _FFCV)
    laps = {name: [Lap(**lap) for lap in result["laps"][name]] for name in names if name in result["laps"]}
    references = [name for name in (names[0], _FFCV) if name in laps]
    heading = ["", "images/s", "CPU ms per image", "bytes", *(f"× {name}" for name in references)]
    lines = [row(heading), rule(len(heading) - 1)]
    least = result["file_bytes"][names[0]]
    for name, laps_of_loader in laps.items():
        cells = [
            spread([lap.images_per_second for lap in laps_of_loader], "{:,.0f}"),
            f"{median_cpu(laps_of_loader):.3f}",
        ]
        cells.append(f"{result['file_bytes'][name] / least - 1:+.1%}")
        cells += [spread(cpu_ratios(laps_of_loader, laps[other]), "{:.2f}") for other in references]
        lines.append(row([name, *cells]))
    work, rounds = result["work"], len(next(iter(laps.values())))
    facts = (
        f"Random resized crop to {work['side']}, flip, normalize to float16; `{work['interpolation']}`; "
        f"{work['cores']} core. × compares images per second of processor time, round by round; {rounds} rounds of "
        f"{work['images'] * work['passes']:,} images in alternation"
    )
    return "\n".join([*lines, "", f"{facts}. {provenance(result)}"])


def _read_in_place(result: dict[str, Any], references: Sequence[str] = (".beton", "WebDataset")) -> str:
    laps = {name: [Lap(**lap) for lap in listed] for name, listed in result["laps"].items()}
    references = [name for name in references if name in laps]
    heading = ["", "images/s", "CPU ms per image", *(f"× {name}" for name in references)]
    lines = [row(heading), rule(len(heading) - 1)]
    for name, laps_of_loader in laps.items():
        rates = spread([lap.images_per_second for lap in laps_of_loader], "{:,.0f}")
        beside = [spread(cpu_ratios(laps_of_loader, laps[other]), "{:.2f}") for other in references]
        lines.append(row([name, rates, f"{median_cpu(laps_of_loader):.3f}", *beside]))
    facts = (
        f"{result['cores']} core; × compares images per second of processor time, round by round; {result['rounds']} "
        "rounds in alternation."
    )
    return "\n".join([*lines, "", f"{facts} {provenance(result)}"])


def _indexing(result: dict[str, Any]) -> str:
    heading = ["samples", "seconds to index", "processor seconds", "bytes per sample", "seconds to open"]
    cells = [
        f"{result['samples']:,}",
        f"{result['seconds']:.1f}",
        f"{result['cpu_seconds']:.1f}",
        f"{result['bytes_per_sample']:.1f}",
        f"{result['open_seconds']:.2f}",
    ]
    return "\n".join([row(heading), rule(len(heading) - 1), row(cells), "", provenance(result)])


def _cluster_conversion(result: dict[str, Any]) -> str:
    count = result["processes"]
    heading = ["images are", "images/s, 1 process", f"{count} processes", "of the ideal rate"]
    lines = [row(heading), rule(3)]
    for run in result["runs"]:
        rates = [spread(rates_of_setting, "{:,.0f}") for rates_of_setting in run["images_per_second"].values()]
        lines.append(row([run["name"], *rates, spread(run["share"], "{:.2f}")]))
    return "\n".join([*lines, "", f"{result['images']:,} photos in {result['shards']} shards. {provenance(result)}"])


def _remote_peers(result: dict[str, Any]) -> str:
    laps = {
        name: [Lap(*list(lap.values())[:3]) for lap in contender["laps"]]
        for name, contender in result["contenders"].items()
    }
    lines = [row(["", "images/s", "CPU s / 1000 images", "requests / 1000 images", "bytes came / used"]), rule(4)]
    work, stored = result["work"], result["corpus"]["image_bytes"] / result["corpus"]["images"]
    for name, laps_of_loader in laps.items():
        seen = result["contenders"][name]["laps"][-1]
        cells = [spread([lap.images_per_second for lap in laps_of_loader]), f"{median_cpu(laps_of_loader):.2f}"]
        cells.append(f"{1000 * seen['requests'] / work['images']:.1f}")
        cells.append(f"{seen['sent_bytes'] / (stored * work['images']):.3f}")
        lines.append(row([name, *cells]))
    facts = (
        f"{work['images']:,} photos as JPEG, random resized crop to {work['side']}, flip, normalize; {work['cores']} "
        f"cores, shared with the server; {len(next(iter(laps.values())))} rounds in alternation. "
        "The others decode with Pillow in the worker processes of a DataLoader"
    )
    left_out = "".join(f"\nLeft out: {name}: {reason}." for name, reason in result["left_out"].items())
    return "\n".join([*lines, "", f"{facts}. {provenance(result)}{left_out}"])


def _batch_cost(result: dict[str, Any]) -> str:
    heading = ["ms of processor time per batch", "all threads", "least", "of it with the GIL"]
    lines = [row(heading), rule(3)]
    for run in result["runs"]:
        sums = [sum(lap.values()) for lap in run["milliseconds"]]
        locked = min(sums) - sum(run["without_gil"].values())
        cells = [spread(sums, "{:.2f}"), f"{min(sums):.2f}", f"{locked:.2f}"]
        lines.append(row([f"{run['path']}, {run['batch_size']} images", *cells]))
    return "\n".join([*lines, "", provenance(result)])


def _custom_operation(result: dict[str, Any]) -> str:
    loaders = list(next(iter(result["added_cpu_ms"].values())))
    rows = [row(["added CPU ms per image, by place of the operation", *loaders]), rule(2)]
    rows += [
        row([place, *(spread(costs[loader], "{:.3f}") for loader in loaders)])
        for place, costs in result["added_cpu_ms"].items()
    ]
    listed = "; ".join(
        f"{name.partition(',')[0]}: {', '.join(f'{what} {version}' for what, version in packages.items())}"
        for name, packages in result["versions"].items()
        if name.endswith(", normalising")
    )
    return "\n".join([*rows, "", f"{provenance(result)}\nVersions: {listed}."])


def _versions(result: dict[str, Any]) -> str:
    """List the versions that the first race compared."""
    listed = "; ".join(
        f"{name}: {', '.join(f'{package} {version}' for package, version in contender['versions'].items())}"
        for name, contender in result["races"][0]["contenders"].items()
        if name not in VARIANTS
    )
    return f"Versions: {listed}."


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


#: Name of the table: kind of its result, and how to draw it.
_TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "accuracy": ("accuracy", draw_pairs),
    "accuracy_faults": ("accuracy", draw_faults),
    "accuracy_agreement": ("accuracy", draw_agreement),
    "accuracy_same_again": ("accuracy", draw_same_again),
    "headline": ("compare", _headline),
    "compare": ("compare", _compare),
    "accelerators": ("accelerators", draw_accelerators),
    "random": ("random", draw_random),
    "imread": ("imread", draw_imread),
    "open_index": ("open_index", _open_index),
    "index_memory": ("index_memory", _index_memory),
    "memory": ("memory", _memory),
    "fusing": ("fusing", _fusing),
    "views": ("views", _views),
    "custom_operation": ("custom_operation", _custom_operation),
    "batch_cost": ("batch_cost", _batch_cost),
    "cluster_conversion": ("cluster_conversion", _cluster_conversion),
    "entry_points": ("entry_points", _entry_points),
    "read_in_place": ("read_in_place", _read_in_place),
    "read_in_place_http": ("read_in_place_http", draw_in_place),
    "indexing": ("indexing", _indexing),
    "batch_decoder": (
        "batch_decoder",
        partial(_read_in_place, references=("Loader", "torchvision v2 in a DataLoader")),
    ),
    "remote_peers": ("remote_peers", _remote_peers),
    "differences": ("differences", draw_differences),
    "mixing": ("mixing", draw_mixing),
    "mixture": ("mixture", draw_mixture),
    "label_pairs": ("node_locality", draw_label_pairs),
    "node_locality": ("node_locality", draw_hosts),
    "gpu": ("gpu", draw_gpu),
    "host_cost": ("host_cost", draw_host_cost),
    "recipes": ("recipes", draw_recipes),
    "operations": ("recipes", draw_operations),
    "recipes_avx2": ("recipes_avx2", draw_recipes),
    "operations_avx2": ("recipes_avx2", draw_operations),
    "recipe_opponents": ("recipe_opponents", draw_opponents),
    "remote": ("remote", draw_remote),
    "user_terms_size": ("user_terms", draw_size),
    "user_terms_writing": ("user_terms", draw_writing),
    "user_terms_reading": ("user_terms", draw_reading),
}


if __name__ == "__main__":
    draw_tables()
