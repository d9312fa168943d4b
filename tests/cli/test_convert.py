from __future__ import annotations

import errno
import json
import os
import tempfile
from functools import partial

import numpy as np
import pytest
from PIL import Image

from gpubeton.reader import Reader
from tests.cli import command
from tests.picture_folders import write_folder, write_picture

run = partial(command.run, "convert", "--workers", "1")


def test_a_folder_is_converted_the_result_is_json_alone_on_stdout_and_missing_labels_are_printed(tmp_path):
    write_folder(tmp_path / "photos")
    done = run(tmp_path / "photos", tmp_path / "a.beton", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["samples"], result["class_names"], result["skipped"]) == (9, ["cat", "dog", "eel"], [])
    assert result["bytes"] == (tmp_path / "a.beton").stat().st_size
    assert "stored without labels" not in run(tmp_path / "photos", tmp_path / "b.beton").stdout
    write_picture(tmp_path / "flat" / "a.jpg", 1)
    assert "stored without labels" in run(tmp_path / "flat", tmp_path / "c.beton").stdout


def test_options_reach_the_file(tmp_path):
    write_folder(tmp_path / "photos")
    options = "--write-mode raw --max-resolution 16 --quality 80 --page-size 2097152 --shuffle --seed 4 --limit 5"
    assert run(tmp_path / "photos", tmp_path / "a.beton", *options.split(), "--no-check").exit_code == 0
    reader = Reader(tmp_path / "a.beton")
    assert (reader.num_samples, reader.page_size) == (5, 1 << 21)
    settings = reader.notes["settings"]
    assert settings["shuffle"] is True
    assert (settings["write_mode"], settings["max_resolution"], settings["quality"]) == ("raw", 16, 80)
    assert (settings["seed"], settings["limit"], settings["check"]) == (4, 5, False)


def test_a_mode_reaches_the_file_and_a_loss_is_reported_once_with_the_mode_that_avoids_it(tmp_path):
    for number in range(3):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGBA", (6, 5), (number, 2, 3, 4)).save(tmp_path / "photos" / f"{number}.png")
    done = run(tmp_path / "photos", tmp_path / "a.beton", "--mode", "gray", "--interpolation", "nearest")
    lost = [(line[:8], line.partition("--mode ")[2].split()[0]) for line in done.stdout.splitlines()[:2]]
    assert lost == [("3 images", "rgba"), ("3 images", "rgb")]
    settings = Reader(tmp_path / "a.beton").notes["settings"]
    assert (settings["mode"], settings["write_mode"], settings["interpolation"]) == ("gray", "png", "nearest")
    report = json.loads(run(tmp_path / "photos", tmp_path / "b.beton", "--mode", "rgba", "--json").stdout)
    assert report["changed"] == {}
    assert Reader(tmp_path / "b.beton").handlers["image"].kind.name == "rgba"


def test_a_reason_that_many_images_have_is_printed_once(tmp_path):
    write_folder(tmp_path / "photos")
    for number in range(7):
        Image.new("I;16", (6, 5), 300).save(tmp_path / "photos" / "cat" / f"x{number}.png")
    (tmp_path / "photos" / "dog" / "bad.jpg").write_bytes(b"x")
    done = run(tmp_path / "photos", tmp_path / "a.beton", "--on-error", "skip")
    report = [
        line for line in " ".join(done.stdout.split()).split("left out: ") if "gray16" in line or "bad.jpg" in line
    ]
    assert len(report) == 2
    assert "x0.png and 6 more" in report[0]
    assert "--mode gray16" in report[0]


def test_a_table_is_converted_with_names_of_classes_from_a_file(tmp_path):
    write_picture(tmp_path / "x.jpg", 1)
    (tmp_path / "t.csv").write_text("where,what\nx.jpg,1\nx.jpg,0\n")
    (tmp_path / "names.txt").write_text("owl\ncat\n")
    options = ("--from", "table", "--image", "where", "--label", "what", "--classes", tmp_path / "names.txt")
    assert run(tmp_path / "t.csv", tmp_path / "a.beton", *options).exit_code == 0
    assert Reader(tmp_path / "a.beton").class_names == ("owl", "cat")


