from __future__ import annotations

import builtins
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

import gpubeton
from gpubeton import __version__
from gpubeton.cli import main
from gpubeton.cli.app import app
from gpubeton.cli.shared_options import sample_ids
from gpubeton.dataset import SOURCE_KINDS
from gpubeton.errors import OptionError
from gpubeton.format.field_arguments import IMAGE_KINDS
from tests.cli.command import run
from tests.small_files import write_photos


def test_the_version_and_without_a_command_the_help_are_shown():
    assert "doctor" in CliRunner().invoke(app, []).output
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"gpubeton {__version__}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gpubeton ver", {"verify"}),
        ("gpubeton convert a b --on-error ", {"raise", "skip"}),
        ("gpubeton info --js", {"--json"}),
    ],
)
def test_shells_complete_commands_options_and_their_values(words, expected):
    environment = {"_GPUBETON_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = CliRunner().invoke(app, [], prog_name="gpubeton", env=environment)
    assert set(done.stdout.split()) == expected


def test_an_unexpected_error_is_one_paragraph_too_and_an_interrupt_promises_to_resume_only_for_convert(
    monkeypatch, tmp_path
):
    def fail(error):
        def raises(*arguments, **options):
            raise error

        return raises

    monkeypatch.setattr("gpubeton.dataset.summarize", fail(KeyError("odd")))
    done = CliRunner().invoke(app, ["info", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (1, "gpubeton: KeyError: 'odd'. --debug shows the traceback.\n")
    assert isinstance(CliRunner().invoke(app, ["--debug", "info", str(tmp_path)]).exception, KeyError)
    monkeypatch.setattr("gpubeton.dataset.verify", fail(KeyboardInterrupt))
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (130, "gpubeton: interrupted.\n")


def test_arguments_that_the_parser_refuses_end_with_2_and_json_where_that_is_wanted():
    for arguments in (["info"], ["info", "a", "--nonsense"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert (done.exit_code, json.loads(done.stdout)["error"]["message"] in done.stderr) == (2, True)
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2


def test_a_missing_package_is_named_with_the_extra_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments, **options):
        if name == "typer":
            raise ModuleNotFoundError("No module named 'typer'", name="typer")
        return real(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "gpubeton.cli.app")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SystemExit, match=r"typer.*pip install .*\[cli\]"):
        main()


def test_paragraphs_of_help_flow_and_show_the_choices_of_the_library():
    done = CliRunner().invoke(app, ["convert", "--help"], env={"COLUMNS": "80"})
    assert any(line.strip().startswith("byte for byte. It also stores") for line in done.stdout.splitlines())
    options = {param.name: param.help for param in typer.main.get_command(app).commands["convert"].params}
    for name, values in {"kind": SOURCE_KINDS, "mode": IMAGE_KINDS, "on_error": ("raise", "skip")}.items():
        assert set(values) <= set(re.findall(r"\w+", options[name]))


def test_the_help_tells_what_no_workers_are():
    commands = typer.main.get_command(app).commands.values()
    helps = [param.help for command in commands for param in command.params if "--workers" in param.opts]
    assert len(helps) >= 6
    assert {"default or 0: one per core" in text for text in helps} == {True}


def test_a_file_that_is_not_there_or_a_folder_in_its_place_is_named_with_what_loads_it(tmp_path):
    done = CliRunner().invoke(app, ["info", "nowhere.beton", "--json"])
    assert (done.exit_code, done.stderr) == (2, "gpubeton: nowhere.beton: no such file or directory\n")
    assert json.loads(done.stdout)["error"]["message"] == "nowhere.beton: no such file or directory"
    assert "gpubeton index" in CliRunner().invoke(app, ["info", str(tmp_path)]).stderr


@pytest.mark.parametrize(
    "command",
    [
        "info X", "verify X", "index X", "bench X", "doctor X", "view X a.png", "cat X 0", "extract X files",
        "split X a.beton=0.5", "subset X a.beton", "merge X -o a.beton", "convert X a.beton",
        "fetch X --cache-dir files",
    ],
)  # fmt: skip
def test_every_command_ends_alike_without_its_file_and_with_a_folder_in_its_place(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("nowhere.beton", "folder.beton"):
        done = CliRunner().invoke(app, command.replace("X", place).split())
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"gpubeton: {place}: no such file or directory") == (place == "nowhere.beton")
        (tmp_path / "folder.beton").mkdir(exist_ok=True)
    assert not any(map(Path.is_file, tmp_path.iterdir()))


@pytest.mark.parametrize(
    ("options", "beginning"),
    [
        ("--from xyz", "--from is 'xyz'"),
        ("--quality 101", "--quality is 101"),
        ("--write-mode smart", "--write-mode is 'smart', which needs --smart-threshold: bytes"),
        ("--limit 0", "--limit is 0"),
        ("--label y", "--label: not for a source"),
    ],
)
def test_errors_name_options_and_not_arguments_of_the_library(options, beginning, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    done = CliRunner().invoke(app, ["convert", ".", "a.beton", *options.split(), "--json"])
    assert (done.exit_code, done.stderr.startswith(f"gpubeton: {beginning}")) == (2, True), done.stderr
    assert json.loads(done.stdout)["error"]["message"].startswith(beginning)


def test_names_of_files_are_no_arguments_of_the_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page_size").mkdir()
    done = CliRunner().invoke(app, ["convert", "./page_size", "limit.beton"])
    assert "page_size: no images" in " ".join(done.stderr.split())  # lines are wrapped


@pytest.mark.parametrize("command", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_help_has_examples_and_in_80_columns_each_name_and_word_whole(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    assert f"gpubeton {command}" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "<bool>" not in shown
    words = shown.replace("│", " ").split()
    params = typer.main.get_command(app).commands[command].params
    names = [name for param in params for name in [*param.opts, *param.secondary_opts] if name.startswith("-")]
    expected = [*names, *(word for param in params for word in (param.help or "").split())]
    assert [word for word in expected if word not in words] == []


def test_a_warning_of_the_library_is_a_paragraph_that_names_options(monkeypatch, tmp_path):
    text, shown, usual = "little fits in this cache_dir: Set cache_limit, or", [], warnings.formatwarning

    def open_file(*_, **__):
        shown.extend(warnings.formatwarning(text, UserWarning, place, 7) for place in (gpubeton.__file__, "train.py"))
        raise OSError

    monkeypatch.setattr("gpubeton.reader.Reader", open_file)
    run("fetch", "s3://bucket/a.beton", "--cache-dir", tmp_path, code=1)
    expected = "gpubeton: warning: little fits in this --cache-dir: Set --cache-limit, or\n"
    assert shown == [expected, usual(text, UserWarning, "train.py", 7)]
    assert warnings.formatwarning is usual


def run_as_module(*arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), **variables}
    command = [sys.executable, "-m", "gpubeton", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=False)


def test_the_package_runs_as_the_command_where_the_terminal_knows_ascii_only(tmp_path):
    write_photos(tmp_path / "photos.beton", 3)
    done = run_as_module("info", str(tmp_path / "photos.beton"), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"height ? width" in done.stdout


def test_a_slice_without_samples_is_refused():
    assert sample_ids("0:2,4:", 5) == [0, 1, 4]
    with pytest.raises(OptionError, match="5:2 has no samples"):
        sample_ids("0,5:2", 9)
