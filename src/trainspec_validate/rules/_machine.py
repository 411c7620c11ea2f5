"""The only place that gives a rule the machine of a plan, and places in it."""

from __future__ import annotations

from trainspec_validate.derived.machine import Machine, find_machine
from trainspec_validate.documents import ClusterProfile, TrainingPlan
from trainspec_validate.rules import NotApplicable, Place, at


def machine_of(plan: TrainingPlan, cluster: ClusterProfile) -> Machine:
    """The node group that a plan runs on, with declared figures before those of the catalog.

    Raises:
        NotApplicable: the cluster has several groups and the plan names none of them.
    """
    found = find_machine(plan, cluster)
    if found is None:
        raise NotApplicable("the plan does not say which node group it runs on")
    return found


def at_machine(machine: Machine, *pointer: str | int) -> Place:
    """A place inside the node group of a machine."""
    return at(machine.cluster, "node_groups", machine.index, *pointer)
