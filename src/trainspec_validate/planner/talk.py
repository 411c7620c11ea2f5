"""Writes the algorithm of each collective into a plan, with its predicted time next to it."""

from __future__ import annotations

from trainspec_validate.documents.commented import figure
from trainspec_validate.model.units import bytes_, bytes_per_second, seconds
from trainspec_validate.performance.forecast.outlook import PlannedCollective, planned_collectives
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.search import Scored, settings_of

Lines = list[tuple[str, str]]
UNCALIBRATED = "uncalibrated"


def collectives_of(request: Request, scored: Scored) -> tuple[PlannedCollective, ...]:
    """Every kind of message of a rank with its estimate."""
    goal = request.goal
    return planned_collectives(goal.model, goal.machine, scored.choice.layout, settings_of(scored.choice))


def choices_of(request: Request, scored: Scored) -> Lines:
    """One entry for each operation of each axis, for messages of the size that the plan sends.

    Sizes below half and above twice that size are left to the library. What no measurement covers is left to it
    altogether.
    """
    lines: Lines = []
    layout = scored.choice.layout
    degrees = {"tensor": layout.tensor, "context": layout.context, "expert": layout.expert}
    degrees |= {"data": layout.data, "pipeline": layout.pipeline}
    written: set[tuple[str, str]] = set()
    for item in collectives_of(request, scored):
        sent, estimate = item.transfer, item.estimate
        key = (sent.axis, sent.operation)
        if degrees.get(sent.axis, 1) < 2 or key in written or estimate.calibration == UNCALIBRATED:
            continue
        written.add(key)
        size = sent.message_bytes
        rate = bytes_per_second(estimate.bus_bandwidth_bytes_per_second)
        words = f"derived: {bytes_(size)} in {seconds(estimate.seconds)}, {rate} of bus bandwidth"
        lines += [
            (f"    - operation: {sent.operation}", ""),
            (f"      axis: {sent.axis}", ""),
            (f"      algorithm: {estimate.algorithm}", words),
            (f"      min_bytes: {figure(float(int(size / 2)))}", "half of the planned size"),
            (f"      max_bytes: {figure(float(int(size * 2)))}", "twice the planned size"),
        ]
    return lines
