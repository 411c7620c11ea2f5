"""Searches the best plans of a job for a program, and gives them as typed documents and as texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from trainspec_validate.documents.commented import as_text
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import (
    CheckpointPolicy,
    ClusterProfile,
    TrainingPlan,
    part,
    read,
)
from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.catalog import models
from trainspec_validate.model.suggest import did_you_mean, meant
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.pipeline.form import Kind, refuse_errors, typed
from trainspec_validate.pipeline.inputs import Input, name_of
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.planner import explain, plan_text, safety
from trainspec_validate.planner.constraints import FREE, Constraints
from trainspec_validate.planner.groups import planned
from trainspec_validate.planner.request import Adapters, Impossible, Request, Wishes, model_of
from trainspec_validate.planner.search import Progress, Ranking, Scored
from trainspec_validate.system.boundary import InputError

_OPTION = re.compile(r"--([a-z][a-z-]*)")


class NoPlanError(InputError):
    """The model cannot be trained on the cluster as asked; the text says what is absent, or what to change."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A way to train a model on a cluster, with what is predicted of it."""

    plan: TrainingPlan
    policy: CheckpointPolicy | None
    """Saves and recovery of the job; None without a predicted step."""
    plan_text: str
    """The plan as YAML, with the reason for each choice in a comment."""
    policy_text: str | None
    step_seconds: float | None
    """Predicted time of one optimizer step; None for a job that fits with offload to the host alone."""
    low_step_seconds: float | None
    """Eight of ten measured runs of this kind took from this time; None where no run of this kind was measured."""
    high_step_seconds: float | None
    """To this one."""
    memory_bytes: float
    """Predicted peak of the rank that needs most."""
    model_flops_utilization: float | None
    """Predicted, between 0 and 1; None without a predicted step."""
    not_predicted: str | None = None
    """Why the time of a step is not predicted."""


@dataclass(frozen=True, slots=True)
class PlanSearch:
    """Plans that a search found."""

    jobs: tuple[PlannedJob, ...]
    """The simplest of those that predictions do not distinguish from the fastest, then the best of each other kind."""
    assumptions: tuple[str, ...]
    """Facts that were neither in the documents nor asked for, one sentence each."""
    notes: tuple[str, ...]
    """Other answers than the plans, such as whether a job over all node groups is predicted."""
    num_layouts: int
    """Layouts that divide the job over its ranks."""
    num_too_large: int
    """Layouts of which no form fits into memory."""


def plan(  # noqa: PLR0913
    cluster: Input,
    model: str | Input,
    *,
    num_ranks: int | None = None,
    node_group: str | None = None,
    global_sequences: int | None = None,
    sequence_length: int | None = None,
    num_tokens: float | None = None,
    number_format: Literal["bf16", "fp16", "fp8"] = "bf16",
    framework: str | None = None,
    reserve_bytes: float | None = None,
    constraints: Constraints = FREE,
    num_jobs: int = 1,
    progress: Progress | None = None,
) -> PlanSearch:
    """Search the best way to train a model on a cluster, as `trainspec plan` does. Nothing is written to a file.

    Args:
        cluster: the cluster profile.
        model: name of a model of the catalog, such as `llama3-70b`, or a training plan whose model is taken.
        num_ranks, node_group: ranks of the job, all of the node group without it; the fastest group without a name.
        global_sequences: sequences of one optimizer step.
        sequence_length: tokens of one sequence.
        num_tokens: tokens of the whole job.
        number_format: format of the matrix products.
        framework: training framework whose kernels and overlap predictions take, such as `megatron-core==0.12`.
        reserve_bytes: memory of a rank to leave to contexts and collectives; 4e9, and 0 on TPUs, without it.
        constraints: degrees of parallelism, or limits of them, that a layout has to keep to.
        num_jobs: jobs to return, at least 1; there may be fewer.
        progress: called with the number of layouts that were compared, and of all.

    Raises:
        NoPlanError: the model cannot be trained on the cluster as asked.
        InvalidDocumentError: the validator finds errors in the documents.
        InputError: a document cannot be read or is of another kind, or there is no such model.
    """
    size = (num_ranks, node_group, global_sequences, sequence_length, num_tokens)
    wishes = Wishes(*size, number_format, reserve_bytes, framework, constraints)
    return _searched(document_of(cluster, ClusterProfile), _model(model), wishes, num_jobs, progress, name_of(cluster))


