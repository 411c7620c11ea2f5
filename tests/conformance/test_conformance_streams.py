"""Values of streams come into the history with their places, whatever a stack has written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from trainspec_conformance import streams, told
from trainspec_conformance.records import Entry
from trainspec_conformance.streams import read_streams
from trainspec_conformance.view import View

HEAD = {
    "k": "head",
    "apiVersion": "trainspec/v1",
    "kind": "MetricStream",
    "run": "r",
    "att": 2,
    "emitter": "rank-1",
    "time_us": 1767225600000000,
    "scopes": ["rank"],
    "rank": 1,
    "unsupported": {"train.token.rate": "no tokens"},
}


def _sample(number: int, value: object) -> dict[str, object]:
    return {
        "k": "m",
        "time_us": 1767225600000000 + number,
        "seq": number,
        "step": number,
        "m": {"train.step.duration": value},
    }


def _lines(*records: object) -> str:
    return "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records)


def _view(directory: Path) -> View:
    return View(
        [Entry(seconds=0, record=one, file=path.name, line=line) for path, line, one in read_streams(directory)]
    )


def test_values_have_rank_attempt_and_place(tmp_path: Path) -> None:
    (tmp_path / "rank.jsonl").write_text(_lines(HEAD, _sample(0, 0.5), "no record", _sample(1, "NaN")))
    found = told.of_ranks(_view(tmp_path), "train.step.duration")
    assert found[1][2, 0].value == 0.5
    assert (found[1][2, 0].entry.file, found[1][2, 1].entry.line) == ("rank.jsonl", 4)
    assert found[1][2, 1].value != found[1][2, 1].value
    assert told.unsupported(_view(tmp_path)) == {"train.token.rate"}


def test_compressed_streams_are_read_and_damaged_ones_end(tmp_path: Path) -> None:
    whole = gzip.compress(_lines(HEAD, _sample(0, 0.5)).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(whole)
    (tmp_path / "b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert len(list(told.points(_view(tmp_path), "train.step.duration"))) == 1


def test_no_more_is_read_than_a_history_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_RECORDS", 3)
    (tmp_path / "rank.jsonl").write_text(_lines(HEAD, *(_sample(number, 0.5) for number in range(9))))
    assert len(list(read_streams(tmp_path))) == 3


def test_a_histogram_counts_by_its_sum(tmp_path: Path) -> None:
    (tmp_path / "rank.jsonl").write_text(_lines(HEAD, _sample(0, {"count": 2, "sum": 3.0})))
    (point,) = told.points(_view(tmp_path), "train.step.duration")
    assert point.value == 3.0
