"""What a run found: counts, findings and how to repeat each."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, describe_machine
from gpubeton import __version__

#: Findings of each kind that are written down; all are counted.
KEPT = 20


@dataclass
class Record:
    """A campaign's part."""

    name: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: int, outcomes: list[Any]) -> None:
        """Count what became of a case."""
        for verdict, finding in outcomes:
            self.verdicts[verdict] += 1
            if finding:
                self.fault(case, verdict, finding)

    def fault(self, case: int, kind: str, text: str) -> None:
        """Note a finding."""
        self.faults[kind] += 1
        if self.faults[kind] <= KEPT:
            again = f"python -m tests.fuzz --campaign {self.name} --seed {self.seed} --case {case}"
            self.findings.append({"kind": kind, "case": case, "text": text, "again": again})

    def merge(self, other: Record) -> None:
        """Take over what a process counted."""
        self.cases += other.cases
        self.verdicts += other.verdicts
        counts = Counter(finding["kind"] for finding in self.findings)
        for finding in other.findings:
            counts[finding["kind"]] += 1
            if counts[finding["kind"]] <= KEPT:
                self.findings.append(finding)
        self.faults += other.faults


def as_json(records: list[Record]) -> dict[str, Any]:
    """The whole run, as JSON can hold it."""
    names = ("numpy", "numba", "simplejpeg", "pillow", "torch")
    return {
        "kind": "fuzz",
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "gpubeton": {"version": __version__, "commit": commit()},
        "python": sys.version.split()[0],
        "libraries": {name: version(name) for name in names},
        "machine": describe_machine(),
        "sound": is_sound(records),
        "campaigns": {
            record.name: {
                "seed": record.seed,
                "cases": record.cases,
                "seconds": round(record.seconds, 1),
                "crashes": record.faults["crash"],
                "hangs": record.faults["hang"],
                "verdicts": dict(record.verdicts.most_common()),
                "faults": dict(record.faults.most_common()),
                "findings": record.findings,
            }
            for record in records
        },
    }


def is_sound(records: list[Record]) -> bool:
    """Whether nothing was found."""
    return not any(record.faults for record in records)


def save(records: list[Record], path: Path) -> None:
    """Write the run down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(records), indent=1) + "\n")


def as_text(records: list[Record]) -> str:
    """The run as a table, and the first finding of each kind."""
    lines = []
    for record in records:
        tried = record.verdicts.total()
        lines += [f"{record.name}: {record.cases} cases, {tried} verdicts, {record.seconds:.0f} s, seed {record.seed}"]
        for verdict, count in record.verdicts.most_common():
            mark = "!" if record.faults[verdict] else " "
            lines.append(f"  {mark} {count:>9}  {verdict}")
        for kind in ("crash", "hang"):
            lines.append(f"  {'!' if record.faults[kind] else ' '} {record.faults[kind]:>9}  {kind}")
        shown = set()
        for finding in record.findings:
            if finding["kind"] not in shown:
                shown.add(finding["kind"])
                lines += [f"    {finding['kind']}: {finding['text']}", f"      {finding['again']}"]
    lines.append("sound" if is_sound(records) else "NOT sound")
    return "\n".join(lines)
