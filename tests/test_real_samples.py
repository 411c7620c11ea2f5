"""Published logs and streams as people left them: each defect is found in its line, and nothing else is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES", Path(__file__).resolve().parents[2] / "shared" / "samples"))
pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no samples; TRAINSPEC_SAMPLES names their folder")

Expected = list[tuple[str, int]]
BLOOM: Expected = [
    # The fields of these lines break off; a person sees that the rest is missing.
    *(("TS-TEL-001", line) for line in (12, 31, 32, 33, 34, 35, 78)),
    # Lines of several runs stand in one file, so three counts fall from one to the next, and most lines are missing.
    ("TS-TEL-024", 11),
    ("TS-TEL-024", 11),
    ("TS-TEL-024", 13),
    ("TS-TEL-031", 2),
    # Iteration 2 has six lines, of six runs, and iteration 94,768 two, as two ranks printed it.
    *(("TS-TEL-031", line) for line in (14, 15, 16, 17, 18, 40)),
    # The norm is the same to nine digits in five lines, then in three.
    ("TS-TEL-026", 83),
    ("TS-TEL-026", 88),
    # The loss of the last eight lines is 4.4, and was 2.7 before them: the run with 104 billion parameters diverged.
    ("TS-TEL-055", 83),
    # Its norms are 1e3 to 3e6, where those of the run before it in the file are 0.3: it had diverged for long.
    ("TS-TEL-090", 53),
    # One slow node: 105.16 s, 105.17 s, 106.25 s, then 110.17 s, 111.14 s, and still 111.00 s 2,216 steps later.
    ("TS-TEL-036", 34),
    # Samples per second of 0.005 where 2,048 samples took 384 s: divided by milliseconds. The last finding has 4 lines.
    *(("TS-TEL-038", line) for line in range(80, 88)),
    # The same rates next to those of the lines before, in which they are a thousand times as large.
    ("TS-TEL-038", 80),
    # The loss scale is halved, which an overflow does, and the line says that no iteration was skipped.
    *(("TS-TEL-042", line) for line in (4, 5, 71, 85, 86, 87, 89, 90)),
]
EXPECTED: dict[str, Expected] = {
    "bloom_megatron_log_lines.txt": BLOOM,
    # Worker 6 takes twice as long as the others in a few iterations in the middle, and recovers.
    "alibaba_pai2020_minibatch_job_1.csv": [("TS-TEL-035", 1818)],
    "dlrover_training_events.log": [
        # Samples fall from 576,777,624 to 15,456 between BEGIN and END of one step, and tokens with them.
        ("TS-TEL-024", 2),
        ("TS-TEL-024", 2),
    ],
    # A sound run of 5,120 accelerators: a slow first step, evaluations between blocks.
    "mlperf_v51_llama31_405b_5120xGB200.mllog.txt": [],
    # 28 block_stop and 27 block_start: the first block never started.
    "mlperf_v40_gpt3_tpu_v5p_12288_maxtext.mllog.txt": [("TS-TEL-043", 27)],
    "mlperf_v40_power_bert_1node_startstop_defect.txt": [
        # The text "null" stands for null in both entries.
        ("TS-TEL-001", 1),
        ("TS-TEL-001", 194),
        # The measurement stops in the moment in which it starts, and its readings go on for 383 s.
        ("TS-TEL-043", 194),
    ],
    # A reading every 2 s for 57 min on each node: nothing is wrong.
    **{f"power/mlperf_v40_gpt3_64nodes_node_{node}.txt": [] for node in (1, 2, 3)},
    # The program leaves its first ten steps out of times and means on purpose.
    "modded_nanogpt_muon_8xH100_steps.txt": [],
    # One scrape of two ports.
    "node_exporter_infiniband_fixture.prom": [],
    # Names of a library of their own: nothing of them is a metric or an event of the catalog.
    "otlp_example_metrics.json": [("TS-TEL-003", 1)],
    "otlp_example_logs.json": [("TS-TEL-003", 1)],
}
# Two columns of numbers without names: what they are is a guess.
UNKNOWN = "torchtitan_losses_sft_debugmodel_cuda.txt"


@pytest.mark.parametrize("name", EXPECTED)
def test_findings_are_those_that_a_person_agrees_with(name: str) -> None:
    report = validate([str(SAMPLES / name)])
    found = sorted((finding.requirement, finding.span.line if finding.span else 0) for finding in report.findings)
    assert found == sorted(EXPECTED[name])


def test_every_sample_of_telemetry_has_its_findings_here() -> None:
    files = {path for folder in (SAMPLES, SAMPLES / "power") for path in folder.glob("*") if path.is_file()}
    assert {path.relative_to(SAMPLES).as_posix() for path in files} - {"SOURCES.md"} == {*EXPECTED, UNKNOWN}


def test_three_nodes_of_one_measurement_are_sound_together() -> None:
    report = validate([str(SAMPLES / name) for name in EXPECTED if name.startswith("power/")])
    assert not report.findings


def test_what_a_log_cannot_hold_is_not_asked_of_it_but_told_as_absent() -> None:
    report = validate([str(SAMPLES / "mlperf_v51_llama31_405b_5120xGB200.mllog.txt")])
    (coverage,) = report.coverage
    assert "train.token.rate" in coverage.metrics_absent
    owed = next(outcome for outcome in report.outcomes if outcome.requirement == "TS-TEL-004")
    assert (owed.verdict, owed.reason) == (
        Verdict.NOT_APPLICABLE,
        "a log of the format mllog requires no metric",
    )


def test_a_file_that_is_nothing_known_says_so() -> None:
    with pytest.raises(InputError, match=f"{UNKNOWN}: is no log of a known format; logs of these programs are read"):
        validate([str(SAMPLES / UNKNOWN)])


def test_a_stream_of_other_names_says_which_names_it_has() -> None:
    report = validate([str(SAMPLES / "otlp_example_metrics.json")])
    (finding,) = report.findings
    assert "my.counter" in finding.help
