"""The tables of GPU results, and of the work of the host."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.host_cost import CASES
from benchmarks.markdown import row, rule, spread

__all__ = ["draw_gpu", "draw_host_cost", "summary"]

_CEILING = "nvJPEG alone, engines"
_ALL_CORES = "all cores"


def draw_gpu(result: dict[str, Any]) -> str:
    """Draw the results of a session on a GPU."""
    drawers = {
        "race": _race,
        "cores": _cores,
        "kernels": _kernels,
        "training": _training,
        "tests": _tests,
    }
    parts = []
    for name, draw in drawers.items():
        step = result["steps"].get(name)
        if step is not None and "error" not in step["found"]:
            parts.append(draw(step["found"]))
    return "\n\n".join([*(part for part in parts if part), _provenance(result)])


def draw_host_cost(result: dict[str, Any]) -> str:
    """Draw the work of the host for each image."""
    lines = [row(["µs of processor time per image", *(_size(corpus) for corpus in result["corpora"])]), rule(2)]
    measured = result["corpora"][0]["cases"]
    for case in (case.name for case in CASES if case.name in measured):  # older results have routes that are gone
        costs = [
            [1e6 * corpus_result["cpu_seconds"] / corpus_result["images"] for corpus_result in corpus["cases"][case]]
            for corpus in result["corpora"]
        ]
        lines.append(row([case, *(spread(cost, "{:.1f}") for cost in costs)]))
    machine, date = result["machine"], result["made"][:10]
    where = f"{machine['cpu']}, {machine['cores']} cores; batches of {result['batch_size']}"
    gpubeton = result["gpubeton"]
    return "\n".join([*lines, "", f"{date}, {where}; gpubeton {gpubeton['version']} at {gpubeton['commit']}."])


def summary(name: str, result: dict[str, Any]) -> str:
    """Summarize the result of a step in a few indented lines."""
    if "error" in result:
        return f"\n  {result['error']}"
    lines: list[str] = []
    if name == "tests":
        lines.append(f"{result['passed']} of {result['tests']} passed")
        lines += [f"{test}: {why.splitlines()[0]}" for test, why in result["not_passed"].items()]
    elif name == "sanitizer":
        lines += [f"skipped: {result['skipped']}"] if "skipped" in result else []
        lines += [f"{tool}: {output['verdict']}" for tool, output in result.items() if isinstance(output, dict)]
    elif name in {"race", "cores"}:
        for title, race in _races(result).items():
            for who, laps in race.items():
                lines.append(f"{title}, {who}: {_median(laps):,.0f} images/s, {_cost(laps):,.1f} µs each{_busy(laps)}")
    elif name == "kernels":
        for pipeline, measured in _pipelines(result).items():
            times = ", ".join(
                f"{kernel} {kernel_times['median_microseconds']:.1f}"
                for kernel, kernel_times in measured["kernels"].items()
            )
            lines.append(f"{pipeline}: {times} µs; {100 * measured['share_of_bound']:.0f} % of the bound")
        lines += _decoder(result)
    elif name == "training":
        for network, by_loader in _networks(result).items():
            lines += [f"{network}, {who}: {100 * _share(laps):.1f} %" for who, laps in by_loader.items()]
    return "".join(f"\n  {line}" for line in lines)


def _race(result: dict[str, Any]) -> str:
    race = _races(result).get(_ALL_CORES)
    if not race:
        return ""
    corpus = result["corpus"]
    ceiling = _median(race[_CEILING]) if _CEILING in race else 0.0
    work = (
        f"{corpus['images']:,} images of {corpus['median_width']} × {corpus['median_height']}, "
        f"{corpus['mean_bytes'] / 1000:.0f} kB each, in memory; random resized crop to 224, flip, normalize to "
        f"float16, channels last, on the GPU; batches of {result['batch_size']}; laps of {result['seconds']:g} seconds "
        "in alternation"
    )
    lines = [
        work,
        "",
        row(["", "images/s", "× engines alone", "processor time per image", "engines busy"]),
        rule(4),
    ]
    for name, laps in sorted(race.items(), key=lambda item: -_median(item[1])):
        beside = f"{_median(laps) / ceiling:.2f}" if ceiling else ""
        rates = spread([_rate(lap) for lap in laps], "{:,.0f}")
        busy = _engines(laps)
        lines.append(row([name, rates, beside, f"{_cost(laps):,.1f} µs", f"{busy:.0f} %" if busy is not None else ""]))
    return "\n".join(lines)


def _cores(result: dict[str, Any]) -> str:
    races = _races(result)
    if not races:
        return ""
    names = dict.fromkeys(name for race in races.values() for name in race)
    lines = [row(["images/s, limited to", *races]), rule(len(races))]
    for name in names:
        cells = [f"{_median(race[name]):,.0f}" if name in race else "" for race in races.values()]
        lines.append(row([name, *cells]))
    return "\n".join(lines)


def _kernels(result: dict[str, Any]) -> str:
    pipelines = _pipelines(result)
    if not pipelines:
        return ""
    lines = [
        row(["pipeline", "bound", "resample", "all kernels", "of the bound"]),
        rule(4),
    ]
    for name, pipeline in pipelines.items():
        times = {kernel: kernel_times["median_microseconds"] for kernel, kernel_times in pipeline["kernels"].items()}
        cells = [
            f"{pipeline['bound_microseconds']:.1f} µs",
            f"{times['resample']:.1f} µs",
            f"{sum(times.values()):.1f} µs",
        ]
        lines.append(row([name, *cells, f"{100 * pipeline['share_of_bound']:.0f} %"]))
    rate = result["copy_bytes_per_second"] / 1e12
    facts = f"Kernels of a batch of {result['batch_size']}; the GPU copies {rate:.2f} TB/s, bytes read and written."
    return "\n".join([*lines, "", facts, *_decoder(result)])


def _training(result: dict[str, Any]) -> str:
    lines = [row(["training", "loader", "images/s", "of what the network can do"]), rule(3)]
    for network, laps in _networks(result).items():
        for who, laps_of_loader in laps.items():
            rates = spread([lap["images_per_second"] for lap in laps_of_loader], "{:,.0f}")
            lines.append(row([network, who, rates, f"{100 * _share(laps_of_loader):.1f} %"]))
    return "\n".join(lines) if len(lines) > 2 else ""


def _tests(result: dict[str, Any]) -> str:
    return f"{result['passed']} of {result['tests']} tests on the GPU passed."


def _provenance(result: dict[str, Any]) -> str:
    environment, gpubeton = result["environment"], result["gpubeton"]
    gpu, machine = environment["gpu"], result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    limit = f", limit {gpu['power_limit']}" if "power_limit" in gpu else ""
    where = f"{gpu['name']}, driver {gpu.get('driver_version', 'unknown')}{limit}"
    what = f"gpubeton {gpubeton['version']} at {gpubeton['commit']}"
    return f"{result['made'][:10]}, {where}; {machine['cpu']}, {machine['cores']} cores; {what}. {versions}."


def _races(result: dict[str, Any]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the laps by race and contender."""
    return {
        title: {name: contender["laps"] for name, contender in race["contenders"].items() if contender["laps"]}
        for title, race in result.items()
        if isinstance(race, dict) and "contenders" in race
    }