def test_a_bad_image_ends_it_with_a_paragraph_and_1_unless_it_is_left_out_and_listed(tmp_path):
    write_folder(tmp_path / "photos")
    for name, content in (("cat/bad.jpg", b"x"), ("cat/moving.gif", b""), ("README", b"")):
        (tmp_path / "photos" / name).write_bytes(content)
    done = run(tmp_path / "photos", tmp_path / "a.beton")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "bad.jpg" in done.stderr.replace("\n", "")
    assert "--on-error skip" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    done = run(tmp_path / "photos", tmp_path / "a.beton", "--on-error", "skip", code=0)
    for part in ("bad.jpg", "1 left out", ": 1 without an extension, 1 .gif"):
        assert part in done.stdout
    report = json.loads(run(tmp_path / "photos", tmp_path / "b.beton", "--on-error", "skip", "--json").stdout)
    assert (report["passed_over"], report["began_anew"]) == ({"": 1, ".gif": 1}, False)


@pytest.mark.parametrize(
    "options",
    [
        "--on-error ask",
        "--write-mode png",
        "--split train",
        "--from zip",
        "--limit 0",
        "--page-size 5",
        "--seed -1",
        "--mode grey",
        "--mode rgba --write-mode jpg",
        "--interpolation nearest",
    ],
)
def test_arguments_that_cannot_be_end_with_2(options, tmp_path):
    write_folder(tmp_path / "photos")
    assert run(tmp_path / "photos", tmp_path / "a.beton", *options.split()).exit_code == 2


def test_an_interrupt_ends_with_130_and_a_message_that_nothing_is_lost(tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    write_folder(tmp_path / "photos")
    monkeypatch.setattr("gpubeton.dataset.convert", interrupt)
    done = run(tmp_path / "photos", tmp_path / "a.beton")
    assert done.exit_code == 130
    assert "same command again" in done.stderr


@pytest.mark.parametrize("name", ["out.txt", "out", "out.beton.tar"])
def test_an_output_file_with_another_ending_is_refused_before_the_work(tmp_path, name):
    write_folder(tmp_path / "photos")
    done = run(tmp_path / "photos", tmp_path / name)
    assert (done.exit_code, "expected a name that ends in .beton" in " ".join(done.stderr.split())) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_a_folder_as_the_output_file_is_refused_before_the_work(tmp_path):
    write_folder(tmp_path / "photos")
    out = tmp_path / "out"
    out.mkdir()
    done = run(tmp_path / "photos", out)
    assert (done.exit_code, "is a folder; expected the name of a file" in " ".join(done.stderr.split())) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "photos"]


def test_a_changed_source_starts_from_the_beginning_and_one_line_reports_it(tmp_path):
    photos, out = write_folder(tmp_path / "photos", 80), tmp_path / "a.beton"
    bad = max((photos / "eel").iterdir())
    content = bad.read_bytes()
    bad.write_bytes(b"no image")
    assert run(photos, out, "--workers", "1").exit_code == 1
    bad.write_bytes(content)
    (photos / "cat" / "more.jpg").write_bytes(content)
    done = run(photos, out, "--workers", "1")
    assert done.exit_code == 0
    assert "the source has changed since" in " ".join(done.stdout.split())
    assert "done before" not in done.stdout


