"""`trainspec report`: judges a run and writes its page, whatever is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from run_page_makers import head
from run_page_parser import parse

from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, put
from trainspec_validate.cli.toolbox import command
from trainspec_validate.documents.types.stream import encode_record


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, ["report", *map(str, arguments)], prog_name="trainspec")


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_run(Shape(num_nodes=2, devices_per_node=2, num_steps=90, checkpoint_interval_steps=30, faults=True))
    return put({**by_emitter(made.streams), **made.documents}, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def written(streams: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("page") / "report.html"
    result = run(streams, "-o", target)
    assert (result.exit_code, result.stdout) == (0, f"{target.as_posix()}\n"), result.output
    return target.read_text(encoding="utf-8")


def test_a_whole_run_fills_every_chart(written: str) -> None:
    found = parse(written)
    assert next(found.all("title")).text == "Run r-7f3a"
    assert [each.attributes["id"] for each in found.all("figure")] == [
        "chart-train-step-duration",
        "chart-train-token-rate",
        "chart-train-flops-utilization",
        "chart-train-loss-mean",
        "chart-train-gradient-norm",
        "chart-train-gradient-noise-scale",
        "chart-hw-gpu-utilization",
        "chart-train-accelerator-matrix-active",
        "chart-hw-gpu-memory-usage",
        "chart-hw-power",
        "chart-rank-spread",
        "chart-timeline",
        "chart-goodput",
        "chart-train-telemetry-lag",
        "chart-train-clock-offset",
    ]
    assert "not measured" not in found.text
    assert "95 % interval" in found.find("chart-train-gradient-noise-scale").text


def test_the_page_counts_what_the_streams_hold(written: str) -> None:
    found = parse(written)
    told = dict(zip((e.text for e in found.all("dt")), (e.text for e in found.all("dd")), strict=True))
    assert (told["optimizer steps"], told["faults"]) == ("90", "1")
    saves = next(table for table in found.find("recovery").all("table") if table.text.startswith("Saves"))
    steps = [row.children[1].text for row in next(saves.all("tbody")).children]
    assert steps == ["30", "60", "90"]


def test_findings_do_not_keep_the_page_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "job.0.jsonl").write_bytes(
        encode_record(head().record) + b'\n{"k":"m","time_us":12,"seq":0,"m":{"a":1}}\n'
    )
    result = run(tmp_path, "-o", tmp_path / "report.html")
    assert result.exit_code == 0, result.output
    assert "error" in result.stderr
    assert "fails" in next(parse((tmp_path / "report.html").read_text(encoding="utf-8")).all("h1")).text


def test_nothing_is_overwritten_without_force(streams: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("mine", encoding="utf-8")
    result = run(streams, "-o", target)
    assert (result.exit_code, target.read_text(encoding="utf-8")) == (2, "mine")
    assert "--force overwrites" in result.stderr
    assert run(streams, "-o", target, "--force").exit_code == 0
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_a_file_the_page_goes_to_standard_output(streams: Path, written: str) -> None:
    result = run(streams)
    assert (result.exit_code, result.stdout) == (0, written)


def test_several_runs_are_refused_by_name(streams: Path, tmp_path: Path) -> None:
    (tmp_path / "other.0.jsonl").write_bytes(encode_record(head(run="other").record) + b"\n")
    result = run(streams, tmp_path)
    assert result.exit_code == 2
    assert "2 runs: " in result.stderr
    assert "other (" in result.stderr


def test_documents_alone_make_no_page(streams: Path) -> None:
    result = run(streams / "cluster.yaml")
    assert result.exit_code == 2
    assert "no stream of a run" in result.stderr


def test_what_cannot_be_read_is_told_on_the_page_and_by_the_exit_code(streams: Path, tmp_path: Path) -> None:
    result = run(streams, tmp_path / "absent.jsonl", "-o", tmp_path / "report.html")
    assert result.exit_code == 2
    assert "absent.jsonl" in result.stderr
    found = parse((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "1 input could not be read" in next(found.all("header")).text
