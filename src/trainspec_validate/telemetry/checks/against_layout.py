"""Checks a run against the layout of its plan: ranks, and their parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.parallelism import Axis
from trainspec_validate.performance.derived.job import degree
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check, require
from trainspec_validate.telemetry.checks._members import num_devices_per_rank, stated_sizes
from trainspec_validate.telemetry.checks._words import counted, few, names_in_words
from trainspec_validate.telemetry.view.run_view import PlacedHead

COORDINATES: tuple[Axis, ...] = ("data", "tensor", "pipeline", "context", "expert")


@check("TS-TEL-066")
def world_size_as_planned(run: RunView, plan: TrainingPlan) -> Iterator[Violation]:
    """An attempt has the ranks of the plan, or those of a data degree that its elastic batch lists."""
    wanted = sorted(_data_degrees(plan))
    judged = require(list(stated_sizes(run)), "no attempt states its world size")
    said = names_in_words(f"{size:,}" for size in wanted)
    yield from few(
        Violation(
            place,
            f"attempt {number} starts with {counted(size, 'rank')}{_of_each(devices)}, but the plan says {said}",
            "start the ranks of the plan, list the data degree under batch.elastic, or declare train.rank.num_devices "
            "where a rank drives several devices",
        )
        for number, size, place in judged
        if size * (devices := num_devices_per_rank(run, number)) not in wanted
    )


def _of_each(num_devices: int) -> str:
    return "" if num_devices == 1 else f" of {num_devices:,} devices each"


def _data_degrees(plan: TrainingPlan) -> dict[int, int]:
    """Data degree for each number of ranks that an attempt may have."""
    p = plan.parallelism
    per_replica = p.tensor * p.pipeline * p.context
    degrees = plan.batch.elastic.data_degrees if plan.batch.elastic else ()
    return {data * per_replica: data for data in degrees} | {p.num_accelerators: degree(plan, "data")}


@check("TS-TEL-067")
def degrees_as_planned(run: RunView, plan: TrainingPlan) -> Iterator[Violation]:
    """The parallel coordinates that ranks declare are those that the degrees and the order of the plan give them."""
    judged, found, degrees = False, [], _data_degrees(plan)
    several = {span.number for span in run.attempts if num_devices_per_rank(run, span.number) > 1}
    sizes = {span.number: span.world_size for span in run.attempts}
    for head in run.heads:
        rank, data = _rank(head), degrees.get(sizes.get(head.record.att) or 0, degree(plan, "data"))
        for axis in COORDINATES:
            stated = head.record.declared.get(f"train.parallel.{axis}.rank")
            if not isinstance(stated, int) or isinstance(stated, bool) or head.record.att in several:
                continue
            judged = True
            limit, wanted = data if axis == "data" else degree(plan, axis), _coordinate(plan, axis, rank, data)
            if not 0 <= stated < limit:
                message = (
                    f"{_whose(head)} has the {axis} coordinate {stated}, but the {axis} degree of the plan is {limit}"
                )
                found.append(Violation(head.location, message, f"coordinates count from 0 to {limit - 1}"))
            elif wanted is not None and stated != wanted:
                message = (
                    f"{_whose(head)} has the {axis} coordinate {stated}, but the order of the plan gives it {wanted}"
                )
                found.append(Violation(head.location, message, "start ranks in the order of the plan"))
    if not judged:
        raise NotApplicable(
            "ranks drive several devices, whose coordinates differ"
            if several
            else "no head declares a parallel coordinate"
        )
    yield from few(found)


def _rank(head: PlacedHead) -> int | None:
    stated = head.record.declared.get("train.rank.id", head.record.rank)
    return stated if isinstance(stated, int) else None


def _whose(head: PlacedHead) -> str:
    rank = _rank(head)
    return f"emitter {head.record.emitter!r}" if rank is None else f"rank {rank:,}"


def _coordinate(plan: TrainingPlan, axis: Axis, rank: int | None, data: int) -> int | None:
    """Coordinate of a rank on an axis, with so many data ranks; None where order and ranks do not settle it."""
    order = [name for name in plan.parallelism.order if name != "expert"]
    degrees = {name: data if name == "data" else degree(plan, name) for name in COORDINATES if name != "expert"}
    if rank is None or axis == "expert" or any(name not in order for name, each in degrees.items() if each > 1):
        return None
    if axis not in order:
        return 0
    stride = math.prod(degrees[name] for name in order[: order.index(axis)])
    return rank // stride % degrees[axis]
