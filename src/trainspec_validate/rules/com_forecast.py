"""Rules on communication that need a prediction: algorithms, exposed communication, buckets, compression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.communication import CollectiveChoice, Compression
from trainspec_validate.model.units import base, bytes_, number, percent, seconds
from trainspec_validate.performance.costs import collectives
from trainspec_validate.performance.costs.collectives import Estimate
from trainspec_validate.performance.derived.machine import step_seconds
from trainspec_validate.performance.forecast.outlook import PlannedCollective, Settings, outlook
from trainspec_validate.performance.forecast.predict import Prediction
from trainspec_validate.rules import NotApplicable, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._forecast import FASTEST, SLOWEST, prediction_of, timed_prediction_of
from trainspec_validate.rules.com import communication

WORTH = 1.25
"""Least time of a collective over the most of the best algorithm from which it is said: 4 of 3,102 choices of a
vendor's tuner are outside (tests/rules/test_forecast_published.py)."""
LEAST_LOSS = 0.01
"""Share of the step that a slow algorithm costs before it is said."""
MOST_EXPOSED = 0.6
"""Share of a step that waits at most: the model sees none of 234 published runs of dense models in 16
bits (benchmarks/published/training_runs.csv) above 0.32, which is 0.48 when the step takes 1.3 times as long, all of it
waiting."""
BUCKET_SLOWDOWN = 2.0
"""Time of a byte in a bucket over that in a message of many buckets."""
BUCKET_SHARE = 0.1
"""Share of the step that buckets lose before it is said."""
MANY_BUCKETS = 16
_DATA = {"data": "data", "replica": "data", "expert-data": "data"}
"""Axis of a plan to which the traffic of equal weights belongs."""


def _axis(item: PlannedCollective) -> str:
    return _DATA.get(item.transfer.axis, item.transfer.axis)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of message by the algorithm of a row and by the best one."""

    forced: Estimate
    best: Estimate
    count: float

    @property
    def lost_seconds(self) -> float:
        """Time that the row costs in a step, where nothing hides it."""
        return self.count * (self.forced.seconds - self.best.seconds)

    @property
    def beyond_doubt(self) -> bool:
        """Whether the best is faster even at the near ends of both bands."""
        return self.forced.low_seconds > WORTH * self.best.high_seconds


@rule("TS-COM-025")
def algorithm_choice(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A named algorithm is not much slower than the best at the sizes that the plan sends."""
    rows = [(index, row) for index, row in enumerate(communication(plan).collectives) if row.algorithm != "automatic"]
    if not rows or all(row.reason for _, row in rows):
        raise NotApplicable("the plan names no algorithm, or gives its reasons")
    predicted = prediction_of(plan, cluster)
    for index, row in rows:
        compared = () if row.reason else _comparisons(plan, predicted, row)
        worst = max((one for one in compared if one.beyond_doubt), key=lambda one: one.lost_seconds, default=None)
        if worst and worst.lost_seconds > LEAST_LOSS * predicted.outlook.step.seconds:
            yield Violation(
                at(plan, "communication", "collectives", index, "algorithm"),
                f"{row.operation} of {bytes_(worst.forced.message_bytes)} between {row.axis} ranks is predicted to "
                f"take {_band(worst.forced)} by {_named(worst.forced)} and {_band(worst.best)} by {_named(worst.best)}",
                f"use {_named(worst.best)} or automatic at this size, or give the reason; {number(round(worst.count))} "
                f"messages of a step take {seconds(worst.lost_seconds)} less",
            )


def _band(one: Estimate) -> str:
    return f"{seconds(one.seconds)} ({seconds(one.low_seconds)} to {seconds(one.high_seconds)})"


def _named(one: Estimate) -> str:
    return f"{one.algorithm} ({one.protocol})"


