"""Reads what files describe of the hardware of a node, and finds which of its facts no file states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

from trainspec_validate.interop.gpu_report import Facts
from trainspec_validate.model.accelerator_names import is_same_product, meant_by

_OF_KIND = ("model", "memory_bytes", "num_links", "partitioned")
_OF_KERNEL = frozenset({"name", "faults"})
"""What is known of a device that a log of the kernel alone names, which may be a switch."""
PRODUCT = "the product of its accelerators"
MEMORY = "the memory of its accelerators"
NICS = "the compute NICs"
NIC_RATES = "the rate of compute NICs"
NIC_LAYERS = "the link layer of compute NICs"
LINKS = "the scale-up links of each accelerator"
LANES = "the lanes of the host link of each accelerator"
REQUIREMENTS = {
    PRODUCT: ("TS-CLU-054",),
    MEMORY: ("TS-CLU-054",),
    NICS: ("TS-CLU-054",),
    NIC_RATES: ("TS-CLU-054", "TS-CLU-073"),
    NIC_LAYERS: ("TS-CLU-054", "TS-CLU-073"),
    LINKS: ("TS-CLU-054", "TS-CLU-073"),
}
"""Requirements that judge a fact of a node, where it is more than TS-CLU-073."""


def group_of(data: Any) -> Mapping[str, Any]:
    """The only node group of a description; empty where it has none, or several."""
    groups = data.get("node_groups") if isinstance(data, Mapping) else None
    return groups[0] if isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], Mapping) else {}


def description(name: str, data: Any, devices: Sequence[Mapping[str, Any]] = (), *, partial: bool = False) -> Facts:
    """The hardware that a file describes, as an entry of an observed node; empty where it describes none.

    Args:
        name: the path of the file.
        data: its node as a cluster of one.
        devices: accelerators one by one, where the file shows them so.
        partial: whether the file may show a part of the devices.
    """
    group = group_of(data)
    links, host_link = _mapping(group, "scale_up"), _mapping(group, "host_link")
    found = {
        "accelerators": list(_accelerators(group, devices)),
        "link_technology": links.get("technology"),
        "link_bytes_per_second": links.get("link_bandwidth_bytes_per_second"),
        "host_link_generation": host_link.get("generation"),
        "host_link_num_lanes": host_link.get("num_lanes"),
        "nics": list(_nics(group)),
    }
    stated = {key: value for key, value in found.items() if value not in (None, [])}
    return {"file": name, **({"partial": True} if partial else {}), **stated} if stated else {}


def _mapping(group: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = group.get(key)
    return found if isinstance(found, Mapping) else {}


def _accelerators(group: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> Iterator[Facts]:
    """Accelerators that are alike, with their number: one by one where the file shows them so, else of the group."""
    own, num = _mapping(group, "accelerator"), group.get("num_accelerators_per_node")
    shared = {
        "model": own.get("model"),
        "memory_bytes": own.get("memory_bytes"),
        "num_links": _mapping(group, "scale_up").get("num_links"),
    }
    kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for device in devices or [{}] * bool(isinstance(num, int) and num):
        facts = {**{key: value for key, value in shared.items() if value is not None}, **device}
        kinds.setdefault(tuple(facts.get(key) for key in _OF_KIND), []).append(device)
    for values, members in kinds.items():
        stated = {key: value for key, value in zip(_OF_KIND, values, strict=True) if value is not None}
        names = [member["name"] for member in members if member.get("name")]
        if stated:
            yield {"num": len(members) if devices else num, **({"names": names} if names else {}), **stated}


def _nics(group: Mapping[str, Any]) -> Iterator[Facts]:
    for nic in _compute_nics(group):
        if isinstance(nic.get("num_per_node"), int):
            own = {"names": nic.get("devices")} | {
                key: nic.get(key) for key in ("technology", "rate_bytes_per_second", "bonded")
            }
            yield {"num": nic["num_per_node"], **{key: value for key, value in own.items() if value is not None}}


def open_facts(data: Mapping[str, Any], node: Facts) -> Iterator[str]:
    """Facts that the profile declares of a node, and that no file of it states."""
    groups = [group for group in data.get("node_groups") or () if isinstance(group, Mapping)]
    seen: list[Facts] = node.get("descriptions", [])
    devices = [device for device in node.get("devices", ()) if device.keys() - _OF_KERNEL]
    kinds = [one["accelerators"] for one in seen if "accelerators" in one] + ([devices] if devices else [])

    def is_open(holds: Callable[[Facts], bool]) -> bool:
        return not any(all(map(holds, members)) for members in kinds)

    if is_open(lambda one: _is_comparable(one.get("model"), groups)):
        yield PRODUCT
    elif is_open(lambda one: "memory_bytes" in one or meant_by(str(one.get("model") or "")).entry is not None):
        yield MEMORY
    has_number = any(_mapping(group, "scale_up").get("num_links") is not None for group in groups)
    has_kind = any(_mapping(group, "scale_up").get("technology") is not None for group in groups)
    is_named = not has_number and any("link_technology" in one for one in seen)
    if (
        (has_number or has_kind)
        and not is_named
        and is_open(lambda one: bool({"num_links", "num_active_links"} & {*one}))
    ):
        yield LINKS
    if any(_mapping(group, "host_link").get("num_lanes") is not None for group in groups) and (
        is_open(lambda one: "host_link_num_lanes" in one) and not any("host_link_num_lanes" in one for one in seen)
    ):
        yield LANES
    if any(_compute_nics(group) for group in groups):
        yield from _open_nics(groups, node, [one for one in seen if "nics" in one and not one.get("partial")])


def _is_comparable(model: Any, groups: Sequence[Mapping[str, Any]]) -> bool:
    declared = [_mapping(group, "accelerator").get("model") for group in groups]
    return isinstance(model, str) and any(
        isinstance(name, str) and is_same_product(name, model) is not None for name in declared
    )


def _compute_nics(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    nics = group.get("nics")
    found = [nic for nic in nics if isinstance(nic, Mapping)] if isinstance(nics, list) else []
    return [nic for nic in found if nic.get("role", "compute") == "compute"]


def _open_nics(groups: Sequence[Mapping[str, Any]], node: Facts, seen: Sequence[Facts]) -> Iterator[str]:
    declared = {str(nic.get("technology")) for group in groups for nic in _compute_nics(group)}
    if "ports" not in node and not any(is_counted(one["nics"], technology) for one in seen for technology in declared):
        yield NICS
        return
    if "ports" in node:
        return
    for words, key in ((NIC_RATES, "rate_bytes_per_second"), (NIC_LAYERS, "technology")):
        if not any(all(key in nic for nic in one["nics"]) for one in seen):
            yield words


def is_counted(nics: Sequence[Mapping[str, Any]], technology: str) -> bool:
    """Whether a list of interfaces shows how many of a technology there are.

    A list that states no technology has those of InfiniBand and Ethernet; a tool may leave out all others. A bond hides
    how many interfaces it has.
    """
    if any(nic.get("bonded") for nic in nics):
        return False
    return technology in {"infiniband", "ethernet"} or any(nic.get("technology") == technology for nic in nics)


def is_rate_open(node: Facts, odd: Set[tuple[str, int]]) -> bool:
    """Whether an active port has a rate that no file states; `odd` are the ports whose stated rate is named apart."""
    ports = (port for port in node.get("ports", ()) if port.get("active") and "rate_bytes_per_second" not in port)
    return any((port["device"], port["port"]) not in odd for port in ports)
