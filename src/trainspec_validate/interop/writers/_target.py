"""Defines the input and output of a writer: a job, a text, and the parts of the job that the text cannot state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainspec_validate._version import __version__
from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.fabric import Fabric
from trainspec_validate.documents.types.hardware import Nic
from trainspec_validate.documents.types.parallelism import Axis
from trainspec_validate.model.catalog import accelerators
from trainspec_validate.performance.costs.placement import Span, holds_whole_groups
from trainspec_validate.performance.derived.groups import candidates
from trainspec_validate.performance.derived.job import (
    JobNodes,
    axis_span,
    degree,
    find_job_nodes,
    job_fabric,
    used_axes,
)

GPU_VENDORS = ("nvidia", "amd")
_PRINTABLE_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NUMBERS = re.compile(r"[0-9]+")


class NotExpressible(Exception):  # noqa: N818 - said of the job, not of the program
    """A job that a program cannot run at all; `help` says what would be right."""

    def __init__(self, message: str, help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.help = help


@dataclass(frozen=True, slots=True)
class Job:
    """A plan with the cluster that it runs on, and its checkpoint policy where there is one."""

    plan: TrainingPlan
    cluster: ClusterProfile
    policy: CheckpointPolicy | None = None

    @property
    def nodes(self) -> JobNodes:
        """The node group of the job.

        Raises:
            NotExpressible: the plan names none of several groups that have room for it.
        """
        found = find_job_nodes(self.plan, self.cluster)
        if found is not None:
            return found
        choice = candidates(self.plan, self.cluster)
        if self.plan.node_group is None and len(choice.groups) == 1:
            return choice.groups[0]
        names = ", ".join(nodes.group.name for nodes in choice.groups)
        if self.plan.node_group is None and choice.together:
            message = f"the ranks of the plan span the node groups {names}, and launchers start nodes of one kind"
            raise NotExpressible(message, f"use at most {max(nodes.num_ranks for nodes in choice.groups)} ranks")
        message = "the plan does not say which node group it runs on"
        raise NotExpressible(message, f"set node_group to one of {names}")

    @property
    def ranks_per_node(self) -> int:
        """Ranks that each node starts; a job smaller than a node starts as many as it has.

        Raises:
            NotExpressible: the ranks do not fill whole nodes.
        """
        ranks, full = self.plan.parallelism.num_accelerators, self.nodes.ranks_per_node
        if ranks > full and ranks % full:
            raise NotExpressible(
                f"{ranks} ranks do not fill nodes of {full}, and launchers start the same number on each",
                f"plan for a multiple of {full} ranks (TS-TOP-018)",
            )
        return min(ranks, full)

    @property
    def num_nodes(self) -> int:
        """Nodes that the job takes."""
        return self.plan.parallelism.num_accelerators // self.ranks_per_node

    @property
    def nodes_per_domain(self) -> int:
        """Whole nodes in the used part of a scale-up domain; 1 where a domain is no larger than a node."""
        return max(1, self.nodes.domain_num_ranks // self.nodes.ranks_per_node)

    @property
    def vendor(self) -> str:
        """Maker of the accelerators as the cluster says, else the catalog; empty when neither does."""
        accelerator = self.nodes.group.accelerator
        known = accelerators().get(accelerator.model)
        return (accelerator.vendor or (known.vendor if known else "")).casefold()

    @property
    def fabric(self) -> Fabric | None:
        """The network that collectives use, where it is decided."""
        found = job_fabric(self.plan, self.cluster, self.nodes)
        return found[1] if found else None

    @property
    def nics(self) -> tuple[Nic, ...]:
        """The kinds of interfaces that carry collectives: those that the plan names, else all of role `compute`."""
        talk, fabric = self.plan.communication, self.fabric
        named = talk.nic_names if talk else ()
        return tuple(
            nic
            for nic in self.nodes.group.nics
            if (nic.name in named if named else nic.role == "compute") and (fabric is None or nic.fabric == fabric.name)
        )


@dataclass(frozen=True, slots=True)
class Exported:
    """One file for another program."""

    name: str
    """File name."""
    text: str
    left_out: tuple[str, ...] = ()
    """Settings of the documents that this program cannot express, one sentence each."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format that a job can be written in."""

    name: str
    """Short name, for example `nccl-env`."""
    title: str
    """Title, and the version that it was checked against, for the list of formats."""
    write: Callable[[Job], Exported]
    """Raises `NotExpressible` for a job that the program cannot run."""