def _pipelines(result: dict[str, Any]) -> dict[str, Any]:
    return {name: output for name, output in result.items() if isinstance(output, dict) and "kernels" in output}


def _decoder(result: dict[str, Any]) -> list[str]:
    """Describe the times of our own decoder's kernels, if they were measured."""
    decoder = result.get("own decoder")
    if decoder is None:
        return []
    times = ", ".join(f"{kernel} {microseconds:.1f}" for kernel, microseconds in decoder["decoder"].items())
    return [
        f"Our own decoder, for {decoder['images']} images: {times}; together {sum(decoder['decoder'].values()):.1f} µs."
    ]


def _networks(result: dict[str, Any]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    return {name: output for name, output in result.items() if isinstance(output, dict) and "synthetic" in output}


def _rate(lap: dict[str, Any]) -> float:
    return float(lap["images"] / lap["wall_seconds"])


def _median(laps: Sequence[dict[str, Any]]) -> float:
    return statistics.median(_rate(lap) for lap in laps)


def _cost(laps: Sequence[dict[str, Any]]) -> float:
    """Return microseconds of processor time per image."""
    costs = [1e6 * float(lap["cpu_seconds"]) / int(lap["images"]) for lap in laps]
    return statistics.median(costs)


def _share(laps: Sequence[dict[str, Any]]) -> float:
    shares = [float(lap["share_of_synthetic"]) for lap in laps]
    return statistics.median(shares)


def _engines(laps: Sequence[dict[str, Any]]) -> float | None:
    results = [lap["engines"]["nvjpg_percent"] for lap in laps if "nvjpg_percent" in lap.get("engines", {})]
    return statistics.median(results) if results else None


def _busy(laps: Sequence[dict[str, Any]]) -> str:
    busy = _engines(laps)
    return "" if busy is None else f", engines {busy:.0f} % busy"


def _size(corpus: dict[str, Any]) -> str:
    return f"{corpus['median_width']} × {corpus['median_height']}, {corpus['mean_bytes'] / 1000:.0f} kB"
