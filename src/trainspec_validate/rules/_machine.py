"""Gives a rule the machine of a plan, and places in it."""

from __future__ import annotations

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.performance.derived.machine import Machine, find_machine
from trainspec_validate.rules import NotApplicable, Place, at
from trainspec_validate.rules._groups import ask_group


def machine_of(plan: TrainingPlan, cluster: ClusterProfile, *, whole_job: bool = False) -> Machine:
    """The node group that a plan runs on, with declared figures before those of the catalog.

    Raises:
        NotApplicable: the plan names a group that several groups are called.
        Unresolved: the plan names a group that is unknown.
        OpenGroup: the plan names none of several groups, so the rule is to run for each; `whole_job` where it judges
            a figure of all ranks.
    """
    ask_group(plan, cluster, whole_job=whole_job)
    found = find_machine(plan, cluster)
    if found is None:
        raise NotApplicable("the plan does not name one node group of the cluster")
    return found


def at_machine(machine: Machine, *pointer: str | int) -> Place:
    """A place inside the node group of a machine."""
    return at(machine.cluster, "node_groups", machine.index, *pointer)
