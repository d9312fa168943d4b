"""The tables of the page "Does it train the same?"."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.difference_table import draw_cell
from benchmarks.markdown import provenance, row, rule

__all__ = ["draw_agreement", "draw_faults", "draw_pairs", "draw_same_again"]

_NAMES = {
    "glyphs": "glyphs over photos, 200 classes",
    "turns": "photos, upright or upside down, 20 classes",
}
_CURVES = "Chart: the loss curves of gpubeton's batches lie on those of Pillow's batches"
_FORMATS = {"labels": "{:.2f} %", "mean level": "{:+.3f}", "mean difference": "{:.3f}"}


def draw_pairs(result: dict[str, Any]) -> str:
    """Draw gpubeton's verdicts on each set, and what they rest on."""
    return "\n\n".join(
        [
            _picture("accuracy", _seen(result)),
            _picture("losses", _CURVES),
            *(_of_set(part) for part in result["sets"]),
            _facts(result),
        ]
    )


def draw_faults(result: dict[str, Any]) -> str:
    """Draw a row for each arm of the first set, and what each measure made of it."""
    arms = result["sets"][0]["arms"]
    measures = [verdict["measure"] for verdict in arms[0]["verdicts"]]
    lines = [row(["", *measures, "verdict"]), rule(len(measures) + 1)]
    lines.append(row(["margin", *(f"± {verdict['margin']:g}" for verdict in arms[0]["verdicts"]), ""]))
    for arm in arms:
        cells = []
        for verdict in arm["verdicts"]:
            text = _FORMATS.get(verdict["measure"], "{:+.4f}" if "losses" in verdict["measure"] else "{:+.2f}")
            cell = text.format(verdict["mean"])
            cells.append(f"**{cell}**" if verdict["outcome"] == "different" else cell)
        lines.append(row([arm["name"], *cells, _outcome(arm)]))
    alt = "Chart: distances from the reference in margins, for gpubeton, the control and each planted mistake"
    note = "Bold: the whole 90 % interval is outside the margin. Levels are 0 to 255, losses nats, accuracies points."
    return "\n\n".join([_picture("faults", alt), "\n".join(lines), note])


def draw_agreement(result: dict[str, Any]) -> str:
    """Draw how far pixels are from the definitions, torchvision and Pillow."""
    part = result["agreement"]
    peers = {
        "planes": "planes, float64",
        "float64": "RGB, float64",
        "torchvision": "torchvision v2",
        "Pillow": "Pillow",
    }
    lines = [row(["decoder", "", *peers.values()]), row(["---", "---", *["---:"] * len(peers)])]
    lines += [
        row([entry["name"], entry["settings"], *(draw_cell(entry["beside"].get(peer)) for peer in peers)])
        for entry in part["rows"]
    ]
    versions = ", ".join(f"{name} {number}" for name, number in part["versions"].items())
    return "\n".join([*lines, "", f"{part['photos']} photos; {versions}. {provenance(result)}"])


def draw_same_again(result: dict[str, Any]) -> str:
    """Draw the comparisons that have to be equal."""
    resumed, bad, masks, boxes = (result[name] for name in ("resuming", "bad_images", "masks", "boxes"))
    rows = [
        (
            f"a training that was stopped after {resumed['stopped_after']} of {resumed['steps']} steps and resumed",
            f"{resumed['values']:,} values of the network",
            f"{resumed['different']:,}",
        ),
        (
            "the same, with another order after the stop",
            f"{resumed['values']:,} values",
            f"{resumed['different_in_another_order']:,}",
        ),
        *(
            (
                f"`on_error={reaction!r}` with {bad['bad']} damaged images in the file",
                f"{bad[reaction]['images']:,} images that the loop got",
                f"{bad[reaction]['different']:,}",
            )
            for reaction in ("skip", "replace")
        ),
        ("masks after crops and flips", f"{masks['pixels']:,} pixels", f"{masks['different']:,}"),
        (
            "boxes after crops and flips",
            f"{boxes['boxes']:,} boxes; the largest difference is {boxes['largest difference']:.0e} pixels",
            f"{boxes['missing']:,}",
        ),
    ]
    return "\n".join([row(["", "compared", "different"]), row(["---", "---", "---:"]), *map(row, rows)])


def _of_set(part: dict[str, Any]) -> str:
    lines = [row(["difference of pairs", "mean", "90 % interval", "margin", "", "power"]), rule(5)]
    arm = next(arm for arm in part["arms"] if arm["name"] == "gpubeton")
    for verdict in arm["verdicts"]:
        name, text = verdict["measure"], "{:+.4f}" if "losses" in verdict["measure"] else "{:+.2f}"
        if name in part["power"]:
            interval = f"{text} to {text}".format(verdict["low"], verdict["high"])
            figures = [text.format(verdict["mean"]), interval, f"± {verdict['margin']:g}"]
            lines.append(row([name, *figures, verdict["outcome"], f"{100 * part['power'][name]:.0f} %"]))
    return "\n".join([f"**{_NAMES[part['set']['kind']]}**: {_accuracies(part)}", "", *lines])


def _accuracies(part: dict[str, Any]) -> str:
    ours, reference = (part["runs"][name] for name in ("gpubeton", "Pillow and NumPy"))
    mean, other = (statistics.mean(run["accuracy"] for run in runs) for runs in (ours, reference))
    changed = statistics.mean(run["changed"] for run in reference)
    crossed = statistics.mean(run["crossed"] for run in reference)
    return (
        f"{len(ours)} pairs of trainings with {part['set']['train']:,} images, {part['epochs']} epochs, tested with "
        f"{part['set']['test']:,}. Trained and tested with gpubeton's images: {mean:.2f} % right; with Pillow's: "
        f"{other:.2f} %; trained with Pillow's and tested with gpubeton's: {crossed:.2f} %, where {changed:.2f} % of "
        "the predictions change."
    )


def _seen(result: dict[str, Any]) -> str:
    outcomes = {_outcome(arm) for part in result["sets"] for arm in part["arms"] if arm["name"] == "gpubeton"}
    return (
        f"Chart of differences in accuracy of pairs of trainings, with their margin: {' and '.join(sorted(outcomes))}"
    )


def _outcome(arm: dict[str, Any]) -> str:
    outcomes = {verdict["outcome"] for verdict in arm["verdicts"]}
    return "different" if "different" in outcomes else "undecided" if "undecided" in outcomes else "equivalent"


def _facts(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    runs = [run for part in result["sets"] for arm in part["runs"].values() for run in arm]
    minutes = sum(run["seconds"] for run in runs) / 60
    return f"{len(runs)} trainings in {minutes:.0f} minutes of processor time. {versions}. {provenance(result)}"


def _picture(name: str, text: str) -> str:
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="../figures/{name}-dark.svg">\n'
        f'  <img alt="{text}" src="../figures/{name}-light.svg">\n</picture>'
    )
