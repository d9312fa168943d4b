"""The pages of the documentation, their blocks of code, and a way to run them as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from gpubeton.cli.app import app
from gpubeton.fields import IntField, RGBImageField
from gpubeton.writer import DatasetWriter

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in [
        ROOT / "README.md",
        *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "notebooks"),
        ROOT / "benchmarks/README.md",
        *sorted((ROOT / "examples").rglob("*.md")),
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
    ]
)

#: Blocks in these are for reading.
SHOWN = {"text"}
#: Blocks in these run: Python; the new side of a ``diff``, as Python; commands after ``$ ``, with their output.
RUN = {"python", "diff", "console"}

#: A training script as readers have one.
TRAINING = """
import argparse

import numpy as np
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, Squeeze, ToTensor, ToTorchImage


def make_loader():
    image = [CenterCropRGBImageDecoder((32, 32), 1), NormalizeImage(np.zeros(3), np.full(3, 255), np.float32)]
    pipelines = {"image": [*image, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor(), Squeeze()]}
    return Loader("train.beton", batch_size=50, num_workers=1, order=OrderOption.RANDOM, pipelines=pipelines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    loader = make_loader()
    for epoch in range(parser.parse_args().epochs):
        assert sum(len(labels) for images, labels in loader) == 300
"""

#: The command with nothing for a shell to do. The doctor imports and starts programs of users: it gets a process.
_ALONE = re.compile(r"gpubeton (?!doctor)[^|<>&;*?$~`{}()]+")

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A block of code of a page; `why` is the reason that it cannot run here, if any."""

    page: str
    line: int
    language: str
    text: str
    why: str | None


def blocks(page: str) -> list[Block]:
    """List the blocks of a page but for Sphinx's directives."""
    text = (ROOT / page).read_text()
    results = [
        Block(page, text[: match.start("text")].count("\n") + 1, match["language"], match["text"], match["why"])
        for match in _BLOCK.finditer(text)
    ]
    return [block for block in results if not block.language.startswith("{")]


def prepare(folder: Path) -> None:
    """Put into a folder what readers of the pages have: photos in three classes, a file of them, and scripts."""
    y, x = np.mgrid[0:48, 0:64]
    for number in range(300):
        path = folder / "train" / f"class_{number % 3}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        waves = 127 + 100 * np.sin((x * (number % 5) + y * (number % 7)) / 9)
        Image.fromarray(np.repeat(waves[:, :, None], 3, axis=2).astype(np.uint8)).save(path)
    fields = {"image": RGBImageField("jpg"), "label": IntField()}
    DatasetWriter(folder / "train.beton", fields, num_workers=1, progress=False).from_image_folder(folder / "train")
    (folder / "train.py").write_text(TRAINING)
    (folder / "train_imagenet.py").write_text(TRAINING.replace("gpubeton", "ffcv"))


def run(block: Block, namespace: dict[str, Any]) -> None:
    """Run a block in the working directory; Python's names stay in `namespace`."""
    if block.language == "console":
        for command, printed in commands(block.text):
            shown = shell(command)
            assert matches(printed, shown), f"{block.page}, {command}: expected\n{printed}\nbut it printed\n{shown}"
        return
    text = block.text if block.language == "python" else ends_in(block.text)
    code = compile("\n" * (block.line - 1) + text, block.page, "exec")
    exec(code, namespace)


def ends_in(diff: str) -> str:
    """Give what a diff ends in."""
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-")) + "\n"


def commands(text: str) -> list[tuple[str, str]]:
    """List the commands of a block, and the text below each."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"a console block begins with a command after a dollar sign, not with {parts[0]!r}"
    lines = [re.match(r"((?:[^\n]*\\\n)*[^\n]*\n?)(.*)", part, re.DOTALL) for part in parts[1:]]
    return [(line[1], line[2]) for line in lines if line]


def shell(command: str) -> str:
    """Run a command; ``gpubeton`` and ``python`` are those of this checkout and interpreter."""
    if _ALONE.fullmatch(command):
        return _gpubeton(shlex.split(command)[1:])
    inside = f'gpubeton() {{ "{sys.executable}" -c "from gpubeton.cli import main; main()" "$@"; }}\n'
    inside += f'python() {{ "{sys.executable}" "$@"; }}\n'
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120", "TERM": "dumb"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", inside + command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    # The doctor ends with 1 where it finds something to mend, as it may on any machine.
    well = {0, 1} if "gpubeton doctor" in command else {0}
    assert done.returncode in well, f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _gpubeton(words: list[str]) -> str:
    """Run ``gpubeton`` in this process, which has imported torch and loaded the machine code."""
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})
    assert done.exit_code == 0, f"gpubeton {words}: status {done.exit_code}\n{done.output}"
    return done.stdout


def matches(printed: str, shown: str) -> bool:
    """Compare without regard to spaces; three dots match anything, and an empty expectation matches all output."""
    expected = [re.escape(part) for part in printed.split()]
    pattern = r"\s+".join(expected).replace(r"\.\.\.", ".*?")
    return not expected or re.fullmatch(pattern, " ".join(shown.split()), re.DOTALL) is not None
