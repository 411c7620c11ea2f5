"""Turns the algorithms of a plan into NCCL_ALGO and NCCL_PROTO, where these can express them."""

from __future__ import annotations

from collections import defaultdict

from trainspec_validate.documents.types.communication import CollectiveChoice
from trainspec_validate.interop.writers._target import Job, group_span, library, numbers
from trainspec_validate.performance.costs.placement import holds_whole_groups
from trainspec_validate.performance.derived.job import used_axes

_FUNCTIONS = {
    "all-reduce": "allreduce",
    "all-gather": "allgather",
    "reduce-scatter": "reducescatter",
    "broadcast": "broadcast",
}
"""Collectives that NCCL_ALGO speaks of (NCCL src/init.cc, ncclFuncStr)."""
_ALGORITHMS = {
    "ring": ("ring", frozenset(_FUNCTIONS)),
    "tree": ("tree", frozenset({"all-reduce"})),
    "in-network": ("nvls", frozenset({"all-reduce", "all-gather", "reduce-scatter"})),
    "in-network-tree": ("nvlstree", frozenset({"all-reduce"})),
}
"""Name in NCCL, and the collectives that have it (NCCL src/graph/tuning.cc)."""
_PROTOCOLS = {"low-latency": "LL", "low-latency-128": "LL128", "simple": "Simple"}
_SHARED_AXES = frozenset({"tensor", "context", "data"})
"""Axes whose groups run these collectives; pipeline ranks send and receive, expert ranks exchange all to all."""
_LISTS_SINCE = (2, 24)

Forced = tuple[str, str, str]
"""Variable, value, and the keys that it follows from."""


def forced(job: Job) -> tuple[list[Forced], list[str]]:
    """NCCL_ALGO and NCCL_PROTO where the plan forces one choice for all sizes and all groups; and what is unsaid.

    A value holds for every group of the process, so a choice that differs between groups or sizes is left to the
    library and listed instead.
    """
    rows = [row for row in _rows(job) if "automatic" not in {row.algorithm} & {row.protocol}]
    if not rows:
        return [], []
    name, version = library(job)
    if version and numbers(version) < _LISTS_SINCE:
        text = f"{name} {version} takes no list per collective in NCCL_ALGO and NCCL_PROTO (since 2.24)"
        return [], [f"{text}, so the algorithms of the plan are left to it"]
    algorithms, protocols, notes = [], [], []
    for operation in dict.fromkeys(row.operation for row in rows):
        choice, reason = _one_choice(job, operation)
        if choice is None:
            notes.append(reason)
            continue
        function = _FUNCTIONS[operation]
        if choice.algorithm != "automatic":
            algorithms.append(f"{function}:{_ALGORITHMS[choice.algorithm][0]}")
        if choice.protocol != "automatic":
            protocols.append(f"{function}:{_PROTOCOLS[choice.protocol]}")
    because = "plan: communication.collectives, one choice for all sizes and groups; lists need 2.24 (TS-COM-007)"
    found = [("NCCL_ALGO", algorithms), ("NCCL_PROTO", protocols)]
    return [(variable, ";".join(values), because) for variable, values in found if values], notes


def _one_choice(job: Job, operation: str) -> tuple[CollectiveChoice | None, str]:
    """The choice that holds for every size and group of an operation, or why there is none."""
    if operation not in _FUNCTIONS:
        return None, f"NCCL_ALGO says nothing of {operation}; its algorithm is left to the library"
    by_axis: dict[str, list[CollectiveChoice]] = defaultdict(list)
    for row in _rows(job):
        if row.operation == operation:
            by_axis[row.axis].append(row)
    first = next(iter(by_axis.values()))[0]
    for axis, rows in by_axis.items():
        if len(rows) > 1 or rows[0].min_bytes > 0 or rows[0].max_bytes is not None:
            return None, f"{operation} of {axis} ranks has a choice per size, NCCL_ALGO has one; left to the library"
        if (rows[0].algorithm, rows[0].protocol) != (first.algorithm, first.protocol):
            return None, f"{operation} has a choice per group, NCCL_ALGO has one for all; left to the library"
    silent = [axis for axis in used_axes(job.plan) if axis in _SHARED_AXES and axis not in by_axis]
    if silent:
        others = " and ".join(silent)
        return None, f"{operation} is chosen for some groups only, and NCCL_ALGO would hold for {others} ranks too"
    if first.algorithm != "automatic":
        known, operations = _ALGORITHMS.get(first.algorithm, ("", frozenset()))
        if not known or operation not in operations:
            return None, f"NCCL has no {first.algorithm} algorithm for {operation}; left to the library"
        if known == "nvls" and any(_leaves_domain(job, row) for rows in by_axis.values() for row in rows):
            return None, f"{operation} reduces in the fabric, which NCCL_ALGO=nvls does not mean; left to the library"
    return first, ""


def _leaves_domain(job: Job, row: CollectiveChoice) -> bool:
    span, domain = group_span(job, row.axis), job.nodes.domain_num_ranks
    return span is None or not domain or not holds_whole_groups(span, domain, job.plan.parallelism.num_accelerators)


def wants_fabric_reduction(job: Job) -> bool:
    """Whether a collective of the plan is reduced by switches that are outside a scale-up domain."""
    reduced = (row for row in _rows(job) if row.algorithm in {"in-network", "in-network-tree"})
    return any(_leaves_domain(job, row) for row in reduced)


def _rows(job: Job) -> tuple[CollectiveChoice, ...]:
    return job.plan.communication.collectives if job.plan.communication else ()
