"""Gives what a whole job takes: wall time, energy of its nodes, and money."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.costs.energy import JOULES_PER_KILOWATT_HOUR, node_watts, predicted_joules
from trainspec_validate.performance.derived.cluster import power_watts
from trainspec_validate.planner.request import Request
from trainspec_validate.planner.safety import num_steps
from trainspec_validate.planner.search import Scored

_METERED = ("nvidia-h100-sxm", "nvidia-b200-sxm")
"""Accelerators of the nodes whose energy was metered, to which the prediction is fitted (`energy.mean_node_watts`)."""
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class JobCost:
    """Time, energy and money of one job from its start to its last step, saves and faults included."""

    seconds: float
    node_kilowatt_hours: float | None
    """Energy of the nodes, without switches and cooling; None for nodes of a kind that no published run metered."""
    price: float | None
    """In the currency of the price that was asked with; None without one."""


def job_cost(request: Request, scored: Scored, effective_share: float, price_per_hour: float | None) -> JobCost:
    """Cost of all steps of a plan, where so much of the wall time makes lasting progress.

    `price_per_hour` is that of one accelerator; nodes are taken whole.

    Raises:
        ValueError: no time makes progress.
    """
    if effective_share <= 0:
        raise ValueError("no time makes progress")
    taken = num_steps(request) * scored.outlook.step.seconds / effective_share
    num_accelerators = request.num_nodes * request.nodes.group.num_accelerators_per_node
    price = None if price_per_hour is None else price_per_hour * num_accelerators * taken / _SECONDS_PER_HOUR
    return JobCost(taken, _kilowatt_hours(request, taken), price)


def _kilowatt_hours(request: Request, taken: float) -> float | None:
    group = request.nodes.group
    if request.goal.machine.is_mixed or not request.goal.machine.accelerator.startswith(_METERED):
        return None
    limit = power_watts(group)
    full = group.node_power_watts or (node_watts(group.num_accelerators_per_node, limit) if limit else None)
    return predicted_joules(request.num_nodes, full, taken) / JOULES_PER_KILOWATT_HOUR if full else None