def _searched(  # noqa: PLR0913, PLR0917
    cluster: ClusterProfile,
    trained: tuple[Model, Adapters | None],
    wishes: Wishes,
    num_jobs: int,
    progress: Progress | None,
    name: str,
) -> PlanSearch:
    model, adapters = trained
    try:
        found = planned(cluster, model, wishes, adapters, num_jobs, progress)
    except (Impossible, Unpredictable) as error:
        raise NoPlanError(f"{name}: {_in_python(str(error))}") from error
    asked, ranking = found.request, found.ranking
    if not ranking.plans:
        raise NoPlanError(f"{name}: {_in_python(explain.nothing_fits(asked, ranking))}")
    why = plan_text.too_long(asked, ranking.plans[0]) or safety.nowhere(asked)
    if why:
        raise NoPlanError(f"{name}: {_in_python(why)}")
    jobs = tuple(_job(asked, ranking, scored) for scored in ranking.plans if not plan_text.too_long(asked, scored))
    assumptions, notes = (tuple(map(_in_python, words)) for words in (asked.assumptions, asked.notes))
    return PlanSearch(jobs, assumptions, notes, ranking.num_layouts, ranking.num_too_large)


def document_of(source: Input, kind: type[Kind]) -> Kind:
    """The typed document of an input.

    Raises:
        InvalidDocumentError: the validator finds errors in it.
        InputError: it cannot be read, or is of another kind.
    """
    report, name = validate(source), name_of(source)
    refuse_errors(report, f"{name}: no {kind.__name__} that can be used", name)
    return typed(report, name, kind)


def _model(model: str | Input) -> tuple[Model, Adapters | None]:
    """A model of the catalog by its name, or that of a training plan with its adapters."""
    known = {name.casefold(): entry for name, entry in models().items()}
    if not isinstance(model, str) or model.lower().endswith((".yaml", ".yml", ".json")):
        try:
            return model_of(document_of(model, TrainingPlan))
        except Impossible as error:
            raise NoPlanError(f"{name_of(model)}: {error}") from error
    entry = known.get(model.casefold())
    if entry is None:
        near = did_you_mean(model, models())
        listed = meant(model, near) if near else "`trainspec catalog --models` lists them"
        raise InputError(f"no model is called {model!r}; {listed}")
    return part(Model, {"name": entry.name, **entry.model}), None


def _job(asked: Request, ranking: Ranking, scored: Scored) -> PlannedJob:
    cluster = f"{{name: {as_text(asked.cluster.metadata.name)}}}"
    texts = plan_text.documents(asked, ranking, scored, cluster, by_name=True)
    plan_yaml, policy_yaml = texts[plan_text.PLAN_FILE], texts.get(plan_text.POLICY_FILE)
    planned = read("TrainingPlan", _data(plan_yaml))
    policy = None if policy_yaml is None else read("CheckpointPolicy", _data(policy_yaml))
    if not (isinstance(planned, TrainingPlan) and (policy is None or isinstance(policy, CheckpointPolicy))):
        raise TypeError("a plan was read as another kind")
    is_timed, outlook = scored.untimed is None, scored.outlook
    return PlannedJob(
        plan=planned,
        policy=policy,
        plan_text=plan_yaml,
        policy_text=policy_yaml,
        step_seconds=scored.seconds if is_timed else None,
        low_step_seconds=outlook.low_seconds if is_timed else None,
        high_step_seconds=outlook.high_seconds if is_timed else None,
        memory_bytes=scored.memory.total,
        model_flops_utilization=outlook.utilisation if is_timed else None,
        not_predicted=scored.untimed,
    )


def _data(text: str) -> object:
    return load_text(text, plan_text.PLAN_FILE).data


def _in_python(text: str) -> str:
    """A text that names options of the command line, with the names of the parameters."""
    names = {"tokens": "num_tokens"}
    return _OPTION.sub(lambda match: names.get(match[1], match[1].replace("-", "_")), text)