def require_gpus(job: Job) -> None:
    """Refuse accelerators that launchers and libraries of the GPU world do not run on.

    Raises:
        NotExpressible: the accelerators are no GPUs.
    """
    if job.vendor not in GPU_VENDORS:
        what = f"{job.nodes.group.accelerator.model} by {job.vendor or 'a maker that is not stated'}"
        raise NotExpressible(f"this is for GPUs of nvidia and amd; the job runs on {what}")


def left_to_program(job: Job) -> list[str]:
    """Sections that configurations of frameworks do not hold, so that none is dropped without a word."""
    plan, found = job.plan, []
    if plan.optimizer:
        found.append(
            f"optimizer: {plan.optimizer.name} and its schedule are not written; set them for the training program"
        )
        if plan.optimizer.clipping and plan.optimizer.clipping.kind != "global-norm":
            found.append(
                f"optimizer.clipping: {plan.optimizer.clipping.kind} is not written; the training program clips"
            )
    if plan.data:
        found.append("data: mixture, order and seed are not written; set them for the program")
    if plan.lora or plan.num_parameters_trained:
        found.append("lora, num_parameters_trained: the training program freezes parameters and makes adapters")
    return found


def global_clipping(job: Job) -> float | None:
    """Largest norm of all gradients together; None where the plan does not clip by it."""
    clipping = job.plan.optimizer.clipping if job.plan.optimizer else None
    return clipping.threshold if clipping and clipping.kind == "global-norm" else None


def header(job: Job, checked: str) -> list[str]:
    """The first comment lines: which documents the file came from, and what its settings were checked against."""
    documents = [f"TrainingPlan {job.plan.metadata.name}", f"ClusterProfile {job.cluster.metadata.name}"]
    if job.policy:
        documents.append(f"CheckpointPolicy {job.policy.metadata.name}")
    return [
        f"# Written by trainspec {__version__} from {', '.join(documents)}.",
        f"# Settings were checked against {checked}.",
    ]


def group_span(job: Job, axis: Axis) -> Span | None:
    """Stride and degree of the groups of an axis; None where it has one rank or the order does not place it."""
    return None if degree(job.plan, axis) == 1 else axis_span(job.plan, axis)


def rank_order(job: Job) -> list[str]:
    """One line for each axis, from adjacent ranks outwards: ranks of a group, their distance, and where they are.

    A group is inside a block of nodes when whole groups fit into it (`costs.placement.holds_whole_groups`).
    """
    order = [axis for axis in job.plan.parallelism.order if axis in set(used_axes(job.plan))]
    lines = []
    for axis in order:
        span = group_span(job, axis)
        if span is not None:
            lines.append(f"{axis}: groups of {span.degree}, {span.stride} apart, {_reach(job, axis)}")
    return lines or ["no groups are placed"]


def group_num_nodes(job: Job, axis: Axis) -> int:
    """Nodes that the stretch of one group of an axis covers; 1 where groups are inside a node or are not placed."""
    span = group_span(job, axis)
    return 1 if span is None else -(-min(span.num_ranks, job.plan.parallelism.num_accelerators) // job.ranks_per_node)


def _reach(job: Job, axis: Axis) -> str:
    span, total = group_span(job, axis), job.plan.parallelism.num_accelerators
    domain = job.nodes.domain_num_ranks
    if span is None or holds_whole_groups(span, job.nodes.ranks_per_node, total):
        return "inside a node"
    if domain > job.nodes.ranks_per_node and holds_whole_groups(span, domain, total):
        return f"inside a scale-up domain of {job.nodes_per_domain} nodes"
    fabric = job.fabric
    return f"over {group_num_nodes(job, axis)} nodes" + (f" on fabric {fabric.name}" if fabric else "")


def library(job: Job) -> tuple[str, str]:
    """Name and version of the collective library: the plan's, else the cluster's; empty where not stated."""
    talk, software = job.plan.communication, job.cluster.software
    found = (talk.library if talk else None) or (software.collective_library if software else None)
    version = (found.version if found else None) or ""
    return found.name if found else "", version if _PRINTABLE_VERSION.fullmatch(version) else ""


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, so that versions compare: `2.27.5-1` is (2, 27, 5, 1).

    >>> numbers("2.27.5") > (2, 24)
    True
    """
    return tuple(int(part) for part in _NUMBERS.findall(version))


def joined(lines: Iterable[str]) -> str:
    """Lines as the text of a file."""
    return "".join(f"{line}\n" for line in lines)
