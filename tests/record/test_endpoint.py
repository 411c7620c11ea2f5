"""The endpoint for Prometheus: what is served of which writer, and that it reads back as it was recorded."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainspec_record
from tests.integrations.promql_words import promtool
from tests.streams.reading import read_text
from trainspec_record import claim
from trainspec_record.catalog.prometheus import EXPOSED
from trainspec_record.endpoint import live as live_module
from trainspec_record.endpoint.exposition import Exposition, Histogram, Subject, together, value_of
from trainspec_record.endpoint.live import SILENT_SECONDS, Live
from trainspec_record.identity import Identity, identity
from trainspec_validate.documents.types.stream import StreamRecord
from trainspec_validate.model.metrics import metrics
from trainspec_validate.model.metrics.prometheus import prometheus_names
from trainspec_validate.telemetry.formats.prometheus.points import Point, parse
from trainspec_validate.telemetry.formats.prometheus.write import Snapshot

from .recorded import finish, start

LOOP = """
    import os, sys, time, trainspec_record
    run = trainspec_record.run()
    for number in range(10**6):
        with run.step(number):
            time.sleep(0.002)
            run.log(loss=2.5, tokens=64, samples=2, learning_rate=1e-3, gradient_norm=1.0)
"""


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def who(folder: Path, **more: Any) -> Identity:
    found = identity({"TRAINSPEC_RUN": str(folder), "TRAINSPEC_HOST": "node-1"})
    assert found is not None
    return found._replace(**more)


def points(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], Any]:
    """Values of a page by series; a series that is there twice is a mistake."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], Any] = {}
    for line in page.decode().splitlines():
        point = parse(line)
        if isinstance(point, Point):
            series = (point.name, frozenset(point.labels.items()))
            assert series not in found, line
            assert point.time_us is None
            found[series] = point.value
        else:
            assert line.startswith(("# HELP ", "# TYPE ")), line
    return found


def of_metric(page: bytes, name: str) -> list[tuple[dict[str, str], Any]]:
    return [(dict(labels), value) for (found, labels), value in points(page).items() if found == name]


def ranks_on(page: bytes) -> set[str]:
    return {labels["train_rank_id"] for labels, _ in of_metric(page, "train_rank_step")}


class Writer:
    """A stream that is written by hand, and claimed like one of the recorder."""

    def __init__(self, folder: Path, emitter: str, attempt: int = 0, *, is_held: bool = True, **head: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{emitter}.{attempt}.jsonl"
        self._file = self.path.open("ab", buffering=0)
        if is_held:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self.write({"k": "head", "run": "r-1", "att": attempt, "emitter": emitter, "scopes": ["rank"], **head})

    def write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record).encode() + b"\n")

    def sample(self, **more: Any) -> None:
        self.write({"k": "m", "time_us": 1, "seq": 0, **more})

    def end(self) -> None:
        self._file.close()


def rank(folder: Path, number: int, attempt: int = 0, **more: Any) -> Writer:
    return Writer(folder, f"rank-{number:06}", attempt, **{"rank": number, "host": "node-1", **more})


# --- names and text -----------------------------------------------------------------------------------------


def test_names_are_those_of_the_exporter() -> None:
    for name, exposed in EXPOSED.items():
        metric = next(each for each in metrics().values() if name in {each.name, each.synonym})
        expected = prometheus_names(metric)
        if metric.instrument != "histogram":
            assert exposed.name in expected, name
        if "histogram" in {metric.instrument, *metric.also} and name == metric.name:
            assert f"{exposed.histogram}_count" in expected, name
    assert set(EXPOSED) >= set(metrics())


def test_the_page_of_a_run_is_what_the_exporter_writes_of_its_files(folder: Path) -> None:
    run = trainspec_record.run(flops_per_token=1.0, peak_flops=1e9)
    for number in range(12):
        with run.step(number), run.phase("data_wait"):
            time.sleep(0.001)
            run.log(loss=2.0 + number, tokens=64, samples=2, learning_rate=1e-3, gradient_norm=float("nan"))
        with run.evaluation("held \\ out") as evaluation:
            evaluation.log(loss=1.5)
        with run.checkpoint(size_bytes=7):
            pass
    run.flush()
    page = Live(who(folder), all_hosts=False).page()
    snapshot = Snapshot()
    for name in ("job.0.jsonl", "rank-000000.0.jsonl"):
        snapshot.take(
            msgspec.json.decode(line, type=StreamRecord) for line in (folder / name).read_bytes().splitlines()
        )
    exported = "".join(snapshot.lines())
    comments = {line for line in exported.splitlines() if line.startswith("#")}
    assert comments <= set(page.decode().splitlines())
    bare = re.sub(r" \d+$", "", exported, flags=re.MULTILINE)
    wanted, found = points(bare.encode()), points(page)
    assert {name for name, _ in found.keys() - wanted.keys()} == {
        "train_evaluation_loss_ratio",
        "train_checkpoint_size_bytes",
        *(f"train_checkpoint_duration_seconds_{ending}" for ending in ("bucket", "sum", "count")),
    }  # events carry them, which the exporter leaves out
    newer = {series for series in wanted if series[0] == "train_checkpoint_step"}
    assert [found[series] for series in newer] == [12]
    assert {series: found[series] for series in wanted.keys() - newer} == {
        series: wanted[series] for series in wanted.keys() - newer
    }
    run.end()


