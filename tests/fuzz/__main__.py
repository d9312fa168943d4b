"""Fuzz campaigns: run for as long as you like, and look for faults that no test knows.

    make fuzz SECONDS=600
    python -m tests.fuzz --seconds 600 --seed 1 --out build/fuzz.json
    python -m tests.fuzz --campaign jpeg --seed 1 --case 1234      # one case again, in this process

jpeg        damaged JPEGs between unreadable pages, and the verdict of strict libjpeg-turbo on each
views       two to four views of an image in one pass, and each alone
container   hostile .beton files: index, loader, verify, summary, contents
archives    hostile tar, zip and Arrow files, and indices of them, which loaders read in place
scenarios   a loader in random steps, compared with a fresh loader
writer      DatasetWriter and convert killed at random moments
pipelines   random pipelines with 1, 2 and 7 workers and other batch sizes
node_cache  processes that share a cache of remote files, killed at random moments
damage      zeroed, repeated and swapped stretches of values, indices and cached pages: nothing is silent

Each has a share of the time. A case is a function of the seed and its number, but for the moments at which `writer`
and `node_cache` kill. A campaign runs in one process for each core; one that crashes or hangs is replaced, and its case
is a finding. The exit status is 1 if there is any finding.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

# Loaders may have more workers than this machine has cores.
os.environ.setdefault("NUMBA_NUM_THREADS", "8")


def _arguments() -> argparse.Namespace:
    from tests.fuzz.campaign import CAMPAIGNS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Run the fuzz campaigns.")
    parser.add_argument("--seconds", type=float, default=60, help="of all campaigns together (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--campaign", action="append", choices=list(CAMPAIGNS), help="these alone; may be repeated")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--case", type=int, help="try one case of one campaign again")
    parser.add_argument("--out", type=Path, help="a JSON file for the report")
    arguments = parser.parse_args()
    if arguments.case is not None and len(arguments.campaign or []) != 1:
        parser.error("--case needs one --campaign")
    return arguments


def main() -> int:
    """Run campaigns; give the exit status."""
    from tests.fuzz.campaign import CAMPAIGNS
    from tests.fuzz.children import Task, run, run_here
    from tests.fuzz.report import as_text, is_sound, save

    arguments = _arguments()
    names = arguments.campaign or list(CAMPAIGNS)
    records = []
    if arguments.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            numbers = range(arguments.case, arguments.case + 1)
            records.append(run_here(names[0], arguments.seed, numbers, Path(folder)))
    else:
        whole = sum(CAMPAIGNS[name].share for name in names)
        for name in names:
            kind = CAMPAIGNS[name]
            task = Task(name, arguments.seed, arguments.processes, None, kind.patience)
            records.append(run(task, arguments.seconds * kind.share / whole, print))
            if arguments.out is not None:  # after each, so that a run that is ended early leaves something
                save(records, arguments.out)
    print(as_text(records))
    if arguments.out is not None:
        save(records, arguments.out)
    return 0 if is_sound(records) else 1


if __name__ == "__main__":
    sys.exit(main())
