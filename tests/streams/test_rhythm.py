"""Logs without a stream header: interval, cadence, units and offline evaluation follow from the log itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import Result, read_bytes, read_text

from trainspec_validate import Severity
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.telemetry.formats.detection import detect_beyond

SECOND = 1_000


def entry(key: str, value: Any = None, time_ms: int = 1_000, **metadata: Any) -> str:
    content = {"time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}
    return ":::MLLOG " + json.dumps(content) + "\n"


def log(*entries: str, batch: int = 8, **settings: int) -> str:
    about = {"submission_benchmark": "llama2_70b_lora", "global_batch_size": batch, **settings}
    return "".join([*(entry(key, value) for key, value in about.items()), *entries])


def errors(text: str, folder: Path) -> set[str]:
    path = folder / "result_0.txt"
    path.write_text(text, encoding="utf-8")
    return {finding.requirement for finding in validate(path.as_posix()).findings}


def every_ten(*left_out: int) -> str:
    steps = [step for step in range(10, 210, 10) if step not in left_out]
    return log(
        *(
            entry("tracked_stats", {"train_loss": 3 - step / 100}, step * SECOND, step=step, samples_count=step * 8)
            for step in steps
        )
    )


def test_a_log_is_judged_by_its_own_interval_of_reports(tmp_path: Path) -> None:
    found = read_text(every_ten())
    assert found.heads[0].report_interval_steps == 10
    assert "every 10 optimizer steps" in next(e.message for e in found.losses.entries if e.what == "interval")
    assert "TS-TEL-031" not in errors(every_ten(), tmp_path)
    assert "TS-TEL-031" in errors(every_ten(100), tmp_path)


def test_reports_at_evaluations_may_be_closer() -> None:
    steps = [10, 20, 30, 34, 40, 50, 60, 68, 70]
    found = read_text(log(*(entry("tracked_stats", {"train_loss": 3.0}, n * SECOND, step=n) for n in steps)))
    assert found.heads[0].report_interval_steps == 10


def rates(*times_s: int) -> str:
    rate = [entry("tracked_stats", {"throughput": 8 * 1.0}, time * SECOND) for time in times_s]
    start = entry("run_start", time_ms=0)
    return log(start, *rate, entry("run_stop", None, times_s[-1] * SECOND, status="success"), max_sequence_length=64)


def test_the_cadence_of_a_log_is_the_longest_interval_that_recurs(tmp_path: Path) -> None:
    found = read_text(rates(500, 1000, 1500, 2000))
    assert found.heads[0].cadence_seconds == {"C30": 500.0}
    assert not {"TS-TEL-020", "TS-TEL-021"} & errors(rates(500, 1000, 1500, 2000), tmp_path)
    assert "TS-TEL-021" in errors(rates(500, 1000, 1500, 37_500, 38_000), tmp_path)


def in_steps(*steps: int, seconds: int, **stats: float) -> Result:
    reports = [entry("tracked_stats", stats, (n + 1) * seconds * SECOND, step=step) for n, step in enumerate(steps)]
    return read_text(log(*reports, train_samples=1_000))


@pytest.mark.parametrize(
    ("steps", "seconds", "stats", "expected"),
    [
        # 8 samples in 2 s and 384 s between reports: 192 optimizer steps, counted as 1,536 samples.
        ((1536, 3072, 4608), 384, {"train_step_time": 2.0}, [192, 384, 576]),
        # The same positions as optimizer steps: 1,536 of them take 3,072 s.
        ((1536, 3072, 4608), 3072, {"train_step_time": 2.0}, [1536, 3072, 4608]),
        # A throughput of 10 samples a second for 100 s is the whole training set: epochs.
        ((1, 2, 3), 100, {"throughput": 10.0}, []),
        # Nothing agrees with the clock: no counter is made up.
        ((1536, 3072, 4608), 10, {"train_step_time": 2.0}, []),
    ],
)
def test_what_steps_count_follows_from_the_clock(
    steps: tuple[int, ...], seconds: int, stats: dict[str, float], expected: list[int]
) -> None:
    found = in_steps(*steps, seconds=seconds, **stats)
    assert found.values("train.step.count") == expected


def test_positions_of_evaluations_tell_what_steps_count() -> None:
    pairs = [
        entry("tracked_stats", {"throughput": 1.0}, n * SECOND, step=1536 * n)
        + entry("eval_accuracy", 0.9, n * SECOND + 1, samples_count=1536 * n)
        for n in (1, 2, 3)
    ]
    found = read_text(log(*pairs))
    assert found.values("train.step.count") == [192, 384, 576]


def offline(*, is_stopped: bool = True) -> str:
    parts = [
        entry("run_start", time_ms=0),
        entry("block_start", time_ms=0, samples_count=0),
        entry("block_stop", time_ms=100_000, samples_count=800),
        entry("block_start", time_ms=100_000, samples_count=800),
        entry("block_stop", time_ms=200_000, samples_count=1600),
    ]
    for number, samples in enumerate((800, 1600)):
        begin = 300_000 + 100_000 * number
        parts.append(entry("eval_start", None, begin, samples_count=samples))
        parts.append(entry("eval_accuracy", 90.0, begin + 10_000, samples_count=samples, metric="FID"))
        if is_stopped:
            parts.append(entry("eval_stop", None, begin + 20_000, samples_count=samples))
    return log(*parts, entry("run_stop", None, 100_000, status="success"))


def test_offline_evaluation_and_a_backdated_end_are_no_disorder(tmp_path: Path) -> None:
    found = read_text(offline())
    assert [event.name for event in found.events if "evaluation" in event.name] == []
    assert found.values("train.sample.count") == []
    assert found.events[-1].time_us == 200_000_000
    assert ("meaning", "eval_start") in found.lost
    assert "TS-TEL-044" not in errors(offline(), tmp_path)
    assert "TS-TEL-043" in errors(offline(is_stopped=False), tmp_path)


def test_evaluations_whose_starts_are_absent_explain_the_pauses_before_their_ends(tmp_path: Path) -> None:
    """A pause with reports of a validation and its accuracy is one; that it has no start is told once for each."""
    parts, time_ms = [entry("run_start", time_ms=0)], 0
    for step in range(1, 61):
        time_ms += 20 * SECOND
        statistics = {"train_step_time": 20.0, "reduced_train_loss": 8 - step / 20}
        parts.append(entry("tracked_stats", statistics, time_ms, step=step * 8.0))
        if step % 20 == 0:
            time_ms += 110 * SECOND
            parts.append(entry("eval_accuracy", 8 - step / 20, time_ms, samples_count=step * 8))
            parts.append(entry("eval_stop", None, time_ms, samples_count=step * 8))
    text = log(*parts, entry("run_stop", None, time_ms + 1, status="success"))
    assert not errors(text, tmp_path) & {"TS-TEL-033", "TS-TEL-037"}
    assert [event.name for event in read_text(text).events].count("train.evaluation.end") == 3
    findings = validate(tmp_path / "result_0.txt").findings
    found = [each.message for each in findings if each.requirement == "TS-TEL-043"]
    assert found == ["eval_stop closes nothing: no eval is open"] * 3


def test_training_after_the_end_of_the_run_is_disorder(tmp_path: Path) -> None:
    run = entry("run_start", time_ms=0), entry("run_stop", None, 5_000, status="success")
    reports = [entry("tracked_stats", {"train_loss": 3.0 - n}, n * 4_000, step=n) for n in (1, 2)]
    assert "TS-TEL-044" in errors(log(*run, *reports), tmp_path)


def unpaired(*entries: str) -> list[str]:
    return [refusal.message for refusal in read_text(log(*entries)).refusals if refusal.code == "interval"]


def test_evaluations_that_overlap_are_told_apart_by_their_position() -> None:
    parts = [entry("eval_start", epoch_num=1), entry("eval_start", epoch_num=2)]
    stops = [entry("eval_stop", epoch_num=1), entry("eval_stop", epoch_num=2)]
    assert unpaired(*parts, *stops) == []
    assert unpaired(*parts, stops[0]) == ["eval_start is never closed"]
    assert unpaired(parts[0], parts[0], stops[0]) == ["eval_start again before eval_stop"]


def test_a_block_that_starts_as_the_run_ends_is_no_part_of_it() -> None:
    run = entry("run_start", time_ms=0), entry("run_stop", None, 9_000, status="success")
    for moment in (8_999, 9_000, 9_001):
        assert unpaired(run[0], entry("block_start", time_ms=moment), run[1]) == []
    assert unpaired(run[0], entry("block_start", time_ms=8_000), run[1]) == ["block_start is never closed"]


def test_a_block_that_starts_long_after_the_stated_end_is_open() -> None:
    """A log whose run_stop has the time of an earlier position goes on, and its last block is never closed."""
    run = entry("run_start", time_ms=0), entry("run_stop", None, 9_000, status="success")
    assert unpaired(run[0], entry("block_start", time_ms=18_000), run[1]) == ["block_start is never closed"]


def test_torn_characters_of_a_progress_bar_are_no_damage_of_the_log() -> None:
    bar = b"Epoch 1: 50%|\xe2\x96\n"
    assert not read_bytes(bar + log().encode(), "mllog").refusals
    assert not read_bytes(bar.rstrip(b"\n") + log().encode(), "mllog").refusals
    torn = log().encode().replace(b"llama2", b"llama\xe2")
    assert [r.message for r in read_bytes(torn, "mllog").refusals] == ["byte 0xe2 is not UTF-8"]


def test_a_log_is_recognized_behind_megabytes_of_other_output(tmp_path: Path) -> None:
    assert detect_beyond([b"output\n"]) is None
    report = validate(_written(tmp_path / "job.txt", "+ shift\n" * 400_000 + every_ten()))
    assert [document.kind for document in report.documents] == ["MetricStream"]


def _written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return path.as_posix()


def test_no_advice_names_a_header_that_a_log_does_not_have(tmp_path: Path) -> None:
    path = _written(tmp_path / "result_0.txt", every_ten(100))
    jumps = [finding.help for finding in validate(path).findings if finding.requirement == "TS-TEL-031"]
    assert jumps == ["write each completed step"]


def evaluated(samples: list[int], end_ms: int, batch: int = 6_144) -> str:
    """A log of which only evaluations say where training is, one each 30 s."""
    run = entry("run_start", time_ms=0), entry("run_stop", None, end_ms, status="success")
    blocks = entry("block_start", time_ms=1), entry("block_stop", time_ms=end_ms)
    positions = [entry("eval_accuracy", 0.5, (n + 1) * 100_000, epoch_num=each) for n, each in enumerate(samples)]
    return log(run[0], blocks[0], *positions, blocks[1], run[1], batch=batch)


ROUNDED = [202_575, 404_953, 601_457, 804_946, 1_001_199, 1_204_160, 1_401_297, 1_603_725]
"""Samples at evaluations of a log of BERT, which packs a changing number of them into an update."""


def test_counts_that_follow_from_samples_do_not_jump(tmp_path: Path) -> None:
    assert "TS-TEL-031" not in errors(evaluated(ROUNDED, 850_000), tmp_path)
    assert "TS-TEL-031" in errors(evaluated([*ROUNDED[:4], *ROUNDED[5:]], 850_000), tmp_path), "one is missing"


def test_a_run_that_ends_before_its_next_report_does_not_stand_still(tmp_path: Path) -> None:
    assert "TS-TEL-033" not in errors(evaluated(ROUNDED, 900_000), tmp_path)
    assert "TS-TEL-033" not in errors(evaluated(ROUNDED, 990_000), tmp_path)
    assert "TS-TEL-033" in errors(evaluated(ROUNDED, 1_100_000), tmp_path)


def test_durations_of_a_log_without_steps_are_not_added_up(tmp_path: Path) -> None:
    def timed(seconds: float, **position: int) -> str:
        at = [
            entry(
                "tracked_stats",
                {"train_step_time": seconds},
                (n + 1) * 40_000,
                **{k: v * n for k, v in position.items()},
            )
            for n in range(8)
        ]
        return log(entry("run_start", time_ms=0), *at, entry("run_stop", None, 330_000, status="success"))

    assert "TS-TEL-037" not in errors(timed(0.04), tmp_path)
    assert "TS-TEL-037" in errors(timed(0.02, step=1_000), tmp_path)


def test_an_evaluation_explains_a_silence_once_it_has_ended(tmp_path: Path) -> None:
    reports = [entry("tracked_stats", {"throughput": 9.5}, 40_000 * n) for n in range(1, 12)]
    begun, ended = (
        entry("eval_start", None, 500_000, samples_count=8),
        entry("eval_stop", None, 1_600_000, samples_count=8),
    )
    start, later = entry("run_start", time_ms=0), entry("tracked_stats", {"throughput": 9.5}, 1_610_000)
    assert "TS-TEL-033" not in errors(log(start, *reports, begun, ended, later), tmp_path)
    assert "TS-TEL-033" in errors(log(start, *reports, later), tmp_path)


@pytest.mark.parametrize(
    ("kind", "is_stopped", "severity"),
    [
        ("block", True, Severity.WARNING),
        ("epoch", True, Severity.WARNING),
        ("block", False, Severity.ERROR),
        ("eval", True, Severity.ERROR),
    ],
)
def test_what_the_rules_of_mlperf_let_be_open(tmp_path: Path, kind: str, is_stopped: bool, severity: Severity) -> None:
    """The checker of MLPerf says that an epoch may be open as a run ends, and asks for no pairs of blocks."""
    block = entry("block_start", time_ms=1_000), entry("block_stop", time_ms=20_000)
    run = entry("run_start", time_ms=0), entry("run_stop", None, 60_000, status="success")
    path = tmp_path / "log.txt"
    path.write_text(log(run[0], *block, entry(f"{kind}_start", time_ms=30_000), *run[1:][: int(is_stopped)]), "utf-8")
    found = [finding for finding in validate(path).findings if finding.span and finding.span.line == 6]
    assert {(finding.requirement, finding.severity) for finding in found} == {("TS-TEL-043", severity)}


@pytest.mark.parametrize(
    ("kind", "severity"), [("block", Severity.WARNING), ("epoch", Severity.WARNING), ("eval", Severity.ERROR)]
)
def test_ends_and_starts_that_the_rules_of_mlperf_let_be_without_a_pair(
    tmp_path: Path, kind: str, severity: Severity
) -> None:
    """The checker of MLPerf asks for no pairs of blocks and epochs, and no number follows from them."""
    run = entry("run_start", time_ms=0), entry("run_stop", None, 60_000, status="success")
    times = {"stop": 1, "start": 2, "start ": 3, "stop ": 9}
    edges = [entry(f"{kind}_{edge.strip()}", time_ms=time) for edge, time in times.items()]
    path = tmp_path / "log.txt"
    path.write_text(log(run[0], *edges, run[1]), "utf-8")
    found = [each for each in validate(path).findings if each.requirement == "TS-TEL-043"]
    assert {each.severity for each in found} == {severity}
    assert [words in found[place].message for place, words in enumerate(("closes nothing", "start again before"))]
    assert len(found) == 2