def _comparisons(plan: TrainingPlan, predicted: Prediction, row: CollectiveChoice) -> Iterator[Comparison]:
    for item in predicted.collectives:
        if (_axis(item), item.transfer.operation) != (row.axis, row.operation):
            continue
        size, count = _sent(plan, item)
        if not row.min_bytes <= size < (float("inf") if row.max_bytes is None else row.max_bytes):
            continue
        try:
            forced = collectives.estimate(row.operation, size, item.network, row.algorithm, row.protocol)
        except ValueError:
            continue
        yield Comparison(forced, collectives.best(row.operation, size, item.network), count)


def _sent(plan: TrainingPlan, item: PlannedCollective) -> tuple[float, float]:
    """Size and number of the messages of a step; gradients travel in buckets where the plan states their size."""
    sent, bucket = item.transfer, plan.communication.bucket_bytes if plan.communication else None
    gradients = sent.operation in {"all-reduce", "reduce-scatter"} and _axis(item) == "data"
    if bucket is None or not gradients or bucket >= sent.message_bytes:
        return sent.message_bytes, sent.count
    return bucket, sent.count * sent.message_bytes / bucket


@rule("TS-COM-026")
def exposed_share(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """A step does not wait for communication for much of its time."""
    predicted = prediction_of(plan, cluster)
    step, share = predicted.outlook.step, predicted.outlook.exposed_share
    if not step.exposed_seconds:
        raise NotApplicable("no axis has several ranks")
    unstated = _unstated_overlap(plan)
    if share <= MOST_EXPOSED and unstated:
        settings = replace(
            predicted.settings,
            overlap_gradients=predicted.settings.overlap_gradients and "overlap_gradients" not in unstated,
            overlap_parameters=predicted.settings.overlap_parameters and "overlap_parameters" not in unstated,
        )
        without = outlook(predicted.model, predicted.machine, predicted.layout, settings).exposed_share
        if without > MOST_EXPOSED:
            raise Unresolved(
                at(plan),
                f"waits for communication for {percent(share)} of a step with overlap and {percent(without)} without, "
                f"and the plan does not state communication.{' and '.join(unstated)}",
                f"state {' and '.join(unstated)}",
            )
    if share > MOST_EXPOSED:
        timed_prediction_of(plan, cluster)  # a step whose time is predicted too roughly shows no share of it
        axis, longest = max(step.exposed_seconds.items(), key=lambda part: part[1])
        parts = ", ".join(f"{name} {seconds(part)}" for name, part in step.exposed_seconds.items() if part > 0)
        key = _DATA.get(axis, axis)
        remedy = _remedy(predicted.settings, axis)
        yield Violation(
            at(plan, "parallelism", key),
            f"{percent(share)} of a step of {seconds(step.seconds)} is predicted to wait for communication"
            f"{', even with overlap, which the plan does not state' if unstated else ''}: {parts}",
            f"at most {percent(MOST_EXPOSED)}; {remedy}: without {seconds(longest)} of it the step takes "
            f"{seconds(step.seconds - longest)}",
        )


def _unstated_overlap(plan: TrainingPlan) -> list[str]:
    """The keys of overlap that a plan leaves open."""
    stated = plan.communication
    keys = ("overlap_gradients", "overlap_parameters")
    return [key for key in keys if stated is None or getattr(stated, key) is None]


def _remedy(settings: Settings, axis: str) -> str:
    """What makes the ranks of an axis wait less."""
    if settings.rank_order != "topology":
        return "sort the hosts by topology"
    if axis in _DATA and not (settings.overlap_gradients and settings.overlap_parameters):
        return "overlap gradients and parameters"
    return f"let {axis} ranks send less or over a faster network, or use fewer ranks"


@rule("TS-COM-027")
def bucket_latency(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Buckets are large enough for the network that they cross."""
    bucket = require(communication(plan).bucket_bytes, "no bucket size is stated")
    predicted = prediction_of(plan, cluster)
    for item in predicted.collectives:
        size, count = _sent(plan, item)
        if size != bucket:
            continue
        operation, network = item.transfer.operation, item.network
        better = min(size * MANY_BUCKETS, item.transfer.message_bytes)
        each = collectives.best(operation, size, network).seconds
        large = collectives.best(operation, better, network).seconds * size / better
        if each > BUCKET_SLOWDOWN * large and count * (each - large) > BUCKET_SHARE * predicted.outlook.step.seconds:
            yield Violation(
                at(plan, "communication", "bucket_bytes"),
                f"{operation} of one bucket of {bytes_(bucket)} is predicted to take {seconds(each)}, and all "
                f"{number(round(count))} of a step {seconds(count * each)}, most of it latency",
                f"set bucket_bytes: {base(better)}; such buckets take {seconds(count * large)} in a step",
            )
            return


def _compressed(plan: TrainingPlan) -> Compression:
    found = communication(plan).compression
    if found is None or found.method == "none":
        raise NotApplicable("the plan compresses no traffic")
    return found


def _waiting(predicted: Prediction, axis: str) -> float:
    """Predicted share of a step that waits for the traffic of an axis."""
    exposed = predicted.outlook.step.exposed_seconds
    total = sum(part for name, part in exposed.items() if _DATA.get(name, name) == axis)
    return total / predicted.outlook.step.seconds


def _most_waiting(predicted: Prediction, axis: str) -> float:
    """The same if the step took as much longer as a prediction is off at the most, all of it waiting."""
    return 1 - (1 - _waiting(predicted, axis)) / SLOWEST


@rule("TS-COM-028")
def exposed_agrees(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The share that a plan says its traffic is waited for can be that of its step."""
    found = _compressed(plan)
    stated = require(found.exposed_fraction_before, "no exposed share of a dense step is stated")
    predicted = timed_prediction_of(plan, cluster)
    share, most = _waiting(predicted, found.axis), _most_waiting(predicted, found.axis)
    least = max(0.0, 1 - (1 - share) / FASTEST)
    if not least <= stated <= most:
        step = predicted.outlook.step.seconds
        yield Violation(
            at(plan, "communication", "compression", "exposed_fraction_before"),
            f"a dense step is said to wait {percent(stated)} of its time for {found.axis} ranks, but {percent(share)} "
            f"of {seconds(step)} is predicted",
            f"between {percent(least)} and {percent(most)}, for a step that takes {FASTEST} to {SLOWEST} times as long",
        )


@rule("TS-COM-029")
def compression_pays(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """Compression saves more time than it takes, and no claim exceeds what it can save."""
    found = _compressed(plan)
    cost, claim = found.compression_seconds_per_step, found.expected_speedup
    if cost is None and claim is None:
        raise NotApplicable("neither the time of compressing nor a speed-up is stated")
    predicted = timed_prediction_of(plan, cluster)
    most, left = _most_waiting(predicted, found.axis), 1 / (found.wire_ratio or float("inf"))
    step = step_seconds(plan) or predicted.outlook.step.seconds * SLOWEST
    saved = step * most * (1 - left)
    if cost is not None and cost > saved:
        yield Violation(
            at(plan, "communication", "compression", "compression_seconds_per_step"),
            f"compressing takes {seconds(cost)} of a step, and at most {seconds(saved)} of waiting for {found.axis} "
            f"ranks can be saved: {percent(_waiting(predicted, found.axis))} of "
            f"{seconds(predicted.outlook.step.seconds)} is predicted",
            f"send dense gradients, or compress in less than {seconds(saved)}",
        )
    cap = 1 / (1 - most * (1 - left))
    if claim is not None and found.exposed_fraction_before is None and claim > cap:
        yield Violation(
            at(plan, "communication", "compression", "expected_speedup"),
            f"{claim:g} is claimed; a step that waits {percent(_waiting(predicted, found.axis))} of its time for "
            f"{found.axis} ranks as predicted, {percent(most)} at most, gains {cap:.3g}",
            f"state at most {cap:.3g}",
        )
