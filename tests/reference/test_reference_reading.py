"""From documents and a command line to a job, and what is refused on the way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trainspec_conformance.testbed import PLAIN
from trainspec_reference.common.job import EXTENSION, Job
from trainspec_reference.common.offers import refuse
from trainspec_reference.common.reading import (
    Changes,
    NotTrainableError,
    job_of,
    read_job,
    write_documents,
)
from trainspec_reference.common.weights import initial_weights

from tests.reference.plain_crew import PLANS
from trainspec_validate import Severity, validate
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types.plan import TrainingPlan

SETS = {
    "state-space": "policy.yaml",
    "transformer": "transformer-policy.yaml",
    "convolution": "convolution-policy.yaml",
}


def _plan(name: str = "state-space", **changes: Any) -> TrainingPlan:
    data = load_file(PLANS / f"{name}.yaml").data
    for key, values in changes.items():
        data[key] = {**data.get(key, {}), **values}
    return msgspec.convert(data, TrainingPlan)


@pytest.mark.parametrize(("plan", "policy"), SETS.items())
def test_plans_are_clean_and_count_their_parameters(plan: str, policy: str) -> None:
    report = validate([str(PLANS / name) for name in (f"{plan}.yaml", policy, "cluster.yaml")])
    assert report.at_or_above(Severity.WARNING) == ()
    job = read_job(PLANS / f"{plan}.yaml", PLANS / policy)
    size = sum(array.size for array in initial_weights(job.model, 0).values())
    assert size == job.plan.model.num_parameters
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job


def test_the_command_line_comes_before_the_plan() -> None:
    job = read_job(PLANS / "state-space.yaml", None, Changes(num_steps=3, num_ranks=4, seed=9, device="cuda"))
    assert (job.num_steps, job.seed, job.device, job.policy) == (3, 9, "cuda", None)
    batch, parallel = job.plan.batch, job.plan.parallelism
    assert (parallel.num_accelerators, parallel.data) == (4, 4)
    assert batch.global_sequences == batch.micro_sequences * batch.accumulation_steps * 4 == 16
    plain = read_job(PLANS / "state-space.yaml", None)
    assert (plain.num_steps, plain.seed, plain.device) == (100, 7, "cpu")
    assert (plain.rates.peak, plain.data.num_samples, plain.model.num_layers) == (3e-3, 4096, 2)


def test_micro_batches_shrink_where_ranks_do_not_divide() -> None:
    batch = job_of(_plan(), None, Changes(num_ranks=8)).plan.batch
    assert (batch.micro_sequences, batch.accumulation_steps) == (2, 1)
    assert batch.elastic is not None
    assert (batch.elastic.data_degrees, batch.elastic.micro_sequences) == ((1, 2, 4, 8), (2, 4))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"extensions": {EXTENSION: {"rate": {}}}}, "takes model, rates, data"),
        ({"extensions": {EXTENSION: {"rates": {"peek": 1}}}}, "rates takes peak"),
        ({"extensions": {EXTENSION: {"rates": {"peak": "high"}}}}, "Expected `float`, got `str`"),
        ({"extensions": {EXTENSION: []}}, "takes model"),
        ({"model": {"family": "other"}}, "model.family other is none of"),
        ({"synchrony": {"mode": "asynchronous"}}, "synchrony.mode"),
        ({"batch": {"loss_reduction": "sum"}}, "batch.loss_reduction"),
        ({"precision": {"recipe": {"format": "mxfp8"}}}, "precision.recipe"),
        ({"job": {"num_steps": None}}, "the plan lacks job.num_steps"),
    ],
)
def test_what_the_trainers_do_not_have_is_refused_by_its_key(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NotTrainableError, match=words):
        job_of(_plan(**changes), None)


def test_ranks_make_whole_replicas() -> None:
    plan = _plan(parallelism={"num_accelerators": 4, "data": 2, "tensor": 2})
    assert job_of(plan, None, Changes(num_ranks=6)).plan.parallelism.data == 3
    with pytest.raises(NotTrainableError, match="3 ranks do not make whole replicas of 2 ranks"):
        job_of(plan, None, Changes(num_ranks=3))


def test_wrong_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotTrainableError, match=r"policy\.yaml: .*kind"):
        read_job(PLANS / "policy.yaml", None)
    broken = tmp_path / "plan.yaml"
    broken.write_text("kind: TrainingPlan\n")
    with pytest.raises(NotTrainableError, match="trainspec-validate"):
        read_job(broken, None)


def test_documents_of_a_run_are_those_it_follows(tmp_path: Path) -> None:
    job = read_job(PLANS / "state-space.yaml", PLANS / "policy.yaml", Changes(num_ranks=4))
    paths = write_documents(job, PLANS / "cluster.yaml", tmp_path)
    assert [path.name for path in paths] == ["plan.json", "policy.json", "cluster.json"]
    assert json.loads(paths[0].read_text())["parallelism"]["num_accelerators"] == 4
    assert validate([str(path) for path in paths]).at_or_above(Severity.WARNING) == ()
    again = read_job(paths[0], paths[1])
    assert (again.model, again.rates, again.data, again.plan.batch) == (job.model, job.rates, job.data, job.plan.batch)


def test_documents_of_a_run_are_written_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("old")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/plan.json").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="nothing is written through links"):
        write_documents(read_job(PLANS / "state-space.yaml", None), None, tmp_path / "run")
    assert (tmp_path / "outside").read_text() == "old"


def _degrees(directory: Path, num_ranks: int, **changes: Any) -> tuple[int, ...] | None:
    """Data degrees that the plan of a run allows after one more start."""
    job = job_of(_plan(**changes), None, Changes(num_ranks=num_ranks))
    told = read_job(write_documents(job, None, directory, directory)[0], None).plan.batch.elastic
    return told.data_degrees if told else None


def test_the_plan_of_a_run_lists_the_degrees_of_all_its_starts(tmp_path: Path) -> None:
    inelastic: dict[str, Any] = {"batch": {"elastic": None}}
    assert [_degrees(tmp_path, n, **inelastic) for n in (2, 2, 4, 2, 1)] == [None, None, (2, 4), (2, 4), (1, 2, 4)]
    assert _degrees(tmp_path, 8) == (1, 2, 4, 8)
    assert _degrees(tmp_path, 2) == (1, 2, 4, 8)
    assert validate([str(tmp_path / "plan.json")]).at_or_above(Severity.ERROR) == ()
    (tmp_path / "plan.json").write_text("kind: TrainingPlan")
    with pytest.raises(NotTrainableError, match=r"plan\.json"):
        _degrees(tmp_path, 2)


@pytest.mark.parametrize(
    ("text", "words"), [(b"{}", "missing required field `plan`"), (b"{", "truncated"), (b'{"plan": 1}', "Expected")]
)
def test_a_job_that_is_none_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        msgspec.json.decode(text, type=Job)


def _divided(**fields: Any) -> dict[str, Any]:
    size = math.prod(fields.get(axis, 1) for axis in ("tensor", "pipeline", "context", "data"))
    return {"parallelism": {"num_accelerators": size, "data": 1, **fields}}


_TOP_K = {"communication": {"compression": {"method": "top-k"}}}


@pytest.mark.parametrize(
    ("backend", "changes", "words"),
    [
        (PLAIN, _divided(pipeline=2), "data ranks alone"),
        (PLAIN, _divided(context=2), "parallelism.context of this plan: set it to 1"),
        ("torch", _divided(context=2), "the keys of attention, which a state-space network has not"),
        (
            "torch",
            _divided(pipeline=2) | _TOP_K,
            "compression by top-k needs whole replicas: set sharding to none or opt",
        ),
        ("torch", _divided(data=2, sharding="parameters") | _TOP_K, "compression by top-k needs whole replicas"),
        ("torch", _divided(tensor=2), "a state-space network is not split"),
        ("torch", _divided(pipeline=2, sharding="parameters"), "the optimizer alone is sharded"),
        ("torch", _divided(pipeline=2, schedule="zero-bubble"), "by gpipe or 1f1b, not by zero-bubble"),
        ("torch", _divided(pipeline=2, stage_layers=[2, 0]), r"its stages hold \(1, 1\) layers"),
        ("jax", _divided(pipeline=2, schedule="1f1b"), "by gpipe, not by 1f1b"),
        ("jax", _divided(pipeline=2, num_virtual_stages=2), "num_virtual_stages of this plan: set it to 1"),
        ("jax", _divided(pipeline=3), "3 stages do not divide 2 layers"),
        ("jax", _divided(pipeline=2) | _TOP_K, "compression by top-k needs whole replicas"),
        ("jax", _divided(context=2), "the keys of attention, which a state-space network has not"),
    ],
)
def test_what_a_backend_does_not_divide_is_refused(backend: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(NotTrainableError, match=words):
        refuse(backend, job_of(_plan(**changes), None))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_what_a_backend_divides_is_let_pass(backend: str) -> None:
    refuse(backend, job_of(_plan(**_divided(pipeline=2, data=2, schedule="gpipe", sharding="optimizer")), None))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_context_ranks_share_attention_by_gathering_alone(backend: str) -> None:
    for method in (None, "all-gather"):
        refuse(backend, job_of(_plan("transformer", **_divided(context=2, context_method=method)), None))
    with pytest.raises(NotTrainableError, match=r"parallelism\.context_method of this plan: attention gathers keys"):
        refuse(backend, job_of(_plan("transformer", **_divided(context=2, context_method="ring")), None))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_gradients_are_summed_by_the_library_or_by_hosts(backend: str) -> None:
    for algorithm in ("automatic", "hierarchical"):
        refuse(backend, job_of(_plan(**_summed(algorithm)), None))
    with pytest.raises(NotTrainableError, match=r"collectives of this plan: .* automatic or hierarchical"):
        refuse(backend, job_of(_plan(**_summed("ring")), None))


def _summed(algorithm: str) -> dict[str, Any]:
    choice = {"operation": "all-reduce", "axis": "data", "algorithm": algorithm}
    return _divided(data=2) | {"communication": {"collectives": [choice]}}
