"""A record that is cut at the end of a stream is named wherever the answer on the stream is given."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate import validate
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command
from trainspec_validate.report import FORMATS

HEAD = {
    "k": "head",
    "apiVersion": "trainspec/v1",
    "kind": "MetricStream",
    "run": "r-1",
    "att": 0,
    "emitter": "job",
    "time_us": 1_772_000_000_000_000,
    "scopes": ["job"],
    "world_size": 8,
}


def record(step: int, value: float = 5.0) -> str:
    time_us = 1_772_000_000_000_000 + step * 5_000_000
    return json.dumps({"k": "m", "time_us": time_us, "seq": step, "step": step, "m": {"train.step.duration": value}})


TWO_LINES = f"{json.dumps(HEAD)}\n{record(0)}\n"
CUTS = [record(1)[:-9], '{"k": "m", "time_us": "no', "\0\0\0\0", '{"k": "unknown"}']


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def put(cut: str, name: str = "run.jsonl") -> str:
    Path(name).write_text(TWO_LINES + cut, encoding="utf-8")
    return f"line 3 (byte {len(TWO_LINES):,})"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_it(name: str, cut: str) -> None:
    place = put(cut)
    assert f"ends within its last record, at {place}" in invoke("run.jsonl", "--format", name).stdout


def test_it_is_part_of_the_coverage_and_of_what_was_not_judged() -> None:
    place = put(CUTS[0])
    report = validate(["run.jsonl"])
    [cut] = report.coverage[0].cut_records
    assert (cut.path, cut.place, cut.num_bytes) == ("run.jsonl", place, len(CUTS[0]))
    [entry] = [entry for entry in report.unjudged if entry.span]
    assert (entry.path, entry.requirements) == ("run.jsonl", ())
    assert entry.span is not None
    assert (entry.span.line, entry.span.end_column) == (3, len(CUTS[0]) + 1)
    assert f"not judged: the last record of run.jsonl, cut at {place}" in invoke("run.jsonl", "--format", "full").stdout


def test_it_counts_for_the_exit_code_on_request_and_is_no_silence_of_quiet() -> None:
    put(CUTS[0])
    assert "ends within its last record" in invoke("run.jsonl", "--fail-on", "never", "--quiet").stdout
    selected = ("--select", "TS-TEL-001", "--fail-on", "error,unjudged")
    assert invoke("run.jsonl", *selected).exit_code == 1
    put("")
    assert invoke("run.jsonl", *selected).exit_code == 0


def test_the_page_of_a_run_names_it() -> None:
    place = put(CUTS[0])
    page = CliRunner().invoke(toolbox, ["report", "run.jsonl"]).stdout
    assert "The last record of 1 file is cut and was not judged:" in page
    assert f"run.jsonl: cut at {place}" in page


@pytest.mark.parametrize("names", [("run.jsonl", "other.jsonl"), ("run.jsonl.gz",)])
def test_each_file_of_a_run_is_named(names: tuple[str, ...]) -> None:
    place = put(CUTS[0])
    for name in names:
        content = Path("run.jsonl").read_bytes()
        Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    cut = [entry for coverage in validate(names).coverage for entry in coverage.cut_records]
    assert sorted((entry.path, entry.place) for entry in cut) == sorted((name, place) for name in names)


def test_a_whole_record_without_a_line_end_is_judged() -> None:
    put(record(1, -5.0))
    report = validate(["run.jsonl"])
    assert report.coverage[0].cut_records == ()
    assert report.coverage[0].num_records == 2


@pytest.mark.parametrize("cut", ["", *CUTS])
def test_a_cut_record_does_not_stand_for_the_end_of_a_run(cut: str) -> None:
    start = {"k": "e", "time_us": 1_772_000_000_000_000, "seq": 0, "name": "train.run.start", "id": "r-1"}
    Path("run.jsonl").write_text(f"{json.dumps(HEAD)}\n{json.dumps(start)}\n{cut}", encoding="utf-8")
    found = [one.message for one in validate(["run.jsonl"]).findings if one.requirement == "TS-TEL-043"]
    assert len(found) == 1
    assert "never ends" in found[0]
