"""Gives a rule the prediction of a plan on its cluster, with its tolerance."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.performance.costs.stage_memory import MAX_CHUNKS
from trainspec_validate.performance.costs.step_errors import NO_RUN, band_of
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.outlook import outlook
from trainspec_validate.performance.forecast.predict import Prediction, predict
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, at
from trainspec_validate.rules._groups import ask_group
from trainspec_validate.rules._machine import check_fabric

FASTEST, SLOWEST = 0.6, 1.9
"""Least and largest time of a step over its prediction that a rule accepts. Requirements state these numbers."""
MARGIN = 1.3
"""How much further than the band of a family they are; a wider band decides nothing (`costs.step_errors.BANDS`)."""
LEAST_SOURCES = 2
"""A band of fewer says nothing of another stack."""
LEAST_RUNS = 15
"""A band of fewer runs decides nothing."""


class _Pair:
    """A plan with its cluster, compared by identity: documents of one run are the same objects for every rule."""

    __slots__ = ("cluster", "plan")

    def __init__(self, plan: TrainingPlan, cluster: ClusterProfile) -> None:
        self.plan, self.cluster = plan, cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pair) and self.plan is other.plan and self.cluster is other.cluster

    def __hash__(self) -> int:
        return hash((id(self.plan), id(self.cluster)))


@lru_cache(maxsize=16)
def _predicted(pair: _Pair) -> Prediction | Unpredictable:
    """The prediction, or why there is none. The cache keeps the documents, so that no identity is given twice."""
    try:
        return predict(pair.plan, pair.cluster)
    except Unpredictable as reason:
        return reason


def prediction_of(plan: TrainingPlan, cluster: ClusterProfile, *, frozen: bool = False) -> Prediction:
    """Prediction of a plan on its cluster; several rules share one prediction.

    Time and traffic are predicted where all parameters are trained, or adapters; `frozen` is for rules that ask for
    memory alone.

    Raises:
        NotApplicable: the batch contradicts itself, as another requirement reports.
        Unresolved: the documents lack what a prediction needs, or contradict each other.
        OpenGroup: the plan names none of several node groups.
    """
    ask_group(plan, cluster, whole_job=True)
    batch = plan.batch
    if plan.parallelism.data * batch.micro_sequences * batch.accumulation_steps != batch.global_sequences:
        raise NotApplicable("no prediction: the batch is not data ranks times micro-batch times accumulation")
    check_chunks(plan)
    check_fabric(plan, cluster)
    found = _predicted(_Pair(plan, cluster))
    if isinstance(found, Unpredictable):
        raise not_predicted(plan, found)
    if found.unknown_work and not frozen:
        raise Uncovered(at(plan), f"is not predicted: {found.unknown_work}")
    return found


def not_predicted(plan: TrainingPlan, why: Exception) -> Unresolved:
    """The answer of a rule that needs a prediction which there is none of."""
    is_uncovered = isinstance(why, Unpredictable) and why.is_uncovered
    reason = f"is not predicted: {why}"
    return Uncovered(at(plan), reason) if is_uncovered else Unresolved(at(plan), reason, "correct or add what is known")


def check_chunks(plan: TrainingPlan) -> None:
    """Refuse a pipeline that would take long to add up.

    Raises:
        Unresolved: it has more than `MAX_CHUNKS` chunks.
    """
    if plan.parallelism.pipeline * plan.parallelism.num_virtual_stages > MAX_CHUNKS:
        reason = f"is not predicted: the pipeline has more than {MAX_CHUNKS} chunks"
        raise Unresolved(at(plan, "parallelism", "pipeline"), reason, "use fewer stages, or fewer chunks of each")


def timed_prediction_of(plan: TrainingPlan, cluster: ClusterProfile, *, on_device: bool = False) -> Prediction:
    """A prediction whose time of a step can be held against other figures.

    `on_device` is for rules that ask for the time without transfers to the host.

    Raises:
        Unresolved: as `prediction_of`, or the plan offloads what no measured run does, or the pipeline has a
            schedule whose idle time no formula gives, or measured runs of this kind were too far from their
            predictions, or there are none.
    """
    found = prediction_of(plan, cluster)
    if found.untimed and not on_device:
        raise Uncovered(at(plan), f"has a step whose time is not predicted: {found.untimed}")
    if plan.parallelism.pipeline > 1 and plan.parallelism.schedule in {None, "none", "other"}:
        reason = "gives a pipeline schedule whose idle time no formula has"
        raise Unresolved(at(plan, "parallelism", "schedule"), reason, "name a schedule that is listed, where one fits")
    family = found.outlook.family
    band = band_of(family, named=True)
    if band is None:
        raise Uncovered(at(plan), f"has a step whose time is not predicted: {NO_RUN} ({family})")
    if band.low < FASTEST * MARGIN or band.high * MARGIN > SLOWEST:
        words = f"eight of ten measured runs took {band.low:.2f} to {band.high:.2f} times as long"
        raise Uncovered(at(plan), f"has a step whose time is predicted too roughly: {family}, {words}")
    if band.num_sources < LEAST_SOURCES:
        reason = f"has a step whose time is not predicted: measured runs of one source alone ({family})"
        raise Uncovered(at(plan), reason)
    if band.num_runs < LEAST_RUNS:
        reason = f"has a step whose time is not predicted: {band.num_runs} measured runs alone ({family})"
        raise Uncovered(at(plan), reason)
    return found


def rank_order_seconds(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[float, float] | None:
    """Predicted step with hosts in the order that the plan states, and in that of the topology; None if unknown."""
    try:
        found = prediction_of(plan, cluster)
        sorted_hosts = replace(found.settings, rank_order="topology")
        best = outlook(found.model, found.machine, found.layout, sorted_hosts)
    except (NotApplicable, Unpredictable, ValueError):
        return None
    return found.outlook.step.seconds, best.step.seconds
