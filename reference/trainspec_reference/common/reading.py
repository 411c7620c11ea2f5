"""Reads plan, cluster and policy, with what a command line changes of them, into a job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trainspec_reference.common.job import EXTENSION, Data, Job, ModelShape, Rates
from trainspec_validate.documents import types as documents
from trainspec_validate.documents.load import LoadError, load_file
from trainspec_validate.documents.types.batch import Batch, ElasticBatch
from trainspec_validate.documents.types.checkpoint import CheckpointPolicy
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.plan import TrainingPlan
from trainspec_validate.system.atomic import write_atomically

_FAMILIES = {
    "dense-transformer": "transformer",
    "moe-transformer": "transformer",
    "cnn": "convolution",
    "state-space": "state-space",
}
_SIZES = ("num_layers", "hidden_size", "ffn_hidden_size", "vocabulary_size", "sequence_length")
_SECTIONS = {"model": ModelShape, "rates": Rates, "data": Data}
_ALONE = ("device", "evaluation_interval_steps", "replica_check_steps", "rebalance_interval_steps", "min_step_seconds")
_REFERENCES = {"plan", "policy", "cluster"}
"""Keys of a document that name another one."""
Part = TypeVar("Part", ModelShape, Rates, Data)


@dataclass(frozen=True, slots=True)
class Changes:
    """Command-line values that replace values of the plan; None keeps the plan's value."""

    num_steps: int | None = None
    num_ranks: int | None = None
    seed: int | None = None
    device: str | None = None


class NotTrainableError(ValueError):
    """A document is fine, but asks for what the reference trainers do not have, or is none of theirs."""


def read_job(plan: Path, policy: Path | None, changes: Changes = Changes()) -> Job:
    """The job of these documents.

    Raises:
        NotTrainableError: a file cannot be read, or the trainers do not have what it asks for; the message names it.
    """
    return job_of(_document(plan, TrainingPlan), _document(policy, CheckpointPolicy) if policy else None, changes)


_Kind = TypeVar("_Kind", TrainingPlan, CheckpointPolicy)


