"""Runs whose ranks divide experts: they validate, follow the golden trace, change their degree, and lose a rank."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_traces
import msgspec
import pytest
from recovery_run import PLANS, Run
from trainspec_conformance.testbed import conform
from trainspec_conformance.testbed.planted import PlantedFault, planted
from trainspec_conformance.testbed.precision import loss_tolerance
from trainspec_reference.common import decisions
from trainspec_reference.common.job import Job
from trainspec_reference.common.offers import refuse
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.common.reading import Changes, NotTrainableError, job_of, read_job
from trainspec_reference.common.weights import initial_weights

from trainspec_validate import Severity, validate
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types.conformance import Task, TestJob
from trainspec_validate.documents.types.parallelism import Parallelism
from trainspec_validate.documents.types.plan import TrainingPlan

POLICY = PLANS / "experts-policy.yaml"


def _plan(**changes: Any) -> TrainingPlan:
    data = load_file(PLANS / "experts.yaml").data
    for key, values in changes.items():
        data[key] = {**data.get(key, {}), **values}
    return msgspec.convert(data, TrainingPlan)


def _job(num_steps: int, num_ranks: int, *faults: PlantedFault, **changes: Any) -> Job:
    job = read_job(PLANS / "experts.yaml", POLICY, Changes(num_steps=num_steps, num_ranks=num_ranks))
    return planted(replace(job, **changes), faults)


def test_the_plan_is_clean_and_counts_its_parameters() -> None:
    report = validate([str(path) for path in (PLANS / "experts.yaml", POLICY, PLANS / "cluster.yaml")])
    assert report.at_or_above(Severity.WARNING) == ()
    job = read_job(PLANS / "experts.yaml", POLICY)
    sizes = {name: array.size for name, array in initial_weights(job.model, 0).items()}
    assert sum(sizes.values()) == job.plan.model.num_parameters
    idle = sum(size // 2 for name, size in sizes.items() if "/expert_" in name)
    rows = sizes["position_embedding"] - job.model.hidden_size
    assert sum(sizes.values()) - idle - rows == job.plan.model.num_active_parameters


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"experts": {"num_experts": 4, "num_active_experts": 5}}}, "num_active_experts"),
        ({"model": {"experts": {"num_experts": 4, "num_active_experts": 2, "num_shared_experts": 1}}}, "num_shared"),
        ({"model": {"experts": {"num_experts": 4, "num_active_experts": 2, "num_layers": 1}}}, "experts.num_layers"),
        ({"model": {"gated_ffn": True}}, "model.gated_ffn"),
        ({"model": {"experts": {"num_experts": 5, "num_active_experts": 2}}}, "parallelism.expert .* 5 experts"),
        ({"model": {"experts": None, "family": "dense-transformer"}}, "parallelism.expert .* no experts"),
        ({"parallelism": {"num_accelerators": 4, "tensor": 2}}, "parallelism.tensor "),
        ({"parallelism": {"expert_tensor": 2}}, "parallelism.expert_tensor"),
        ({"parallelism": {"sharding": "parameters"}}, "parallelism.sharding"),
        ({"parallelism": {"order": ["tensor", "context", "data", "expert", "pipeline"]}}, "parallelism.order"),
        ({"communication": {"compression": {"method": "bf16"}}}, "expert to 1"),
        (
            {"batch": {"noise_scale": {"noise_unit": "token", "tap": "after-unscale-before-clip", "num_groups": 4,
                                       "estimator": "size-weighted", "ema_half_life_steps": 10,
                                       "bias_corrected": True}}},
            "batch.noise_scale",
        ),
    ],
)  # fmt: skip
def test_what_the_trainer_does_not_divide_is_refused_by_its_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NotTrainableError, match=words):
        refuse("torch", job_of(_plan(**changes), None))


def test_other_backends_have_no_experts() -> None:
    refuse("torch", job_of(_plan(), None))
    for backend in ("jax", "plain"):
        with pytest.raises(NotTrainableError, match=r"parallelism\.expert"):
            refuse(backend, job_of(_plan(), None, Changes(num_ranks=1)))


@pytest.mark.parametrize(("num_ranks", "degree"), [(1, 1), (2, 2), (3, 1), (4, 2), (8, 2)])
def test_expert_ranks_follow_the_number_of_ranks(num_ranks: int, degree: int) -> None:
    assert job_of(_plan(), None, Changes(num_ranks=num_ranks)).plan.parallelism.expert == degree


def test_survivors_are_as_many_as_hold_all_experts() -> None:
    job = job_of(_plan(batch={"elastic": {"data_degrees": [1, 2, 3, 4], "micro_sequences": [4]}}), None)
    assert [decisions.shrunk_size(job, num_left) for num_left in (1, 2, 3, 4)] == [None, 2, 2, 4]
    with pytest.raises(ValueError, match="3 data ranks do not make groups of 2"):
        RankGrid(Parallelism(num_accelerators=4, data=4, expert=2), 3)


@pytest.mark.parametrize(("num_ranks", "degree"), [(1, 1), (2, 2), (3, 1), (4, 2)])
@pytest.mark.parametrize("name", conform.NETWORKS)
def test_tasks_of_the_suite_train_either_network(name: str, num_ranks: int, degree: int) -> None:
    network = conform.NETWORKS[name]
    job = conform.job_of(TestJob(num_ranks=num_ranks), network)
    refuse("torch", job)
    assert job.plan.parallelism.expert == (degree if name == "experts" else 1)
    size = sum(array.size for array in initial_weights(job.model, 0).values())
    assert size == job.plan.model.num_parameters == network.num_parameters


@pytest.mark.parametrize("words", [["convolution"], ["cuda", "cpu"], ["experts", "state-space"], ["cuda", "tpu"]])
def test_a_network_or_device_that_the_suite_has_not_is_wrong_use(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert conform.main(["torch", "task.json", *words]) == 2
    assert "[state-space | experts] [cpu | cuda]" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "device"), [([], "cpu"), (["cuda"], "cuda"), (["experts", "cuda"], "cuda")])
def test_tasks_of_the_suite_train_on_the_device_that_is_named(
    words: list[str], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Job] = []
    monkeypatch.setattr(conform, "launch", lambda assignment, *_: jobs.append(assignment.job) or 0)
    places = {f"{name}_directory": str(tmp_path / name) for name in ("checkpoint", "trace", "stream")}
    task = Task(apiVersion="trainspec/v1", run="r", attempt=0, resume=False, job=TestJob(num_ranks=2), **places)
    (tmp_path / "task.json").write_bytes(msgspec.json.encode(task))
    assert conform.main(["torch", str(tmp_path / "task.json"), *words]) == 0
    assert [job.device for job in jobs] == [device]


def _follows(run: Run, kept: list[float]) -> None:
    losses = run.losses()
    assert sorted(losses) == list(range(1, len(kept) + 1))
    assert [losses[step] for step in sorted(losses)] == pytest.approx(kept, rel=loss_tolerance("fp32"))


@pytest.mark.long
def test_a_run_follows_the_golden_trace_with_any_degree(tmp_path: Path) -> None:
    kept = golden_traces.golden("experts")["losses"]
    for num_steps, num_ranks in ((50, 2), (75, 1), (100, 4)):
        run = Run(tmp_path / "run", _job(num_steps, num_ranks), backend="torch")
        try:
            assert run.run() == 0
        finally:
            run.end()
    _follows(run, kept)
    manifest = json.loads((tmp_path / "run/checkpoints/step-00000100/trainspec-manifest.json").read_text())
    assert manifest["layout"]["expert"] == 2


@pytest.mark.long
def test_a_lost_expert_rank_changes_no_number(tmp_path: Path) -> None:
    given = {"min_step_seconds": 0.005}
    whole = Run(tmp_path / "whole", _job(40, 2, **given), backend="torch")
    lost = Run(tmp_path / "lost", _job(40, 2, PlantedFault("exception", 1, 33), **given), backend="torch")
    try:
        assert (whole.run(), lost.run()) == (0, 0)
    finally:
        whole.end()
        lost.end()
    assert {(fault["kind"], fault["rank"]) for fault in lost.records("fault")} == {("process", 1)}
    assert lost.losses() == whole.losses()
    assert lost.digest == whole.digest
    restored = [record for record in lost.records("restore") if record.get("attempt")]
    assert {(record["source"], record["step"]) for record in restored} == {("checkpoint", 25)}
