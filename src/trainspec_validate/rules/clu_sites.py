"""The rules on sites, on what joins them or their fabrics, and on memory that host and accelerator share."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.model import units
from trainspec_validate.model.suggest import hint
from trainspec_validate.performance.derived.cluster import memory_bytes, within
from trainspec_validate.rules import NotApplicable, Violation, at, rule

_MEMORY_TOLERANCE = 0.1
"""As for device memory in TS-CLU-005: boards are stated in GB, in GiB, and as drivers see them."""


@rule("TS-CLU-067")
def sites_and_joins(cluster: ClusterProfile) -> Iterator[Violation]:
    """Sites of groups are declared, and an interconnect joins two sites or two fabrics."""
    sites, fabrics = [site.name for site in cluster.sites], [fabric.name for fabric in cluster.fabrics]
    if not sites and not cluster.interconnects and all(group.site is None for group in cluster.node_groups):
        raise NotApplicable("the profile has neither sites nor interconnects")
    for i, group in enumerate(cluster.node_groups):
        if group.site is None and len(sites) > 1:
            yield Violation(
                at(cluster, "node_groups", i, "name"),
                f"{group.name!r} does not say at which of {len(sites)} sites it is",
                f"add site: one of {', '.join(sites)}",
            )
        elif group.site is not None and group.site not in sites:
            told = hint(group.site, sites) or "declare it in sites"
            yield Violation(at(cluster, "node_groups", i, "site"), f"no site is named {group.site!r}", told)
    for i, join in enumerate(cluster.interconnects):
        first, second = join.ends
        unknown = next((k for k, end in enumerate(join.ends) if end not in {*sites, *fabrics}), None)
        if unknown is not None:
            end = join.ends[unknown]
            told = hint(end, [*sites, *fabrics]) or "declare it in sites or fabrics"
            yield Violation(
                at(cluster, "interconnects", i, "ends", unknown), f"no site or fabric is named {end!r}", told
            )
        elif first == second or ({first, second} - set(sites) and {first, second} - set(fabrics)):
            yield Violation(
                at(cluster, "interconnects", i, "ends"),
                f"{first!r} and {second!r} are not two sites or two fabrics",
                "name two different sites, or two different fabrics",
            )


@rule("TS-CLU-068")
def unified_memory_size(cluster: ClusterProfile) -> Iterator[Violation]:
    """Host memory that is the accelerators' is as large as theirs."""
    judged = False
    for i, group in enumerate(cluster.node_groups):
        one, host = memory_bytes(group), group.host.memory_bytes if group.host else None
        if not group.accelerator.unified_memory or one is None or host is None:
            continue
        judged = True
        whole = one * group.num_accelerators_per_node
        if not within(host, whole, _MEMORY_TOLERANCE):
            yield Violation(
                at(cluster, "node_groups", i, "host", "memory_bytes"),
                f"{units.bytes_(host)} of host memory, but the memory that host and accelerators share has "
                f"{units.bytes_(whole)}",
                f"write {units.base(whole)}, or leave the key out",
            )
    if not judged:
        raise NotApplicable("no group with unified memory states its host memory")
