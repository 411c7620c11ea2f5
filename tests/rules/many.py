"""Documents that mean the same with more entries in a list: what tests of silent rules compare."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from trainspec_validate.documents import schema
from trainspec_validate.documents.types import read
from trainspec_validate.model.finding import Severity, Verdict
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.engine import Binding, Member, run_rules
from trainspec_validate.pipeline.references import bindings
from trainspec_validate.rules import Rule, all_rules

Data = Mapping[str, Any]
"""Plain documents of one set, by path."""


def of_kind(data: Data, kind: str) -> Iterator[Any]:
    return (document for document in data.values() if isinstance(document, dict) and document.get("kind") == kind)


def _copied(data: Data) -> dict[str, Any]:
    return copy.deepcopy(dict(data))


def split_groups(data: Data) -> dict[str, Any] | None:
    """Each node group as two equal ones; a plan that named the only group then takes the room of both."""
    found, split = _copied(data), False
    for cluster in of_kind(found, "ClusterProfile"):
        whole, parts = cluster["node_groups"], []
        for group in whole:
            first, second = group["num_nodes"] - group["num_nodes"] // 2, group["num_nodes"] // 2
            parts.append({**group, "num_nodes": first})
            if second:
                split = True
                parts.append({**copy.deepcopy(group), "num_nodes": second, "name": f"{group['name'][:50]}-twin"})
                _share_layout(cluster, group["name"], first)
        cluster["node_groups"] = parts
        for plan in of_kind(found, "TrainingPlan"):
            if len(whole) == 1 and plan.get("node_group") == whole[0]["name"]:
                del plan["node_group"]
    return found if split else None


def _share_layout(cluster: Any, name: str, first: int) -> None:
    """Give the listed nodes of a group that was split to both parts."""
    listed = [node for node in (cluster.get("layout") or {}).get("nodes", ()) if node.get("group") == name]
    for node in listed[first:]:
        node["group"] = f"{name[:50]}-twin"


def unused_group(data: Data) -> dict[str, Any] | None:
    """One more node of which next to nothing is known, and which no plan takes."""
    found = open_group(data) or {}
    for cluster in of_kind(found, "ClusterProfile"):
        for plan in of_kind(found, "TrainingPlan"):
            if len(cluster["node_groups"]) == 2:
                plan.setdefault("node_group", cluster["node_groups"][0]["name"])
    return found


def open_group(data: Data) -> dict[str, Any] | None:
    """One more node of which next to nothing is known, too small for all but the smallest jobs."""
    found = _copied(data)
    for cluster in of_kind(found, "ClusterProfile"):
        unknown = {"name": "unused-nodes", "num_nodes": 1, "num_accelerators_per_node": 1}
        cluster["node_groups"].append({**unknown, "accelerator": {"model": "not-in-the-catalog"}})
        cluster["num_nodes"] += 1
        cluster["num_accelerators"] += 1
    return found


def larger_group(data: Data) -> dict[str, Any] | None:
    """Once more the nodes of the first group with more memory, power and host, which a plan is free to take."""
    found = _copied(data)
    for cluster in of_kind(found, "ClusterProfile"):
        more = {**copy.deepcopy(cluster["node_groups"][0]), "name": "larger-nodes"}
        more["accelerator"] = {**more["accelerator"], "model": "not-in-the-catalog", "memory_bytes": 1e12}
        if more.get("host"):
            more["host"] |= {"memory_bytes": 16e12, "num_cores": 1024}
        if "node_power_watts" in more:
            more["node_power_watts"] *= 2
        cluster["node_groups"].append(more)
        cluster["num_nodes"] += more["num_nodes"]
        cluster["num_accelerators"] += more["num_nodes"] * more["num_accelerators_per_node"]
    return found


def unused_fabric(data: Data) -> dict[str, Any] | None:
    """A fabric that nothing is plugged into."""
    found = _copied(data)
    for cluster in of_kind(found, "ClusterProfile"):
        fabric = {"name": "unused-fabric", "transport": "other", "topology": "fat-tree"}
        cluster["fabrics"] = [*cluster.get("fabrics", ()), fabric]
    return found


def first_unused_fabric(data: Data) -> dict[str, Any] | None:
    """A fabric that nothing is plugged into, as the first of the list."""
    found = unused_fabric(data)
    for cluster in of_kind(found or {}, "ClusterProfile"):
        cluster["fabrics"].insert(0, cluster["fabrics"].pop())
    return found


def unused_store(data: Data) -> dict[str, Any] | None:
    """A slow store that no tier is on."""
    found = _copied(data)
    for cluster in of_kind(found, "ClusterProfile"):
        store = {
            "name": "unused-store",
            "kind": "parallel-file-system",
            "scope": "cluster",
            "write_bandwidth_bytes_per_second": 1e9,
            "read_bandwidth_bytes_per_second": 1e9,
            "capacity_bytes": 1e12,
            "free_bytes": 1e11,
            "atomic_rename": False,
            "failure_domain": "cluster",
        }
        cluster["storage_targets"] = [*cluster.get("storage_targets", ()), store]
    return found


def first_unused_store(data: Data) -> dict[str, Any] | None:
    """A slow store that no tier is on, as the first of the list."""
    found = unused_store(data)
    for cluster in of_kind(found or {}, "ClusterProfile"):
        cluster["storage_targets"].insert(0, cluster["storage_targets"].pop())
    return found


def management_nic(data: Data) -> dict[str, Any] | None:
    """An interface for management in every node, as the first of the list."""
    found = _copied(data)
    for cluster in of_kind(found, "ClusterProfile"):
        for group in cluster["node_groups"]:
            nic = {
                "name": "unused-nic",
                "role": "management",
                "num_per_node": 1,
                "technology": "ethernet",
                "rate_bytes_per_second": 1.25e9,
            }
            group["nics"] = [nic, *group.get("nics", ())]
    return found


def second_measurement(data: Data) -> dict[str, Any] | None:
    """One more measured collective, of two ranks."""
    found = _copied(data)
    for cluster in of_kind(found, "ClusterProfile"):
        group = cluster["node_groups"][0]
        own = {"operation": "all-reduce", "num_ranks": 2, "message_bytes": 1e9, "group": group["name"]}
        own |= {"algorithm_bandwidth_bytes_per_second": 1e9, "bus_bandwidth_bytes_per_second": 1e9}
        cluster["measurements"] = [own, *cluster.get("measurements", ())]
    return found


def two_fabrics(data: Data) -> dict[str, Any] | None:
    """Half of the compute NICs of each node on a second fabric like the first."""
    found, split = _copied(data), False
    for cluster in of_kind(found, "ClusterProfile"):
        names = set()
        for group in cluster["node_groups"]:
            nics = [
                nic for nic in group.get("nics", ()) if nic.get("role", "compute") == "compute" and nic.get("fabric")
            ]
            if len(nics) != 1 or nics[0]["num_per_node"] % 2:
                continue
            names.add(nics[0]["fabric"])
            twin = _halved(nics[0])
            group["nics"].append({**twin, "name": f"{twin['name']}-twin", "fabric": f"{twin['fabric']}-twin"})
        twins = [fabric for fabric in cluster.get("fabrics", ()) if fabric["name"] in names]
        for fabric in twins:
            split = True
            for owner, key in [(fabric, "num_rails"), *((tier, "num_switches") for tier in fabric.get("tiers", ()))]:
                if owner.get(key, 1) % 2 == 0:
                    owner[key] //= 2
            cluster["fabrics"].append({**copy.deepcopy(fabric), "name": f"{fabric['name']}-twin"})
    for plan in of_kind(found, "TrainingPlan"):
        talk = plan.get("communication") or {}
        talk.pop("fabric", None)
        if talk.get("nic_names"):
            talk["nic_names"] += [f"{name}-twin" for name in talk["nic_names"]]
    return found if split else None


def _halved(nic: Any) -> Any:
    """Leave half of the interfaces, and return the other half."""
    nic["num_per_node"] //= 2
    twin = copy.deepcopy(nic)
    if nic.get("devices"):
        nic["devices"], twin["devices"] = nic["devices"][: nic["num_per_node"]], nic["devices"][nic["num_per_node"] :]
    return twin


CHANGES: tuple[Callable[[Data], dict[str, Any] | None], ...] = (
    split_groups,
    unused_group,
    open_group,
    larger_group,
    two_fabrics,
    unused_fabric,
    first_unused_fabric,
    unused_store,
    first_unused_store,
    management_nic,
    second_measurement,
)


_LISTS = {"node_groups", "fabrics", "storage_targets", "nics", "measurements", "nodes", "tiers"}
Complaint = tuple[str, str, tuple[str | int, ...]]
"""Requirement, file and place without positions in the lists that change."""


@cache
def _rules() -> Mapping[str, Rule]:
    """All rules; looking for their modules takes a tenth of a judgement."""
    return all_rules()


def complaints(data: Data) -> dict[Complaint, Severity]:
    """What the rules say of a set of plain documents that are of good form, with the heaviest severity."""
    found: dict[Complaint, Severity] = {}
    for finding in run_rules(_rules().values(), _bound(data), load_index())[0]:
        key = (finding.requirement, Path(finding.path).name, _general(finding.pointer))
        found[key] = max(found.get(key, Severity.NOTE), finding.severity, key=lambda severity: severity.rank)
    return found


def verdict_on(data: Data, requirement: str) -> Verdict:
    """The verdict on one requirement for a set of plain documents that are of good form."""
    rules = [rule for rule in _rules().values() if rule.requirement == requirement]
    ((outcome,)) = run_rules(rules, _bound(data), load_index())[1]
    return outcome.verdict


def _bound(data: Data) -> list[Binding]:
    members = {}
    for path, value in data.items():
        if value.get("kind") not in ("ClusterProfile", "TrainingPlan", "CheckpointPolicy"):
            continue
        failures = [str(failure) for failure in schema.failures(value["kind"], value)]
        assert not failures, (path, failures)
        members[path] = Member(path, read(value["kind"], value))
    by_path = {Path(path).resolve(): member for path, member in members.items()}
    return bindings(list(members.values()), lambda path: by_path.get(Path(path).resolve()))[0]


def _general(pointer: tuple[str | int, ...]) -> tuple[str | int, ...]:
    places = zip(pointer, ("", *pointer[:-1]), strict=True)
    return tuple("*" if isinstance(step, int) and before in _LISTS else step for step, before in places)
