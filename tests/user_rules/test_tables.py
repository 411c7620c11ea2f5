"""The tables hold every record of the streams, in the columns that the guide names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from rule_makers import GUIDE, START_US, files_in, tables_of, write_stream

from trainspec_validate.telemetry.formats.source import lines_at
from trainspec_validate.telemetry.user_rules import Tables
from trainspec_validate.telemetry.user_rules.tables import COLUMNS, attribute_columns, location_of

RECORDS: list[dict[str, Any]] = [
    {"step": 1, "m": {"train.loss.mean{train.loss.name=total}": 2.5, "train.gradient.norm": "+Inf"}, "rank": 3},
    {"k": "e", "name": "train.run.start", "id": "x", "a": {"b": [1, 2], "a": "ä"}, "host": "h-1", "severity": 9},
    {"m": {"hw.power": "NaN"}, "device": "d-1", "a": {"train.step.warmup": True}},
    {"m": {"train.data.wait.time": {"count": 4, "sum": 2.0}}},
]


def plain(frame: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in frame.sort("location").collect("pyarrow").to_native().to_pylist()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_stream(tmp_path / "run" / "a.jsonl", RECORDS)
    write_stream(tmp_path / "run" / "b.jsonl", RECORDS[:1], att=1, rank=7)
    return tmp_path


def taken(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], Tables]:
    with tables_of(files_in(folder / "run"), folder / "tables") as tables:
        return plain(tables.samples), plain(tables.events), plain(tables.series), tables


def test_samples_hold_every_value(folder: Path) -> None:
    samples, _, _, tables = taken(folder)
    named = {(row["attempt"], row["series"]): row for row in samples}
    assert len(samples) == len(named) == 6
    loss = named[0, "train.loss.mean{train.loss.name=total}"]
    assert (loss["value"], loss["step"], loss["rank"], loss["train_loss_name"]) == (2.5, 1, 3, "total")
    assert (loss["metric"], loss["attributes"]) == ("train.loss.mean", '{"train.loss.name":"total"}')
    assert (loss["run"], loss["emitter"], loss["seq"], loss["time_us"]) == ("r-1", "job", 0, START_US + 1_000_000)
    assert (loss["host"], loss["device"], loss["train_phase"], loss["warmup"]) == (None, None, None, False)
    assert [named[0, key]["not_finite"] for key in ("train.gradient.norm", "hw.power")] == ["+Inf", "NaN"]
    assert [named[0, key]["value"] for key in ("train.gradient.norm", "hw.power")] == [None, None]
    power = named[0, "hw.power"]
    assert (power["device"], power["step"], power["warmup"], power["num_values"]) == ("d-1", None, True, 1)
    wait = named[0, "train.data.wait.time"]
    assert (wait["value"], wait["num_values"]) == (0.5, 4)
    assert tables.metrics == {"train.loss.mean", "train.gradient.norm", "hw.power", "train.data.wait.time"}


def test_events_hold_their_attributes_as_json(folder: Path) -> None:
    _, (event,), _, tables = taken(folder)
    assert (event["name"], event["id"], event["severity"], event["host"]) == ("train.run.start", "x", 9, "h-1")
    assert (event["attributes"], event["metrics"], event["seq"]) == ('{"a":"ä","b":[1,2]}', "{}", 1)
    assert tables.event_names == {"train.run.start"}


def test_a_place_leads_to_the_line_of_the_record(folder: Path) -> None:
    samples, events, _, _ = taken(folder)
    files = files_in(folder / "run")
    for row in (*samples, *events):
        place = location_of(row["location"])
        assert (files[place.file].name, place.offset) == (row["file"], row["place"])
        ((line, _),) = lines_at(files[place.file].path, [place.offset]).values()
        assert line == row["seq"] + 2


def test_series_sum_up_the_samples(folder: Path) -> None:
    _, _, series, _ = taken(folder)
    assert len(series) == 6
    found = {(row["attempt"], row["series"]): row for row in series}
    loss = found[1, "train.loss.mean{train.loss.name=total}"]
    assert (loss["rank"], loss["num_values"], loss["minimum"], loss["maximum"], loss["mean"]) == (3, 1, 2.5, 2.5, 2.5)
    assert found[0, "hw.power"]["mean"] is None


def test_records_at_no_time_of_the_run_are_left_out(tmp_path: Path) -> None:
    records = [{"m": {"hw.power": 1.0}}, {"m": {"hw.power": 2.0}, "time_us": START_US // 1_000_000}]
    write_stream(tmp_path / "run" / "a.jsonl", records)
    samples, *_ = taken(tmp_path)
    assert [row["value"] for row in samples] == [1.0]


def test_the_columns_are_those_that_are_declared_and_the_guide_names(folder: Path) -> None:
    samples, events, series, _ = taken(folder)
    for name, rows in (("samples", samples), ("events", events), ("series", series)):
        assert rows[0].keys() == COLUMNS[name].keys()
    told = set(re.findall(r"`([a-z_]+)`", GUIDE.read_text(encoding="utf-8").partition("## The tables")[2]))
    wanted = {column for columns in COLUMNS.values() for column in columns} - set(attribute_columns().values())
    assert wanted <= told


def test_a_file_whose_name_is_no_text_is_in_the_tables(tmp_path: Path) -> None:
    name = os.fsdecode(b"job\xff.jsonl")
    try:
        write_stream(tmp_path / "run" / name, RECORDS[:1])
    except OSError:
        pytest.skip("this system holds no such name")
    samples, _, _, _ = taken(tmp_path)
    assert {Path(row["file"]).name for row in samples} == {r"job\udcff.jsonl"}
