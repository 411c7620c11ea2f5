"""Damage that once passed in silence is found in each format that can show it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from streams_made.edits import Record, Streams, edit, has, moved, with_values, without
from streams_made.emitter import Stream
from streams_made.run import make_run
from streams_made.shape import Shape
from streams_made.shown_as import FORMATS, Files

from trainspec_validate.cli.validate import command
from trainspec_validate.documents.types.stream import Event, Sample
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.report.summary import summary_line

HOUR_US = 3_600_000_000
SHAPE = Shape(num_nodes=1, num_steps=60, step_seconds=5.0, evaluation_interval_steps=20, checkpoint_interval_steps=24)
SHORT = Shape(num_nodes=1, num_steps=40, step_seconds=0.2, evaluation_interval_steps=0, checkpoint_interval_steps=30)
STEP, SAMPLES, LOSS, RANK_STEP = "train.step.count", "train.sample.count", "train.loss.mean", "train.rank.step"
Found = Counter[tuple[str, str]]


def streams(shape: Shape = SHAPE) -> Streams:
    """The streams of the job and of its ranks."""
    return tuple(stream for stream in make_run(shape).streams if stream.head.emitter.startswith(("job", "rank")))


def middle(of: Streams, share: float = 0.5) -> int:
    times = [record.time_us for record in of[0].records]
    return times[0] + int((times[-1] - times[0]) * share)


def later(of: Streams, change: Callable[[Record], Record | list[Record] | None], emitter: str = "job") -> Streams:
    """The streams with a change to the samples of an emitter in the second half."""
    begin = middle(of)
    return edit(of, emitter, lambda r: change(r) if isinstance(r, Sample) and r.time_us > begin else r)


def no_steps(of: Streams) -> Streams:
    of = edit(of, "job", lambda r: None if isinstance(r, Sample) and has(r, STEP) else r)
    of = edit(of, "job", lambda r: without(r, LOSS, "train.step.duration") if isinstance(r, Sample) else r)
    return edit(of, "rank", lambda r: without(r, RANK_STEP) if isinstance(r, Sample) else r)


def falling_counts(of: Streams) -> Streams:
    def change(record: Record) -> Record:
        fallen = with_values(with_values(record, STEP, lambda v: v - 15), SAMPLES, lambda v: v / 2)
        return replace(fallen, step=fallen.step - 15) if has(record, STEP) and fallen.step else fallen

    return later(of, change)


def negative_counts(of: Streams) -> Streams:
    return later(of, lambda r: with_values(r, SAMPLES, lambda v: -v))


def exploding_loss(of: Streams) -> Streams:
    return later(of, lambda r: with_values(r, LOSS, lambda v: v * 1e9))


def lost_loss(of: Streams) -> Streams:
    return later(of, lambda r: with_values(r, LOSS, lambda _: "NaN"))


def frozen_loss(of: Streams) -> Streams:
    return later(of, lambda r: with_values(r, LOSS, lambda _: 2.5))


def silent_tail(of: Streams) -> Streams:
    end = middle(of, 0.7)
    return edit(of, "job", lambda r: None if isinstance(r, Sample) and r.time_us > end else r)


def gap_of_ten_hours(of: Streams) -> Streams:
    begin = middle(of)

    def change(record: Record) -> Record:
        return moved(record, lambda t: t + 10 * HOUR_US) if record.time_us > begin else record

    return tuple(Stream(stream.head, tuple(map(change, stream.records))) for stream in of)


def rank_behind(of: Streams) -> Streams:
    return later(of, lambda r: with_values(r, RANK_STEP, lambda v: max(v - 30, 0)), "rank-000002")


def rank_missing(of: Streams) -> Streams:
    return tuple(stream for stream in of if stream.head.emitter != "rank-000002")


def second_value(of: Streams) -> Streams:
    begin, done = middle(of), []

    def change(record: Record) -> Record | list[Record]:
        if record.time_us < begin or not has(record, LOSS) or done:
            return record
        done.append(record)
        return [record, with_values(record, LOSS, lambda v: v + 1)]

    return edit(of, "job", change)


def times_in_seconds(of: Streams) -> Streams:
    return tuple(
        Stream(
            replace(stream.head, time_us=stream.head.time_us // 1_000_000),
            tuple(moved(record, lambda t: t // 1_000_000) for record in stream.records),
        )
        for stream in of
    )


OWN = ("jsonl", "otlp", "foreign_otlp")
LOGS = ("mllog", "megatron", "nanogpt")
EXPECTED: list[tuple[Callable[[Streams], Streams], dict[str, str]]] = [
    (no_steps, dict.fromkeys(OWN, "TS-TEL-004")),
    (falling_counts, dict.fromkeys((*OWN, *LOGS), "TS-TEL-024")),
    (negative_counts, dict.fromkeys((*OWN, "prometheus", "mllog", "megatron"), "TS-TEL-012")),
    (exploding_loss, dict.fromkeys((*OWN, *LOGS), "TS-TEL-055")),
    (lost_loss, dict.fromkeys((*OWN, *LOGS), "TS-TEL-088")),
    (frozen_loss, dict.fromkeys((*OWN, *LOGS), "TS-TEL-026")),
    (silent_tail, dict.fromkeys((*OWN, "mllog"), "TS-TEL-023")),
    (gap_of_ten_hours, dict.fromkeys((*OWN, *LOGS), "TS-TEL-033")),
    (rank_behind, dict.fromkeys(OWN, "TS-TEL-032")),
    (rank_missing, dict.fromkeys((*OWN, "prometheus"), "TS-TEL-027")),
    (second_value, {**dict.fromkeys((*OWN, *LOGS), "TS-TEL-018"), "prometheus": "TS-TEL-001"}),
    (times_in_seconds, {**dict.fromkeys((*OWN, "prometheus", "mllog"), "TS-TEL-016"), "megatron": "TS-TEL-037"}),
]
CASES = [(damage, name, wanted) for damage, formats in EXPECTED for name, wanted in formats.items()]


def judged(files: Files) -> Found:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        found = validate([str(Path(folder) / name) for name in files]).findings
    return Counter((finding.requirement, finding.name) for finding in found)


@cache
def of_undamaged(name: str, shape: Shape = SHAPE) -> Found:
    return judged(FORMATS[name](streams(shape)))


@pytest.mark.parametrize("name", FORMATS)
def test_the_undamaged_run_has_no_finding_that_damage_is_to_have(name: str) -> None:
    found = {requirement for requirement, _ in of_undamaged(name)}
    assert not found & {wanted for _, format_name, wanted in CASES if format_name == name} - {"TS-TEL-004"}


@pytest.mark.parametrize(("damage", "name", "wanted"), CASES, ids=[f"{d.__name__}-{n}" for d, n, _ in CASES])
def test_damage_is_found(damage: Callable[[Streams], Streams], name: str, wanted: str) -> None:
    new = judged(FORMATS[name](damage(streams()))) - of_undamaged(name)
    assert wanted in {requirement for requirement, _ in new}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(("damage", "wanted"), [(rank_behind, "TS-TEL-032"), (rank_missing, "TS-TEL-027")])
def test_damage_to_a_run_of_seconds_is_found(damage: Callable[[Streams], Streams], wanted: str, name: str) -> None:
    new = judged(FORMATS[name](damage(streams(SHORT)))) - of_undamaged(name, SHORT)
    assert wanted in {requirement for requirement, _ in new}


# --- what only one format can say wrongly


def edited(name: str, change: Callable[[str], str]) -> Found:
    files = FORMATS[name](streams())
    damaged = {path: change(content.decode()).encode() for path, content in files.items()}
    assert damaged != files
    return judged(damaged) - of_undamaged(name)


def metric(text: str, name: str, change: Callable[[dict[str, object]], None], only: str = "") -> str:
    """The lines of OTLP with a change to one metric, of all writers or of those whose resource has a text."""
    lines = []
    for line in text.splitlines():
        entry = json.loads(line)
        for resource in entry.get("resourceMetrics", ()) if only in line else ():
            for each in resource["scopeMetrics"][0]["metrics"]:
                if each["name"] == name:
                    change(each)
        lines.append(json.dumps(entry))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "of", "change", "only", "wanted"),
    [
        ("otlp", SAMPLES, lambda m: m["sum"].update(aggregationTemporality=1), "", "TS-TEL-001"),
        ("foreign_otlp", SAMPLES, lambda m: m["sum"].update(aggregationTemporality=1), "", "TS-TEL-008"),
        ("foreign_otlp", SAMPLES, lambda m: m["sum"].update(isMonotonic=False), "", "TS-TEL-008"),
        ("otlp", SAMPLES, lambda m: m["sum"].update(isMonotonic=False), "", "TS-TEL-008"),
        ("otlp", "train.data.wait.time", lambda m: m.update(unit="ms"), '"rank-000002"', "TS-TEL-007"),
        ("foreign_otlp", "train.data.wait.time", lambda m: m.update(unit="ms"), '"rank-000002"', "TS-TEL-007"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_otlp_states_of_a_metric_is_judged(
    name: str, of: str, change: Callable[[dict[str, object]], None], only: str, wanted: str
) -> None:
    assert wanted in {requirement for requirement, _ in edited(name, lambda text: metric(text, of, change, only))}


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("# TYPE train_step_count_total counter", "# TYPE train_step_count_total gauge", "TS-TEL-008"),
        ("train_step_duration_seconds", "train_step_duration_milliseconds", "TS-TEL-007"),
    ],
)
def test_what_an_exposition_states_of_a_metric_is_judged(before: str, after: str, wanted: str) -> None:
    def change(text: str) -> str:
        assert before in text, text[:500]
        return text.replace(before, after)

    assert wanted in {requirement for requirement, _ in edited("prometheus", change)}


@pytest.mark.parametrize("name", [*OWN, *LOGS])
def test_a_file_that_is_given_twice_is_found(name: str) -> None:
    files = FORMATS[name](streams())
    path, content = next(iter(files.items()))
    new = judged({**files, f"copy-{path}": content}) - of_undamaged(name)
    assert new or name in LOGS


# --- no findings are not a pass


def ended_as_failed(of: Streams) -> Streams:
    def change(record: Record) -> Record:
        is_end = isinstance(record, Event) and record.name == "train.run.end"
        return replace(record, a={**record.a, "train.run.status": "failed"}) if is_end else record

    return edit(of, "job", change)


def lacks(files: Files) -> tuple[str, ...]:
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        report = validate([str(Path(folder) / name) for name in files])
    said = tuple(lack for coverage in report.coverage for lack in coverage.lacks)
    reasons = [entry for entry in report.unjudged if entry.reason.startswith("is incomplete: ")]
    assert bool(said) == bool(reasons)
    assert summary_line(report).endswith("; incomplete: " + ", ".join(said)) == bool(said)
    assert not said or reasons[0].requirements
    return said


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_run_lacks_nothing(name: str) -> None:
    assert lacks(FORMATS[name](streams())) == ()


@pytest.mark.parametrize("name", [*OWN, "mllog"])
def test_a_run_that_failed_without_a_fault_is_incomplete(name: str) -> None:
    assert lacks(FORMATS[name](ended_as_failed(streams()))) == ("a run that ended as failed, without the fault",)


@pytest.mark.parametrize("name", [*OWN, "prometheus", "mllog"])
def test_a_run_without_a_completed_step_is_incomplete(name: str) -> None:
    def bare(record: Record) -> Record:
        return record if isinstance(record, Sample) or record.step is None else replace(record, step=None)

    of = edit(edit(no_steps(streams()), "", bare), "", lambda r: replace(r, step=None) if isinstance(r, Sample) else r)
    assert "no completed step" in lacks(FORMATS[name](of))


def test_a_table_of_unknown_names_names_them() -> None:
    rows = "".join(f"{n},{10 * n + 9},3.0,1,2,3,4\n" for n in range(8))
    found = lacks({"metrics.csv": f"epoch,step,triplet_loss,a,b,c,d\n{rows}".encode()})
    assert [lack for lack in found if "not read:" in lack and "triplet_loss" in lack]


def test_the_command_fails_on_an_incomplete_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(FORMATS["mllog"](ended_as_failed(streams()))["log.txt"])
    result = CliRunner().invoke(command, ["--fail-on", "unjudged", str(log)])
    assert result.exit_code == 1
    assert "incomplete: a run that ended as failed" in result.stdout.splitlines()[-1]