def _document(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        found = documents.read(kind.__name__, load_file(path).data)
    except LoadError as error:
        raise NotTrainableError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        raise NotTrainableError(f"{path}: {error}; `trainspec-validate {path}` reports the lines") from error
    if not isinstance(found, kind):
        raise NotTrainableError(f"{path} is a {type(found).__name__}, wanted a {kind.__name__}")
    return found


def job_of(plan: TrainingPlan, policy: CheckpointPolicy | None, changes: Changes = Changes()) -> Job:
    """The job of typed documents; the plan of the job says what is really done.

    Raises:
        NotTrainableError: as `read_job`.
    """
    told = plan.extensions.get(EXTENSION, {})
    if not isinstance(told, Mapping) or not told.keys() <= {*_SECTIONS, *_ALONE}:
        raise NotTrainableError(f"extensions.{EXTENSION} takes {', '.join([*_SECTIONS, *_ALONE])}, not {told}")
    num_steps = changes.num_steps or (plan.job.num_steps if plan.job else None)
    if num_steps is None:
        raise NotTrainableError("the plan lacks job.num_steps; set it, or use --steps")
    planned_seed = plan.job.seed if plan.job else None
    model = _section(ModelShape, told, _model(plan.model))
    plan = _on_ranks(plan, changes.num_ranks or plan.parallelism.num_accelerators)
    job = Job(
        plan=plan,
        policy=policy,
        num_steps=num_steps,
        seed=changes.seed if changes.seed is not None else planned_seed or 0,
        model=model,
        rates=_section(Rates, told, {}),
        data=_section(Data, told, {}),
        **{key: told[key] for key in _ALONE if key in told} | ({"device": changes.device} if changes.device else {}),
    )
    _refuse(job)
    return job


def _model(model: Model) -> dict[str, Any]:
    if model.family not in _FAMILIES:
        raise NotTrainableError(f"model.family {model.family} is none of {', '.join(_FAMILIES)}")
    sizes = {key: getattr(model, key) for key in _SIZES if getattr(model, key) is not None}
    heads = {"num_heads": model.num_attention_heads} if model.num_attention_heads else {}
    return {"family": _FAMILIES[model.family], **sizes, **heads, **_experts(model)}


def _experts(model: Model) -> dict[str, int]:
    """The sizes of a mixture of experts, which takes the place of each feed-forward network."""
    experts = model.experts
    if experts is None:
        return {}
    wrong = {
        "num_shared_experts": experts.num_shared_experts != 0,
        "num_layers": experts.num_layers not in (None, model.num_layers),
        "num_active_experts": experts.num_active_experts > experts.num_experts,
    }
    for key, is_wrong in wrong.items():
        if is_wrong:
            raise NotTrainableError(f"the reference trainers do not support model.experts.{key} of this plan")
    width = {} if experts.ffn_hidden_size is None else {"ffn_hidden_size": experts.ffn_hidden_size}
    return {"num_experts": experts.num_experts, "num_active_experts": experts.num_active_experts, **width}


def _section(kind: type[Part], told: Mapping[str, Any], base: dict[str, Any]) -> Part:
    """A part of the job from its defaults, what the plan implies, and what its extension says."""
    name = next(name for name, each in _SECTIONS.items() if each is kind)
    said = told.get(name, {})
    known = [field.name for field in fields(kind)]
    if not isinstance(said, Mapping) or not said.keys() <= set(known):
        raise NotTrainableError(f"extensions.{EXTENSION}.{name} takes {', '.join(known)}, not {said}")
    try:
        return msgspec.convert({**base, **said}, kind)
    except msgspec.ValidationError as error:
        raise NotTrainableError(f"extensions.{EXTENSION}.{name}: {error}") from error


def _on_ranks(plan: TrainingPlan, num_ranks: int) -> TrainingPlan:
    """The plan on another number of ranks: data ranks change, and expert ranks where they must; the batch stays."""
    parallel, batch = plan.parallelism, plan.batch
    replica = parallel.tensor * parallel.pipeline * parallel.context
    data, rest = divmod(num_ranks, replica)
    if rest or not data:
        raise NotTrainableError(f"{num_ranks} ranks do not make whole replicas of {replica} ranks")
    if num_ranks == parallel.num_accelerators:
        return plan
    expert = math.gcd(parallel.expert, data)
    parallel = documents.changed(parallel, num_accelerators=num_ranks, data=data, expert=expert)
    return documents.changed(plan, parallelism=parallel, batch=_accumulated(batch, data))


def _accumulated(batch: Batch, num_data_ranks: int) -> Batch:
    micro = batch.micro_sequences
    while batch.global_sequences % (micro * num_data_ranks) and micro > 1:
        micro -= 1
    steps = max(1, batch.global_sequences // (micro * num_data_ranks))
    elastic = batch.elastic
    if elastic is not None:  # what is asked for is one of the sizes that the job may have
        degrees = tuple(sorted({*elastic.data_degrees, num_data_ranks}))
        micros = tuple(sorted({*elastic.micro_sequences, micro}))
        elastic = documents.changed(elastic, data_degrees=degrees, micro_sequences=micros)
    return documents.changed(batch, micro_sequences=micro, accumulation_steps=steps, elastic=elastic)


def _with_earlier_degrees(plan: TrainingPlan, before: Path | None) -> TrainingPlan:
    """The plan with all data degrees that the run has had, or may have had, since its first start."""
    if before is None or not (before / "plan.json").exists():
        return plan
    batches = [plan.batch, (earlier := _document(before / "plan.json", TrainingPlan)).batch]
    elastic = [batch.elastic for batch in batches if batch.elastic is not None]
    degrees = {plan.parallelism.data, earlier.parallelism.data, *(each for one in elastic for each in one.data_degrees)}
    if len(degrees) == 1 or (plan.batch.elastic is not None and degrees == set(plan.batch.elastic.data_degrees)):
        return plan
    micros = {batch.micro_sequences for batch in batches} | {each for one in elastic for each in one.micro_sequences}
    told = ElasticBatch(data_degrees=tuple(sorted(degrees)), micro_sequences=tuple(sorted(micros)))
    return documents.changed(plan, batch=documents.changed(plan.batch, elastic=told))


def _refuse(job: Job) -> None:
    """Raise where the job has a setting that the trainers do not support."""
    plan, batch, precision = job.plan, job.plan.batch, job.plan.precision
    compression = plan.communication.compression if plan.communication else None
    is_compressed = compression is not None and compression.method != "none"
    wrong = {
        "synchrony.mode": plan.synchrony.mode != "synchronous",
        "model.gated_ffn": plan.model.gated_ffn and plan.model.experts is not None,
        "batch.noise_scale (with EP ranks)": batch.noise_scale is not None and plan.parallelism.expert > 1,
        "batch.loss_reduction": batch.loss_reduction != "global-token-mean",
        "batch.controller.signal": batch.controller is not None and batch.controller.signal != "gradient-noise-scale",
        "batch.noise_scale (with compression)": batch.noise_scale is not None and is_compressed,
        "precision.recipe": precision.recipe is not None,
        "rebalance_interval_steps (with sharded parameters)": job.rebalance_interval_steps is not None
        and plan.parallelism.sharding == "parameters",
    }
    for key, is_wrong in wrong.items():
        if is_wrong:
            raise NotTrainableError(f"the reference trainers do not support {key} of this plan")


def write_documents(job: Job, cluster: Path | None, directory: Path, before: Path | None = None) -> tuple[Path, ...]:
    """Write the effective documents of the job into its directory, and return their paths.

    They name a cluster only where its profile is written with them.
    `before` is where an earlier start of the same run wrote its own. The plan lists its data degrees as elastic ones,
    too, because the records that it left are of this run.

    Raises:
        NotTrainableError: the plan of the earlier start cannot be read.
    """
    texts: dict[str, Any] = {"plan": documents.plain(_with_earlier_degrees(job.plan, before))}
    if job.policy is not None:
        texts["policy"] = documents.plain(job.policy)
    if cluster is not None:
        texts["cluster"] = load_file(cluster).data
    for text in texts.values():
        if cluster is None:
            text.pop("cluster", None)
        for key in _REFERENCES & text.keys():
            text[key].pop("file", None)  # the files of the run have names of their own
    found = []
    for name, text in texts.items():
        found.append(directory / f"{name}.json")
        write_atomically(found[-1], json.dumps(text, indent=1) + "\n")
    return tuple(found)
