"""Checks the failure rate of the cluster against the faults of the run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.units import number, seconds
from trainspec_validate.performance.costs.reliability import SECONDS_PER_DAY, poisson_quantile
from trainspec_validate.performance.derived.cluster import ranks_per_node
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._attributes import word
from trainspec_validate.telemetry.checks._episodes import recovered_episodes
from trainspec_validate.telemetry.checks._members import num_devices_per_rank

FEWEST = 5
"""Fewer faults are inside nearly every interval."""
TAIL = 0.025
PER_NODE_DAYS = 1000


@check("TS-REC-014")
def observed_failure_rate(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """The faults of the run are inside the 95 % interval that the failure rate of the cluster gives."""
    if cluster.reliability is None:
        raise NotApplicable("the profile has no failure rate")
    faults = [e for e in recovered_episodes(run) if word(e.fault, "train.fault.domain") != "workload"]
    if len(faults) < FEWEST:
        raise NotApplicable(f"fewer than {FEWEST} faults of machines show nothing about their rate")
    sizes = [ranks_per_node(group) for group in cluster.node_groups]
    # Nothing says which group the run was on, so the fewest and the most nodes that its ranks can fill bound it.
    fewest, most = _node_days(run, max(sizes)), _node_days(run, min(sizes))
    if fewest is None or most is None:
        raise NotApplicable("neither hosts of ranks nor the world size say how many nodes the run had")
    rate = cluster.reliability.failures_per_1000_node_days
    low = poisson_quantile(rate * fewest / PER_NODE_DAYS, TAIL)
    high = poisson_quantile(rate * most / PER_NODE_DAYS, 1 - TAIL)
    if not low <= len(faults) <= high:
        node_days = most if len(faults) > high else fewest
        measured = len(faults) * PER_NODE_DAYS / node_days
        message = (
            f"the run had {len(faults):,} faults of machines in {number(node_days)} node-days, where the profile's "
            f"{number(rate)} failures per 1,000 node-days give {low:,} to {high:,}"
        )
        help_text = f"measured are {number(measured)}; revisit the rate and the save interval that follows from it"
        evidence = Evidence(
            first_time_us=faults[0].fault.time_us,
            last_time_us=faults[-1].fault.time_us,
            count=len(faults),
            samples=tuple(
                seconds((later.fault.time_us - earlier.fault.time_us) / 1e6) for earlier, later in pairwise(faults[:6])
            ),
        )
        yield Violation(faults[-1].fault.location, message, help_text, evidence)


def _node_days(run: RunView, num_ranks_per_node: int) -> float | None:
    """Nodes times days, attempt by attempt; None where the number of nodes is not known."""
    total = 0.0
    for span in run.attempts:
        hosts = {p.host for p in run.placements if p.attempt == span.number and p.host is not None}
        nodes = len(hosts)
        if span.world_size is not None:
            nodes = max(nodes, -(-span.world_size * num_devices_per_rank(run, span.number) // num_ranks_per_node))
        if not nodes:
            return None
        total += nodes * span.seconds
    return total / SECONDS_PER_DAY