def test_shards_are_made_at_once_or_each_by_a_command_and_the_last_one_finishes(tmp_path):
    write_folder(tmp_path / "photos")
    (tmp_path / "photos" / "README").touch()
    done = run(tmp_path / "photos", tmp_path / "all", "--shards", "3", "--shuffle", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["shards"], result["samples"], result["class_names"]) == (3, 9, ["cat", "dog", "eel"])
    assert (result["passed_over"], result["skipped"]) == ({"": 1}, [])
    for number in ("2", "0"):
        shard = run(tmp_path / "photos", tmp_path / "each", "--shards", "3", "--shuffle", "--shard", number)
        assert shard.exit_code == 0
        assert f"0000{number}.beton: made" in shard.stdout
    assert not (tmp_path / "each" / "index.json").exists()
    last = run(tmp_path / "photos", tmp_path / "each", "--shards", "3", "--shuffle", "--shard", "1")
    assert "9 samples of 3 classes in 3 files" in " ".join(last.stdout.split())
    names = {path.name for path in (tmp_path / "all").iterdir()}
    assert names == {path.name for path in (tmp_path / "each").iterdir()}
    for name in names - {"index.json"}:  # it has the times of the files
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "each" / name).read_bytes()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_folder_for_temporary_files_the_error_names_the_variable_to_set(workers, tmp_path, monkeypatch):
    write_folder(tmp_path / "photos")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such"])
    done = run(tmp_path / "photos", tmp_path / "out", "--shards", "2", "--workers", workers)
    assert done.exit_code in (1, 2)
    for word in ("/no/such", "TMPDIR", "mount"):
        assert word in done.stderr


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOENT, errno.EACCES])
def test_without_a_place_for_locks_the_error_names_the_mount(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    write_folder(tmp_path / "photos")
    monkeypatch.setattr("multiprocessing.synchronize._multiprocessing.SemLock", refuse)
    done = run(tmp_path / "photos", tmp_path / "out", "--shards", "2", "--workers", "2")
    assert done.exit_code in (1, 2)
    for word in ("/dev/shm", "mount a tmpfs", "--workers 1"):
        assert word in " ".join(done.stderr.split())
    assert run(tmp_path / "photos", tmp_path / "out", "--shards", "2", "--workers", "1").exit_code == 0


def test_shards_are_shared_among_tasks(tmp_path):
    write_folder(tmp_path / "photos")
    idle = run(tmp_path / "photos", tmp_path / "out", "--shards", "5", "--shard", "5/6", "--json")
    assert {**json.loads(idle.stdout), "target": 0} == {
        "target": 0, "shard": None, "shards": [], "made": False, "missing": [0, 1, 2, 3, 4]
    }  # fmt: skip
    for task, numbers in ((2, [2]), (0, [0, 3]), (1, [1, 4])):
        arguments = (tmp_path / "photos", tmp_path / "out", "--shards", "5", "--shard", f"{task}/3")
        first = run(*arguments, "--json")
        assert first.exit_code == 0, first.stderr
        result = json.loads(first.stdout)
        if task == 1:
            assert (result["samples"], result["skipped"]) == (9, [])
        else:
            assert (result["shard"], result["shards"], result["made"]) == (task, numbers, True)
            again = run(*arguments)
            assert again.stdout.count("it was there") == len(numbers)
            assert f"{len(result['missing'])} of 5 shards are missing" in " ".join(again.stdout.split())


@pytest.mark.parametrize("wrong", ["5", "3/3", "1/", "/2", "a", "-1", "1/0", "1/2/3", ""])
def test_a_share_of_the_shards_that_is_none_is_an_error(wrong, tmp_path):
    write_folder(tmp_path / "photos")
    done = run(tmp_path / "photos", tmp_path / "out", "--shards", "5", f"--shard={wrong}")
    assert (done.exit_code, "--shard" in done.stderr) == (2, True)


def test_a_task_of_a_finished_dataset_does_not_finish_it_again(tmp_path, monkeypatch):
    arguments = (write_folder(tmp_path / "photos"), tmp_path / "out", "--shards", "2", "--json")
    assert run(*arguments).exit_code == 0
    monkeypatch.setattr("gpubeton.dataset.shards.finish", None)
    state = json.loads(run(*arguments, "--shard", "1").stdout)
    assert (state["shards"], state["made"], state["missing"]) == ([1], False, [])
    monkeypatch.undo()
    (tmp_path / "out" / "index.json").unlink()  # the process that made the last shard was killed
    assert json.loads(run(*arguments, "--shard", "1").stdout)["samples"] == 9


@pytest.mark.parametrize("side", [3, 830])
def test_nearly_empty_shards_are_named_with_advice(side, tmp_path):
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / "cat" / f"{number}.png")
    arguments = ("--shards", "1", "--page-size", 1 << 21, "--write-mode", "raw")
    done = run(tmp_path / "photos", tmp_path / "out", *arguments)
    assert done.exit_code == 0, done.output
    printed = " ".join(done.stdout.split())
    assert ("--page-size" in printed) == ("page use: 0%" in printed) == (side == 3)
    result = json.loads(run(tmp_path / "photos", tmp_path / "out", *arguments, "--json").stdout)
    assert result["value_bytes"] == 12 * side * side * 3


def test_options_of_shards_need_shards(tmp_path):
    write_folder(tmp_path / "photos")
    for wrong in (
        ("--shard", "0"),
        ("--on", "ray"),
        ("--shards", "2", "--fresh"),
        ("--shards", "2", "--on", "mars"),
        ("--shards", "2", "--shard", "0", "--on", "ray"),
    ):
        assert run(tmp_path / "photos", tmp_path / "out", *wrong).exit_code == 2
    assert run(tmp_path / "photos", "s3://bucket/a.beton").exit_code == 2
    assert run("s3://bucket/a.rar", tmp_path / "a.beton").exit_code == 2


def test_losses_of_images_are_printed_for_shards_as_for_one_file(tmp_path):
    folder = write_folder(tmp_path / "photos")
    for name in ("cat/one.png", "eel/two.png"):
        Image.new("RGBA", (8, 8)).save(folder / name)
    lines = [
        {line for line in run(folder, tmp_path / name, *options).output.splitlines() if "transparency" in line}
        for name, options in [("one.beton", ()), ("shards", ("--shards", "3"))]
    ]
    assert lines[0] == lines[1] == {"2 images had transparency, which was dropped; --mode rgba keeps it"}
