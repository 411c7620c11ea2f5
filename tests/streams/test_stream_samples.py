"""Every published log and stream is recognised and read, and the defects that are in them are told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from reading import SAMPLES, Result, read_bytes

from tests.every import every
from trainspec_validate.telemetry.formats import Given, detect

LOGS = (
    ("mlperf_v51_llama31_405b_5120xGB200.mllog.txt", "mllog"),
    ("mlperf_v40_gpt3_tpu_v5p_12288_maxtext.mllog.txt", "mllog"),
    ("mlperf_v40_power_bert_1node_startstop_defect.txt", "mllog"),
    ("power/mlperf_v40_gpt3_64nodes_node_1.txt", "mllog"),
    ("power/mlperf_v40_gpt3_64nodes_node_2.txt", "mllog"),
    ("power/mlperf_v40_gpt3_64nodes_node_3.txt", "mllog"),
    ("bloom_megatron_log_lines.txt", "megatron-log"),
    ("dlrover_training_events.log", "dlrover-events"),
    ("alibaba_pai2020_minibatch_job_1.csv", "alibaba-minibatch"),
    ("modded_nanogpt_muon_8xH100_steps.txt", "nanogpt-log"),
    ("node_exporter_infiniband_fixture.prom", "prometheus"),
    ("otlp_example_metrics.json", "otlp"),
    ("otlp_example_logs.json", "otlp"),
)
NONE = ("torchtitan_losses_sft_debugmodel_cuda.txt", "SOURCES.md")
FILES = {path.name: path for path in sorted(SAMPLES.glob("**/*"))} if SAMPLES.is_dir() else {}
TOPOLOGY = [path for path in FILES.values() if "topology" in path.parts and path.is_file()]
pytestmark = pytest.mark.skipif(
    not any(Path(name).name in FILES for name, _ in LOGS), reason="no samples; TRAINSPEC_SAMPLES names their folder"
)
LOSS = "train.loss.mean{train.loss.name=total}"


def sample(name: str, **given: object) -> Result:
    return read_bytes((SAMPLES / name).read_bytes(), None, Given(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "wanted"), LOGS)
def test_a_sample_is_recognised_and_read(name: str, wanted: str) -> None:
    found = detect((SAMPLES / name).read_bytes())
    assert found
    assert found.name == wanted
    assert sample(name).losses.entries


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_stream_has_no_format(name: str) -> None:
    assert detect((SAMPLES / name).read_bytes()) is None


@every("path", [p for p in FILES.values() if "topology" in p.parts and p.is_file()], ids=lambda p: p.name)
def test_files_about_topology_are_no_streams(path: Path) -> None:
    assert detect(path.read_bytes()) is None


def test_a_run_of_5120_accelerators() -> None:
    found = sample(LOGS[0][0])
    assert not found.refusals
    steps = [s for s in found.samples if LOSS in s.m]
    assert [s.step for s in steps] == list(range(1, 271))
    assert [s.m["train.sample.count"] for s in steps] == [1280.0 * step for step in range(1, 271)]
    assert steps[0].m["train.token.count{train.token.kind=all}"] == 1280.0 * 8192
    assert steps[0].m["train.step.duration"] == pytest.approx(11.6447, abs=1e-4)
    assert [event.step for event in found.events if event.name == "train.evaluation.begin"] == [240, 255, 270]
    assert [list(event.m.values()) for event in found.events if event.name == "train.evaluation.end"] == [
        [5.647665977478027],
        [5.607779026031494],
        [5.553872108459473],
    ]
    assert found.lost["step", "tracked_stats.train_step_time"] == 3


def test_a_run_of_12288_accelerators_with_an_unbalanced_block() -> None:
    found = sample(LOGS[1][0])
    assert [(refusal.code, refusal.message) for refusal in found.refusals] == [
        ("interval", "block_stop closes nothing: no block is open")
    ]
    evaluations = [s for s in found.samples if "train.batch.size" not in s.m]
    assert [s.step for s in evaluations] == [4 * n for n in range(1, 29)]
    assert found.lost["step", "epoch_num"] == 28


def test_power_that_was_measured_for_no_time() -> None:
    found = sample(LOGS[2][0])
    assert [refusal.code for refusal in found.refusals] == ["value", "value", "interval"]
    assert "takes 0 s, but 192 readings span 382.941 s" in found.refusals[2].message


@pytest.mark.parametrize("name", [name for name, _ in LOGS if name.startswith("power/")])
def test_power_of_a_node(name: str) -> None:
    found = sample(name)
    assert not found.refusals
    assert len(found.values("hw.power{hw.type=enclosure}")) == 1701
    assert found.heads[0].host == "file"


def test_lines_of_bloom() -> None:
    found = sample("bloom_megatron_log_lines.txt", quantities={"peak_flops_per_second": 312e12})
    assert len(found.samples) == 90
    codes = Counter(refusal.code for refusal in found.refusals)
    assert codes == {"cut-off": 7, "rate": 11, "skip": 8, "step": 6}
    durations = [s.m["train.step.duration"] for s in found.samples if "train.step.duration" in s.m]
    assert len(durations) == 89
    assert min(durations) > 10
    assert max(durations) < 900
    # Samples per second are a thousand times too small in some lines; both figures are there to compare.
    both = [s.m for s in found.samples if {"train.token.rate", "train.batch.size", "train.step.duration"} <= s.m.keys()]
    wrong = [m for m in both if m["train.token.rate"] * 100 < m["train.batch.size"] * 2048 / m["train.step.duration"]]  # type: ignore[operator]
    assert (len(both), len(wrong)) == (47, 11)
    frozen = [s for s in found.samples if s.m.get("train.gradient.norm") == 464441.887]
    assert len(frozen) == 5
    assert len(found.values("train.flops.utilization")) == 47
    assert found.lost["step", "iteration"] == 11


def test_events_of_dlrover() -> None:
    found = sample("dlrover_training_events.log")
    assert found.values("train.sample.count")[:2] == [576777624.0, 15456.0]
    assert found.values("train.step.duration") == [1374.4273092746735]
    commits = [event for event in found.events if event.name == "train.checkpoint.commit"]
    assert [event.step for event in commits] == [177215, 177413]
    assert [round(next(iter(event.m.values())).sum, 1) for event in commits] == [91.6, 91.0]  # type: ignore[union-attr]
    assert found.losses.clock == "local"


def test_workers_of_alibaba() -> None:
    found = sample("alibaba_pai2020_minibatch_job_1.csv")
    assert len(found.samples) == 3_000

    def slowdown(rank: int, start: int) -> float:
        mine = [
            s.m["train.rank.slowdown"] for s in found.samples if s.rank == rank and start <= (s.step or 0) < start + 500
        ]
        return sum(mine) / len(mine)  # type: ignore[arg-type]

    # Worker 6 becomes slow in the middle of the training.
    growth = {rank: slowdown(rank, 1_500) / slowdown(rank, 1_000) for rank in range(10)}
    assert growth[6] > 1.1
    assert all(growth[rank] < 1.05 for rank in growth if rank != 6)


def test_steps_of_nanogpt() -> None:
    found = sample("modded_nanogpt_muon_8xH100_steps.txt")
    assert not found.refusals
    assert found.values("train.step.count") == [float(n) for n in range(1, 6201)]
    durations = found.values("train.step.duration")
    assert sum(durations[12:]) / len(durations[12:]) == pytest.approx(0.21633, rel=1e-3)
    assert [s.a for s in found.samples if s.step == 12] == [{"train.step.warmup": True}]
    times = [s.time_us for s in found.samples]
    assert times == sorted(times)


def test_ports_of_infiniband() -> None:
    found = sample("node_exporter_infiniband_fixture.prom")
    assert [s.device for s in found.samples] == ["mlx4_0/1", "mlx4_0/2"]
    assert found.samples[0].m["hw.network.io{network.io.direction=transmit}"] == 14933760.0
    assert found.lost["unit", "node_infiniband_port_transmit_wait_total"] == 1
    assert found.losses.clock == "none"


@pytest.mark.parametrize("name", ["otlp_example_metrics.json", "otlp_example_logs.json"])
def test_examples_of_opentelemetry_have_nothing_of_the_catalog(name: str) -> None:
    found = sample(name)
    assert not found.records
    assert not found.refusals
    assert sum(loss.num for loss in found.losses.entries) == (4 if "metrics" in name else 1)