def test_the_page_reads_back_with_equal_values(folder: Path) -> None:
    run = trainspec_record.run()
    for number in range(3):
        with run.step(number):
            run.log(loss=2.0 + number, tokens=64, samples=2, learning_rate=1e-3, gradient_norm=1.0)
    run.flush()
    found = read_text(Live(who(folder), all_hosts=False).page().decode())
    job = next(sample for sample in found.samples if sample.rank is None)
    mine = next(sample for sample in found.samples if sample.rank == 0)
    assert found.heads[0].run == "r-1"
    assert job.m["train.step.count"] == 3
    assert job.m["train.token.count{train.token.kind=all}"] == 192
    assert job.m["train.loss.mean{train.loss.name=total}"] == 4.0
    assert (mine.host, mine.m["train.rank.step"]) == ("node-1", 3)
    run.end()


TEXTS = st.text(st.characters(exclude_characters="{},=\0", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53))
NAMES = st.sampled_from(["train.loss.mean", "hw.errors", "train.checkpoint.duration", "vendor.thing", "vendor.thing_"])


@given(st.lists(st.tuples(NAMES, st.sampled_from(["a.b", "error.type"]), TEXTS, NUMBERS), max_size=8), TEXTS)
def test_another_parser_reads_the_same_values(values: list[tuple[str, str, str, float]], run: str) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    page, wanted = Exposition(), {}
    for metric, attribute, text, value in values:
        page.add({"run": run, "att": 0}, Subject(1, None, None), f"{metric}{{{attribute}={text}}}", value)
        name = EXPOSED[metric].name if metric in EXPOSED else metric.replace(".", "_")
        wanted[name, attribute.replace(".", "_"), text] = float(value)
    found = {}
    for family in parser.text_string_to_metric_families(page.text().decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert (labels.pop("train_run_id"), labels.pop("train_run_attempt"), labels.pop("train_rank_id")) == (
                *(run, "0", "1"),
            )
            ((label, text),) = labels.items()
            found[sample.name, label, text] = sample.value
    assert found == wanted
    assert set(points(page.text()).values()) == set(wanted.values())


@given(st.text(max_size=20), st.recursive(st.none() | st.booleans() | st.text() | NUMBERS, st.lists, max_leaves=4))
def test_no_key_and_no_value_spoils_the_page(key: str, told: Any) -> None:
    page = Exposition()
    value = value_of(told)
    if value is not None:
        page.add({"run": "r\n1", "att": 0}, Subject(None, 'a"b', None), key or "x", value)
        page.add({"run": "r\n1", "att": 0}, Subject(None, None, None), "train.step.count", 1)
    lines = page.text().decode().split("\n")
    assert all(re.match("# (TYPE|HELP) [a-z]", line) or isinstance(parse(line), Point) for line in lines[:-1]), lines


def test_windows_of_a_histogram_are_added_up() -> None:
    one = value_of({"count": 3, "sum": 1.5, "bounds": [1, 2], "counts": [1, 1, 1]})
    assert one == Histogram(3, 1.5, (1, 2), (1, 1, 1))
    page = Exposition()
    page.add({"run": "r"}, Subject(None, None, None), "train.network.latency", together(one, one))
    assert [line.rpartition(" ")[::2] for line in page.text().decode().splitlines()[2:]] == [
        ('train_network_latency_seconds_bucket{le="1.0",train_run_id="r"}', "2"),
        ('train_network_latency_seconds_bucket{le="2.0",train_run_id="r"}', "4"),
        ('train_network_latency_seconds_bucket{le="+Inf",train_run_id="r"}', "6"),
        ('train_network_latency_seconds_sum{train_run_id="r"}', "3.0"),
        ('train_network_latency_seconds_count{train_run_id="r"}', "6"),
    ]


@pytest.mark.parametrize("told", [10**400, True, [1], "high", {"count": 1}, {"count": 1, "sum": "NaN"}, None])
def test_what_is_no_value_is_left_out(told: object) -> None:
    assert value_of(told) is None


def test_a_name_that_a_vendor_writes_does_not_replace_one_of_the_catalog() -> None:
    page = Exposition()
    page.add({}, Subject(None, None, None), "train.step.count_total", 7)
    page.add({}, Subject(None, None, None), "train.step.count", 1)
    assert page.text().decode().splitlines()[1:] == [
        "# TYPE train_step_count_total counter",
        "train_step_count_total{} 1",
    ]


# --- which writers are served -------------------------------------------------------------------------------


def test_what_a_dead_rank_said_last_is_not_served(tmp_path: Path) -> None:
    folder = tmp_path / "r-1"
    ranks = [start(LOOP, folder, RANK=str(number), WORLD_SIZE="2") for number in range(2)]
    live = Live(who(folder), all_hosts=False)
    try:
        until(
            lambda: {labels["train_rank_id"] for labels, _ in of_metric(live.page(), "train_rank_step")} == {"0", "1"}
        )
        until(lambda: of_metric(live.page(), "train_step_count_total") != [])
        ranks[1].kill()
        ranks[1].wait()
        page = live.page()
        assert ranks_on(page) == {"0"}
        assert of_metric(page, "train_step_count_total")
        ranks[0].kill()
        ranks[0].wait()
        assert live.page() == b""
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def recording_into(folder: Path) -> Iterator[int]:
    """Processes that record into a folder."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"TRAINSPEC_RUN={folder}\0".encode() in path.read_bytes():
                yield int(path.parent.name)


def until(holds: Any) -> None:
    end = time.monotonic() + 600
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_child_that_outlives_its_rank_keeps_nothing_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "r-1"
    script = LOOP.replace(
        "    for number", "    os.fork() or (print('forked', flush=True), time.sleep(600))\n    for number"
    )
    process = start(script, folder)
    live = Live(who(folder), all_hosts=False)
    try:
        until(lambda: of_metric(live.page(), "train_step_count_total") != [])
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"
        process.kill()
        process.wait()
        assert live.page() == b""
    finally:
        process.kill()
        for child_id in recording_into(folder):
            os.kill(child_id, 9)
        process.communicate()


def test_a_run_that_has_ended_is_not_served(folder: Path) -> None:
    finish(LOOP.replace("10**6", "5") + "    run.end()", folder)
    assert {"job.0.jsonl", "rank-000000.0.jsonl"} <= {path.name for path in folder.iterdir()}
    assert Live(who(folder), all_hosts=False).page() == b""


def test_a_writer_that_falls_silent_is_left_out_until_it_writes_again(folder: Path) -> None:
    writer, clock = rank(folder, 0), Time()
    live = Live(who(folder), all_hosts=False, clock=clock)
    writer.sample(m={"train.rank.step": 5})
    assert of_metric(live.page(), "train_rank_step")
    clock.now += SILENT_SECONDS
    assert of_metric(live.page(), "train_rank_step")
    clock.now += 0.1
    assert live.page() == b""
    writer.sample(m={"train.rank.step": 5})
    assert of_metric(live.page(), "train_rank_step")


def test_the_job_is_served_as_long_as_rank_0_writes(folder: Path) -> None:
    clock = Time()
    live = Live(who(folder), all_hosts=False, clock=clock)
    job, first = Writer(folder, "job", scopes=["job"]), None
    job.sample(m={"train.step.count": 5})
    assert live.page() == b""
    first = rank(folder, 0)
    assert of_metric(live.page(), "train_step_count_total")
    clock.now += SILENT_SECONDS
    first.sample(m={"train.rank.step": 5})
    live.follow()
    clock.now += SILENT_SECONDS
    assert of_metric(live.page(), "train_step_count_total") == [({"train_run_id": "r-1", "train_run_attempt": "0"}, 5)]
    first.end()
    assert live.page() == b""


def test_only_the_newest_attempt_of_a_writer_is_served(folder: Path) -> None:
    live = Live(who(folder), all_hosts=False)
    older = rank(folder, 0, 9)
    older.sample(m={"train.rank.step": 9})
    assert [labels["train_run_attempt"] for labels, _ in of_metric(live.page(), "train_rank_step")] == ["9"]
    newer = rank(folder, 0, 10)
    newer.sample(m={"train.rank.step": 10})
    assert [labels["train_run_attempt"] for labels, _ in of_metric(live.page(), "train_rank_step")] == ["10"]


def test_ranks_of_other_hosts_are_served_where_they_scrape_from(folder: Path) -> None:
    here, there = rank(folder, 0), rank(folder, 1, host="node-2")
    job = Writer(folder, "job", scopes=["job"])
    for writer in (here, there):
        writer.sample(m={"train.rank.step": 5})
    job.sample(m={"train.step.count": 5})

    def seen(host: str, *, all_hosts: bool) -> set[str]:
        page = Live(who(folder, host=host), all_hosts=all_hosts).page()
        found = {labels["train_rank_id"] for labels, _ in of_metric(page, "train_rank_step")}
        return found | {"job" for _ in of_metric(page, "train_step_count_total")}

    assert seen("node-1", all_hosts=False) == {"0", "job"}
    assert seen("node-2", all_hosts=False) == {"1"}
    assert seen("node-3", all_hosts=True) == {"0", "1", "job"}


def test_without_locks_the_age_of_a_file_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "fcntl", None)
    writer, other = rank(folder, 0, is_held=False), rank(folder, 1, is_held=False)
    for each in (writer, other):
        each.sample(m={"train.rank.step": 5})
    os.utime(other.path, (1_000, 1_000))
    live = Live(who(folder), all_hosts=False)
    assert [labels["train_rank_id"] for labels, _ in of_metric(live.page(), "train_rank_step")] == ["0"]
    other.sample(m={"train.rank.step": 6})
    assert sorted(value for _, value in of_metric(live.page(), "train_rank_step")) == [5, 6]


def test_names_are_hidden_as_in_the_files(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    hidden = identity({"TRAINSPEC_RUN": str(folder), "TRAINSPEC_HOST": "node-1", "TRAINSPEC_REDACT": str(key)})
    assert hidden is not None
    run = trainspec_record.run(redaction_key=str(key))
    with run.step(0):
        pass
    run.flush()
    page = Live(hidden, all_hosts=False).page()
    assert [labels["host_id"][:2] for labels, _ in of_metric(page, "train_rank_step")] == ["h:"]
    assert b"node-1" not in page
    run.end()


# --- hostile files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]\n",
        b'{"k":"m"}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b"x" * 1_000_000,
        b'{"k":"head"}\n7\n',
    ],
)
def test_a_file_that_is_no_stream_hides_no_other(folder: Path, content: bytes) -> None:
    rank(folder, 0).sample(m={"train.rank.step": 5})
    writer = rank(folder, 0, 1)
    writer.sample(m={"train.rank.step": 5})
    for name in ("rank-000001.0.jsonl", "other.0.jsonl", "job.1.jsonl"):
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe.0.jsonl")
    (folder / "link.0.jsonl").symlink_to("/etc/passwd")
    (folder / "directory.0.jsonl").mkdir()
    live = Live(who(folder), all_hosts=False)
    for _ in range(2):
        assert [value for _, value in of_metric(live.page(), "train_rank_step")] == [5]


@pytest.mark.parametrize(
    "record",
    [
        {"k": "m", "m": 7},
        {"k": "m", "m": {"train.rank.step": None, "x{": 1, "": 2}},
        {"k": "m", "rank": [1], "host": {}, "device": 1.5, "m": {"train.rank.step": 5}},
        {"k": "m", "m": {"train.rank.step": "x" * 2_000_000}},
        {"k": "nothing", "m": {"train.rank.step": 6}},
    ],
)
def test_a_record_that_is_none_is_left_out(folder: Path, record: dict[str, Any]) -> None:
    writer = rank(folder, 0)
    live = Live(who(folder), all_hosts=False)
    writer.sample(m={"train.rank.step": 5})
    live.follow()
    writer.write(record)
    writer.sample(m={"train.step.duration": 0.5})
    page = live.page()
    assert [value for _, value in of_metric(page, "train_rank_step")] == [5]
    assert [value for _, value in of_metric(page, "train_step_duration_seconds")] == [0.5]


def test_series_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_SERIES", 3)
    writer = rank(folder, 0)
    live = Live(who(folder), all_hosts=False)
    for number in range(9):
        writer.sample(device=f"d{number}", m={"hw.gpu.utilization": 0.5})
        assert len(points(live.page())) == min(3, number + 1)
    writer.sample(device="d0", m={"hw.gpu.utilization": 0.25})
    assert 0.25 in points(live.page()).values()


def test_only_the_end_of_a_large_file_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "TAIL_BYTES", 200)
    writer = rank(folder, 0)
    writer.sample(m={"train.memory.oom": 1})
    for number in range(50):
        writer.sample(m={"train.rank.step": number})
    live = Live(who(folder), all_hosts=False)
    page = live.page()
    assert [value for _, value in of_metric(page, "train_rank_step")] == [49]
    assert of_metric(page, "train_memory_oom_total") == []
    writer.sample(m={"train.memory.oom": 1})
    assert of_metric(live.page(), "train_memory_oom_total")


def test_promtool_reads_the_page(folder: Path, tmp_path: Path) -> None:
    run = trainspec_record.run()
    with run.step(0):
        run.log(loss=2.0, tokens=64, samples=2, learning_rate=1e-3, gradient_norm=1.0)
    run.flush()
    path = tmp_path / "page"
    path.write_bytes(Live(who(folder), all_hosts=False).page())
    run.end()
    with path.open("rb") as file:
        promtool("check", "metrics", stdin=file)
