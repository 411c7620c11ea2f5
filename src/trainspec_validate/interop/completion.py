"""Fills in what follows from joined facts: counts, and names that only one entry can mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainspec_validate.interop.fragment import Kind
from trainspec_validate.interop.readers._plan_identities import complete_joint
from trainspec_validate.model.catalog import accelerators, links
from trainspec_validate.model.finding import Pointer

_CARRIED = {
    "infiniband": ("infiniband",),
    "ethernet": ("rocev2", "tcp", "tcpx", "tcpxo", "mrc", "uet"),
    "efa": ("efa-srd",),
    "slingshot": ("slingshot",),
    "omni-path": ("omni-path",),
}
"""Transports that the network of a link layer carries."""
_RATES = frozenset({"generation", "bandwidth_bytes_per_second", "link_bandwidth_bytes_per_second"})
"""Keys of scale-up links from which their rate follows."""


def complete(
    kind: Kind,
    facts: dict[str, Any],
    derived: dict[Pointer, str],
    choice: tuple[int | None, str | None],
    unknown: Iterable[tuple[Pointer, str]] = (),
) -> list[str]:
    """Fill counts of nodes and accelerators and references to the only group or fabric, and report what disagrees.

    `choice` is the number of nodes and the name of the document that a person gave; both win over files.
    `unknown` are the keys that a file cannot state, with the reason.

    >>> facts = {"node_groups": [{"num_accelerators_per_node": 8}]}
    >>> complete("ClusterProfile", facts, {}, (4, "mine"))
    []
    >>> facts["num_accelerators"], facts["metadata"]
    (32, {'name': 'mine'})
    """
    num_nodes, name = choice
    remarks: list[str] = []
    if name is not None:
        facts.setdefault("metadata", {})["name"] = name
        derived[("metadata", "name")] = "given with --name"
    if kind == "TrainingPlan":
        return complete_joint(facts, derived, unknown)
    if kind != "ClusterProfile":
        return remarks
    if num_nodes is not None:
        before = facts.get("num_nodes")
        if before not in (None, num_nodes):
            remarks.append(f"num_nodes is {num_nodes} by --num-nodes, which is taken, and {before} by the files")
        facts["num_nodes"] = num_nodes
        derived[("num_nodes",)] = "given with --num-nodes"
    _count(facts, derived, remarks, given=num_nodes is not None)
    _name_generation(facts, derived)
    _refer(facts, derived)
    return remarks


def _name_generation(facts: dict[str, Any], derived: dict[Pointer, str]) -> None:
    """The generation of links that a product always has, where nothing else tells their rate.

    It stays open where another number of links was found than the product has, since its rate would be wrong then.
    """
    for index, group in enumerate(facts.get("node_groups", ())):
        own = group.get("accelerator", {}) if isinstance(group, dict) else {}
        known = accelerators().get(own.get("model", "")) if isinstance(own, dict) else None
        found = group.get("scale_up") if known else None
        if known is None or not isinstance(found, dict) or found.keys() & _RATES:
            continue
        row = links().scale_up.get((known.scale_up.get("technology", ""), known.scale_up.get("generation", "")))
        if row and found.get("technology") == row.technology and found.get("num_links") in {None, row.num_links}:
            found["generation"] = row.generation
            derived[("node_groups", index, "scale_up", "generation")] = f"the catalog's links of {known.title}"


def _count(facts: dict[str, Any], derived: dict[Pointer, str], remarks: list[str], *, given: bool) -> None:
    groups = [group for group in facts.get("node_groups", ()) if isinstance(group, dict)]
    if len(groups) == 1 and "num_nodes" in facts:
        before = groups[0].get("num_nodes")
        if before is None or (given and before != facts["num_nodes"]):
            groups[0]["num_nodes"] = facts["num_nodes"]
            derived[("node_groups", 0, "num_nodes")] = "num_nodes; there is one node group"
    counts = [group.get("num_nodes") for group in groups]
    if counts and None not in counts and "num_nodes" not in facts:
        facts["num_nodes"] = sum(counts)
        derived[("num_nodes",)] = "sum of the node groups"
    keys = ("num_nodes", "num_accelerators_per_node")
    if not groups or any(key not in group for group in groups for key in keys):
        return
    total = sum(group[keys[0]] * group[keys[1]] for group in groups)
    before = facts.get("num_accelerators")
    if before is None or (given and before != total):
        facts["num_accelerators"] = total
        derived[("num_accelerators",)] = "nodes times accelerators of a node"
    elif before != total:
        remarks.append(f"num_accelerators is {before}, but the node groups have {total}")


def _refer(facts: dict[str, Any], derived: dict[Pointer, str]) -> None:
    """Name the only group in explicit nodes, and the only fabric in compute interfaces that it can carry."""
    groups = [group for group in facts.get("node_groups", ()) if isinstance(group, dict)]
    layout = facts.get("layout")
    nodes = layout.get("nodes", ()) if isinstance(layout, dict) else ()
    if len(groups) == 1 and "name" in groups[0]:
        for index, node in enumerate(nodes):
            if "group" not in node:
                node["group"] = groups[0]["name"]
                if index == 0:
                    derived[("layout", "nodes", 0, "group")] = "the only node group"
    fabrics = facts.get("fabrics", ())
    if len(fabrics) != 1 or "name" not in fabrics[0]:
        return
    for i, group in enumerate(groups):
        for j, nic in enumerate(group.get("nics", ())):
            carried = _CARRIED.get(nic.get("technology", ""), ())
            fits = nic.get("role", "compute") == "compute" and fabrics[0].get("transport") in carried
            if fits and "fabric" not in nic:
                nic["fabric"] = fabrics[0]["name"]
                derived[("node_groups", i, "nics", j, "fabric")] = "the only fabric"
