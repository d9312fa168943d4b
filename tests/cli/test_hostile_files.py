"""What strangers can put into a file, shown by every command."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil

import numpy as np
import pytest

from gpubeton.fields import BytesField, IntField, JSONField, RGBImageField
from gpubeton.format import read_notes
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.cli.command import run
from tests.picture_folders import write_folder
from tests.small_files import damage, picture, write

#: How each name has to be printed.
NAMES = {
    "[/x]": "[/x]",
    "[bold]": "[bold]",
    ":smile:": ":smile:",
    "\x1b]0;owned\x07": r"\x1b]0;owned\x07",
    "\x9b31m": r"\x9b31m",
    "a\rb\nc\x7f": r"a\rb\nc\x7f",
    "cat\u202egnp": r"cat\u202egnp",
    "\ud800": r"\ud800",
    "Hündin 犬": "Hündin 犬",
}
#: Escape sequences, controls of the writing direction, and lines that a name has begun.
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")

#: JSON that Python refuses, each in its way.
BAD_JSON = {
    "nested": b"[" * 20_000 + b"]" * 20_000,
    "unclosed": b'{"a":' * 20_000,
    "digits": b"9" * 25_000,
    "no UTF-8": b'"\xff\xfe"',
    "text": b"hello",
}


def write_named(path):
    """A file with such names of classes and fields, and a sample of each class."""
    fields = {
        "[/x]": IntField(),
        "\x1b[2J": BytesField(),
        "image": RGBImageField("raw"),
        "label": IntField(),
        "info": JSONField(),
    }
    # This is a value, not a description of an image, an array or bytes.
    value = {"kind": [], "height": 0, "width": 0, "begins": 0, "dtype": 0, "shape": 0, "elements": 0}
    samples = [(1, b"abc", picture(number, 12, 9), number, value) for number in range(len(NAMES))]
    writer = DatasetWriter(path, fields, 1 << 21, 1, progress=False, notes={"class_names": list(NAMES)})
    writer.from_indexed_dataset(samples)
    return path


def write_json(path, *texts):
    """A file with these bytes as its values of JSON."""
    write(path, {"info": JSONField()}, [("x" * (len(text) - 2),) for text in texts])
    for sample, text in enumerate(texts):
        damage(path, sample, field="info", content=text)
    return path


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    return write_named(tmp_path_factory.mktemp("named") / "a.beton")


COMMANDS = [
    ["info", "{file}"],
    ["verify", "{file}"],
    *[["cat", "{file}", str(sample)] for sample in range(len(NAMES))],
    ["extract", "{file}", "{out}"],
    ["view", "{file}", "{out}.png"],
    ["split", "{file}", "{out}=0.5"],
    ["subset", "{file}", "{out}", "--class", "[/x]"],
    ["merge", "{file}", "{file}", "-o", "{out}"],
]


@pytest.mark.parametrize("given", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_stops_at_a_name_or_lets_it_control_the_terminal(command, given, named, tmp_path):
    done = run(*(word.format(file=named, out=tmp_path / "out") for word in command), *given)
    assert done.exit_code == 0, done.stderr
    assert UNSAFE.search(done.stdout + done.stderr) is None
    if given:
        json.loads(done.stdout)


@pytest.mark.parametrize(("sample", "shown"), list(enumerate(NAMES.values())))
def test_cat_and_info_show_a_class_name_with_its_control_characters_escaped(sample, shown, named):
    assert f"label: {sample} ({shown})\n" in run("cat", named, sample).stdout
    assert f" {shown} (1)" in run("info", named).stdout
    assert f" {shown} █" in run("info", named, "--histograms").stdout


def test_names_of_fields_are_shown_as_they_are(named):
    shown = run("info", named).stdout
    assert "\n[/x]  IntField" in shown
    assert "\n\\x1b[2J  BytesField" in shown


def test_json_output_keeps_every_name(named):
    names = json.loads(run("info", named, "--json").stdout)["class_names"]
    assert names == [name.replace("\ud800", "\\ud800") for name in NAMES]


def test_errors_that_list_names_of_a_file_escape_them(named, tmp_path):
    for command in (["subset", named, tmp_path / "b", "--class", "owl"], ["cat", named, 0, "--only", "mask"]):
        done = run(*command)
        assert (done.exit_code, UNSAFE.search(done.stderr)) == (2, None)
        assert "'[/x]'" in done.stderr


def test_an_error_that_names_a_file_escapes_it(tmp_path):
    done = run("info", tmp_path / "\x1b]0;owned\x07.beton")
    assert (done.exit_code, r"\x1b]0;owned\x07.beton" in done.stderr) == (2, True)
    assert UNSAFE.search(done.stderr) is None


@pytest.mark.parametrize("name", ["[", "\x1b[31m{x}\x07", ":smile:", os.fsdecode(b"\xff")], ids=ascii)
def test_files_and_folders_may_have_any_name(name, tmp_path):
    # "[" and "/x]" together are a tag that closes nothing.
    file = tmp_path / name / "x].beton"
    file.parent.mkdir()
    write_named(file)
    out = tmp_path / name / "x]out"
    for command in COMMANDS:
        done = run(*(word.format(file=file, out=out) for word in command))
        assert (done.exit_code, UNSAFE.search(done.stdout + done.stderr)) == (0, None), command
        shutil.rmtree(out, ignore_errors=True)
        out.unlink(missing_ok=True)


def test_a_copy_of_a_file_whose_name_is_not_utf_8_names_it(tmp_path):
    file = write_named(tmp_path / os.fsdecode(b"\xff.beton"))
    assert run("split", file, f"{tmp_path / 'half'}=0.5").exit_code == 0
    assert read_notes(tmp_path / "half").content["copied_from"] == [file.name]


def test_bad_pictures_whose_names_are_not_utf_8_are_left_out_and_listed(tmp_path):
    folder = write_folder(tmp_path / "photos")
    (folder / "cat" / os.fsdecode(b"\xff\x1b[31m.jpg")).write_bytes(b"no")
    done = run("convert", folder, tmp_path / "a.beton", "--on-error", "skip", "--workers", 1)
    assert (done.exit_code, r"\udcff\x1b[31m.jpg" in done.stdout) == (0, True)
    assert Reader(tmp_path / "a.beton").num_samples == 9


@pytest.mark.parametrize("text", list(BAD_JSON.values()), ids=BAD_JSON)
def test_verify_reports_invalid_json_and_continues(text, tmp_path):
    file = write_json(tmp_path / "a.beton", b"[1]", text, b"[2]")
    done = run("verify", file)
    assert done.exit_code == 1
    assert done.stdout.startswith("sample 1, field 'info': ")
    assert "1 bad sample. 3 samples, 3 regions read" in done.stdout


@pytest.mark.parametrize("text", list(BAD_JSON.values()), ids=BAD_JSON)
@pytest.mark.parametrize("given", [[], ["--json"]], ids=["text", "json"])
def test_cat_names_the_place_of_json_that_cannot_be_read_and_writes_its_bytes(given, text, tmp_path):
    file = write_json(tmp_path / "a.beton", b"[1]", text)
    done = run("cat", file, 1, *given)
    assert (done.exit_code, "--debug" in done.stderr) == (1, False)
    shown = done.stderr.replace("\n", " ")
    for fact in (f"{file}: sample 1, field 'info'", f"{len(text) + 1} bytes", "UTF-8", "--only"):
        assert fact in shown
    assert run("cat", file, 1, "--only", "info").stdout_bytes == text


@pytest.mark.parametrize("text", list(BAD_JSON.values()), ids=BAD_JSON)
def test_extract_names_json_that_cannot_be_read_and_writes_the_rest(text, tmp_path):
    file = write_json(tmp_path / "a.beton", b"[1]", text, b"[2]")
    done = run("extract", file, tmp_path / "out")
    assert (done.exit_code, done.stdout.count("sample 1, field 'info'")) == (1, 1)
    with (tmp_path / "out" / "samples.csv").open() as table:
        assert [row["info"] for row in csv.DictReader(table)] == ["[1]", "", "[2]"]


@pytest.mark.parametrize(
    "command",
    [["info", "{file}"], ["split", "{file}", "{out}=rest"], ["merge", "{file}", "-o", "{out}"]],
    ids=lambda command: command[0],
)
def test_commands_that_only_copy_or_count_do_not_read_json(command, tmp_path):
    file = write_json(tmp_path / "a.beton", *BAD_JSON.values())
    assert run(*(word.format(file=file, out=tmp_path / "out") for word in command)).exit_code == 0


def test_json_of_many_levels_is_sound_and_cat_names_how_many(tmp_path):
    text = b"[" * 400 + b"]" * 400
    file = write_json(tmp_path / "a.beton", text)
    assert run("verify", file).exit_code == 0
    assert "400 levels" in run("cat", file, 0).stdout
    assert json.loads(run("cat", file, 0, "--json").stdout)["values"] == {"info": {"levels": 400}}
    assert run("extract", file, tmp_path / "out").exit_code == 0


def test_half_a_surrogate_pair_in_json_is_shown_and_extracted_as_its_escape(tmp_path):
    file = write_json(tmp_path / "a.beton", rb'["\ud800"]')
    assert run("cat", file, 0).stdout == "info: ['\\ud800']\n"
    assert json.loads(run("cat", file, 0, "--json").stdout)["values"]["info"] == ["\ud800"]
    assert run("extract", file, tmp_path / "out").exit_code == 0
    with (tmp_path / "out" / "samples.csv").open() as table:
        assert [json.loads(row["info"]) for row in csv.DictReader(table)] == [["\ud800"]]


@pytest.mark.parametrize("levels", [150, 400])
def test_notes_of_too_many_levels_are_damaged_and_the_samples_are_not(levels, tmp_path):
    nested: object = 0
    for _ in range(levels):
        nested = [nested]
    file = tmp_path / "a.beton"
    writer = DatasetWriter(file, {"label": IntField()}, 1 << 21, 1, progress=False, notes={"nested": nested})
    writer.from_indexed_dataset([(np.int64(3),)])
    for command in (["info", file], ["verify", file], ["merge", file, "-o", tmp_path / "b"]):
        done = run(*command)
        assert f"{levels + 1} levels" in (done.stdout + done.stderr).replace("\n", " ")
        assert (done.exit_code, "--debug" in done.stderr) == (0 if command[0] == "info" else 1, False)
    assert "nested" in json.loads(run("info", file, "--json").stdout)["notes"]["damaged"]
    assert "label: 3" in run("cat", file, 0).stdout


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        (["subset", "{file}", "{out}", "--indices", str(10**20)], str(10**20)),
        (["extract", "{file}", "{out}", "--indices", str(10**20)], str(10**20)),
        (["subset", "{file}", "{out}", "--indices", "@{text}"], "{text}"),
        (["merge", "{file}", "-o", "{out}", "--classes", "{text}"], "{text}"),
        (["convert", "{file}", "{out}", "--classes", "{text}"], "{text}"),
        (["split", "{file}", "{out}=nan%"], "nan"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_arguments_that_cannot_be_are_named(command, fact, named, tmp_path):
    (tmp_path / "text").write_bytes(b"\xff\xfe\0")
    words = {"file": named, "out": tmp_path / "out", "text": tmp_path / "text"}
    done = run(*(word.format(**words) for word in command))
    assert (done.exit_code, fact.format(**words) in done.stderr) == (2, True)
