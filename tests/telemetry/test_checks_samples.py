"""What checks say of published logs: their defects are found, and what is sound in them is left alone."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from telemetry_makers import judged, messages, refused

from trainspec_validate.documents.types.stream import encode_record
from trainspec_validate.telemetry.fold.engine import read_run, run_file
from trainspec_validate.telemetry.formats import HEAD_BYTES, detect, lines_of, read, records
from trainspec_validate.telemetry.view.run_view import RunView

SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES", Path(__file__).resolve().parents[3] / "shared" / "samples"))
MLPERF = "mlperf_v51_llama31_405b_5120xGB200.mllog.txt"
BLOOM = "bloom_megatron_log_lines.txt"
TIMED = [f"TS-TEL-{number:03}" for number in range(20, 24)]

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"no published logs at {SAMPLES}")


def converted(path: Path) -> bytes:
    """The log as a stream of the specification."""
    kind = detect(path.read_bytes()[:HEAD_BYTES])
    assert kind is not None
    with path.open("rb") as stream:
        return b"".join(encode_record(record) + b"\n" for record in records(read(lines_of(stream), path.name, kind)))


@cache
def view_of(*names: str) -> RunView:
    with TemporaryDirectory() as directory:
        files = []
        for number, name in enumerate(names):
            path = Path(directory) / f"{number}.jsonl"
            path.write_bytes(converted(SAMPLES / name))
            files.append(run_file(number, path, name))
        return read_run(files)


def test_longer_intervals_of_a_large_run_are_its_evaluations() -> None:
    run = view_of(MLPERF)
    for requirement in ("TS-TEL-024", "TS-TEL-026", "TS-TEL-031", "TS-TEL-033", "TS-TEL-037", "TS-TEL-038"):
        assert messages(requirement, run) == [], requirement
    assert [found for timed in TIMED if not refused(timed, run) for found in messages(timed, run)] == []


def test_a_hole_in_the_log_of_a_large_run_is_found() -> None:
    lines = converted(SAMPLES / MLPERF).splitlines(keepends=True)
    kept = [line for number, line in enumerate(lines) if not 100 <= number < 200]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "holed.jsonl"
        path.write_bytes(b"".join(kept))
        run = read_run([run_file(0, path, path.name)])
    (found,) = messages("TS-TEL-031", run)
    assert found.startswith("train.step.count jumps from")


def test_power_of_nodes_is_on_time() -> None:
    names = sorted(f"power/{path.name}" for path in (SAMPLES / "power").iterdir())
    run = view_of(*names)
    assert len(names) == len({subject.host for subject in run.series.subjects}) == 3
    for requirement in (*TIMED, "TS-TEL-026", "TS-TEL-029"):
        assert messages(requirement, run) == [], requirement


def test_the_frozen_norms_of_a_public_log_are_found() -> None:
    assert messages("TS-TEL-026", view_of(BLOOM)) == [
        "train.gradient.norm is 464441.887 for 5 optimizer steps in a row",
        "train.gradient.norm is 879946.622 for 3 optimizer steps in a row",
    ]


@pytest.mark.parametrize(
    "requirement", ["TS-TEL-020", "TS-TEL-021", "TS-TEL-022", "TS-TEL-033", "TS-TEL-037", "TS-TEL-049"]
)
def test_lines_without_times_are_not_judged_by_time(requirement: str) -> None:
    assert refused(requirement, view_of(BLOOM)) != ""


def test_the_ends_of_series_without_times_are_judged_by_their_updates() -> None:
    first = (SAMPLES / BLOOM).read_bytes().splitlines()[0]
    lines = [first.replace(b"29020/", b"%d/" % step) for step in range(29020, 29420, 10)]
    silent = [re.sub(rb"grad norm: \S+ \|", b"", line) if number >= 15 else line for number, line in enumerate(lines)]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "silent.jsonl"
        log = Path(directory) / "silent.log"
        log.write_bytes(b"\n".join(silent) + b"\n")
        path.write_bytes(converted(log))
        run = read_run([run_file(0, path, path.name)])
    assert messages("TS-TEL-023", view_of(BLOOM)) == []
    (found,) = messages("TS-TEL-023", run)
    assert found.startswith("train.gradient.norm has its last value at step 29,160")


def test_a_slow_node_is_found_without_times() -> None:
    (found,) = messages("TS-TEL-036", view_of(BLOOM))
    assert found == "optimizer steps take 1.852 min in 5 reports from step 42,783 to 94,769, 4.6 % more than before"


def test_a_count_that_falls_inside_a_step_is_found() -> None:
    found = messages("TS-TEL-024", view_of("dlrover_training_events.log"))
    assert found[0].startswith("train.sample.count falls from 576,777,624 to 15,456")


def test_a_clock_that_starts_again_in_the_warm_up_is_no_defect() -> None:
    run = view_of("modded_nanogpt_muon_8xH100_steps.txt")
    for requirement in ("TS-TEL-026", "TS-TEL-031", "TS-TEL-033", "TS-TEL-037"):
        assert judged(requirement, run) == [], requirement
