"""The reports of ``gpubeton doctor --html`` and ``gpubeton bench --html``."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gpubeton.cli.advice import advise
from gpubeton.cli.loops import LoaderRun, Rate, limit_text
from gpubeton.cli.report import write_bench_report, write_doctor_report
from tests.cli.test_advice import STATS, changed
from tests.cli.test_doctor import QUICK, run
from tests.small_files import write_photos

HOSTILE = "<img src=x onerror=alert(1)>&amp;\"'\x1b\u202e.beton"
MEASURED = changed(facts={"files": (HOSTILE,)}, machine={"cores": 8}, place={"path": HOSTILE, "resident_share": 0.5})
RATES = [
    Rate("read, disk", 1000.4, None, 1e9, "1 MiB blocks in random order, 4 threads, O_DIRECT"),
    Rate("decode and resize", 400.0, 200.0),
    Rate("end to end, CPU", 390.0, 190.0, run=LoaderRun(390.0, 190.0, STATS)),
    Rate("end to end, GPU", note="torch sees no GPU"),
]


class Parsed(HTMLParser):
    """Tags and text of a page; fails where a tag is closed that is not open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.open = "", []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in {"meta", "link", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data

    def attributes(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


@pytest.fixture
def doctor_page(tmp_path):
    write_doctor_report(tmp_path / "report.html", [(MEASURED, advise(MEASURED))])
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_report_has_the_findings_of_the_terminal(doctor_page):
    text = Parsed(doctor_page).text
    for finding in advise(MEASURED):
        for part in (finding.text, finding.change, finding.gain_text):
            assert part.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") in text
    assert "waited for decoding and augmenting" in text


def test_the_report_loads_nothing_and_runs_nothing_and_names_of_files_are_text(doctor_page):
    page = Parsed(doctor_page)
    assert not {tag for tag, _ in page.tags} & {"script", "iframe", "object", "img", "base", "form"}
    assert page.attributes("src") == []
    assert all(target.startswith(("#", "data:")) for target in page.attributes("href"))
    assert not re.search(r"url\(|@import|//[a-z]", doctor_page)
    assert "default-src 'none'" in doctor_page
    assert not {"\x1b", "\u202e"} & set(doctor_page)
    assert page.text.count(HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")) >= 3


def test_every_figure_and_table_has_a_name(doctor_page):
    page = Parsed(doctor_page)
    assert page.attributes("lang") == ["en"]
    figures = [attributes for _, attributes in page.tags if attributes.get("class") == "plot"]
    assert len(figures) >= 3
    assert all(figure["role"] == "img" and len(figure["aria-label"]) > 10 for figure in figures)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    tables = [tag for tag, _ in page.tags if tag in {"table", "caption", "thead"}]
    assert tables == ["table", "caption", "thead"] * (len(tables) // 3)
    assert all(attributes.get("scope") in {"col", "row"} for tag, attributes in page.tags if tag == "th")
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in page.attributes("href") if target.startswith("#")} <= set(ids)


def test_several_loaders_get_a_report_each_and_without_one_or_a_batch_there_is_a_page_too(tmp_path):
    other = replace(MEASURED, facts=replace(MEASURED.facts, files=("val.beton",)))
    write_doctor_report(tmp_path / "two.html", [(each, advise(each)) for each in (MEASURED, other)])
    text = Parsed((tmp_path / "two.html").read_text()).text
    assert "2 loaders" in text
    assert "Where the time goes: val.beton" in text
    write_doctor_report(tmp_path / "none.html", [])
    assert "No statistics" in Parsed((tmp_path / "none.html").read_text()).text
    empty = changed(dict.fromkeys(("batches", "images", "seconds", "num_workers", "worker_seconds"), 0))
    write_doctor_report(tmp_path / "empty.html", [(empty, advise(empty))])
    assert "No batch was received" in Parsed((tmp_path / "empty.html").read_text()).text


def test_bench_shows_its_rates_and_the_slowest_part(tmp_path):
    write_bench_report(tmp_path / "bench.html", HOSTILE, RATES)
    text = Parsed((tmp_path / "bench.html").read_text(encoding="utf-8")).text
    assert limit_text(RATES) in text
    assert "'decode and resize': 400 images/s; end to end: 390 images/s" in text
    for rate in RATES:
        assert all(cell in text for cell in (rate.name, *rate.cells, rate.note))
    assert "Time per image of each part" in text
    assert "1,000 µs per image" in text


def test_the_commands_write_reports_besides_their_output(tmp_path):
    photos = str(write_photos(tmp_path / "photos.beton", 8))
    before = (tmp_path / "photos.beton").read_bytes()
    for refused in (photos, str(tmp_path / "none" / "report.html")):
        assert run("doctor", photos, "--html", refused).exit_code == 2
    assert (tmp_path / "photos.beton").read_bytes() == before
    done = run("bench", photos, *QUICK, "--no-gpu", "--html", str(tmp_path / "bench.html"))
    assert done.exit_code == 0
    assert "The slowest part is" in done.stdout
    assert "The slowest part is" in Parsed((tmp_path / "bench.html").read_text()).text
    done = run("doctor", photos, *QUICK, "--step-ms", "1", "--json", "--html", str(tmp_path / "doctor.html"))
    assert done.stdout.startswith("{")
    page = Parsed((tmp_path / "doctor.html").read_text())
    assert "Where the time goes" in page.text
    assert photos in page.text


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path)
    done = run("bench", "none.beton", "--html", str(tmp_path / "bench.html"))
    text = " ".join(done.stderr.replace("│", " ").split())  # lines break where the path ends
    assert (done.exit_code, "cannot be written" in text) == (2, True)
