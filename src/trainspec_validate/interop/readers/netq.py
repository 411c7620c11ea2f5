"""Reads the JSON of NetQ: its topology graph, and its list of compute nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._port_survey import SurveyedSwitch, put_survey
from trainspec_validate.interop.readers._sheet import Sheet, as_label, load_values, plain_text, whole
from trainspec_validate.interop.readers._switch_tree import put_domains

GRAPH = "netq-topology-graph"
NODES = "netq-compute-nodes"
_MAX_DEPTH = 8
_MAX_DEVICES = 200_000
_HEAD = 4096


def _starts_list(text: ForeignText) -> bool:
    return text.text[:_HEAD].lstrip().startswith("[")


def looks_like_graph(text: ForeignText) -> bool:
    """Whether the text is a list and has the keys of links and nodes of the graph."""
    return _starts_list(text) and '"compounded_links"' in text.text and '"compounded_nodes"' in text.text


def looks_like_nodes(text: ForeignText) -> bool:
    """Whether the text is a list and has the keys of compute nodes."""
    return _starts_list(text) and '"GpuIDList"' in text.text and '"DomainUUID"' in text.text


def read_graph(text: ForeignText) -> Fragment:
    """Hosts, tiers and uplinks of the graph. Format: NVIDIA/topograph@e2b62507:tests, topologyGraph of NetQ.

    Raises:
        ForeignFormatError: the text is no such graph.
    """
    data = load_values(text, "topology graph of NetQ")
    graphs = [graph for graph in data if isinstance(graph, dict)] if isinstance(data, list) else []
    devices = {
        str(entry["id"]): entry for graph in graphs for entry in _devices(graph.get("nodes"), 0) if "id" in entry
    }
    if not devices:
        raise ForeignFormatError("the graph lists no devices", 1, "a list of objects with `nodes` and `links`")
    if len(devices) > _MAX_DEVICES:
        raise ForeignFormatError(f"more than {_MAX_DEVICES:,} devices")
    sheet = Sheet()
    tiers = {name: _tier(entry) for name, entry in devices.items()}
    switches = {name: tier for name, tier in tiers.items() if tier is not None}
    hosts = [name for name in devices if name not in switches]
    if hosts:
        sheet.put(("num_nodes",), len(hosts), "devices of the graph that are no switches, counted")
    sheet.put(("fabrics", 0, "name"), "fabric", "a label; the graph gives the network no name")
    cables = _cables(sheet, graphs, devices)
    put_survey(sheet, [_surveyed(plain_text(devices[name].get("name")), name, switches, cables) for name in switches])
    for key in ("transport", "topology"):
        sheet.unknown(("fabrics", 0, key), "the graph shows cables, not the protocol or the plan behind them")
    sheet.unknown(("num_accelerators",), "the graph lists hosts, not accelerators; the list of compute nodes does")
    sheet.unknown(("node_groups",), "the graph lists hosts, not what they are made of")
    return sheet.fragment(GRAPH, text)


def _devices(nodes: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Devices inside the groups that the graph draws."""
    if not isinstance(nodes, list) or depth > _MAX_DEPTH:
        return
    for entry in nodes:
        if isinstance(entry, dict):
            if entry.get("node_type") == "device":
                yield entry
            yield from _devices(entry.get("compounded_nodes"), depth + 1)


def _tier(entry: Mapping[str, Any]) -> int | None:
    """Tier of a switch; None for a host."""
    tier = whole(entry.get("tier"), 0, 64)
    return tier if entry.get("device_type") == "switch" else None


def _cables(sheet: Sheet, graphs: list[dict[str, Any]], devices: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """Cables between each two devices, seen from both."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for graph in graphs:
        links = graph.get("links")
        for link in links if isinstance(links, list) else ():
            if not isinstance(link, dict):
                continue
            source, target = str(link.get("src")), str(link.get("target"))
            number = whole(link.get("size"), 1, 4096) or 1
            listed = link.get("compounded_links")
            if isinstance(listed, list) and listed and len(listed) != number:
                sheet.remark(f"{plain_text(link.get('id'))} says {number} cables and lists {len(listed)}")
            if source not in devices or target not in devices:
                sheet.remark(f"{plain_text(link.get('id'))} ends at a device that is not listed")
                continue
            found[source][target] += number
            found[target][source] += number
    return found


def _surveyed(title: str, name: str, switches: Mapping[str, int], cables: Mapping[str, Counter[str]]) -> SurveyedSwitch:
    own = switches[name]
    around = cables.get(name, Counter())
    up = sum(number for other, number in around.items() if switches.get(other, -1) > own)
    down = sum(number for other, number in around.items() if switches.get(other, -1) < own)
    return SurveyedSwitch(title, own, down, up)


def read_nodes(text: ForeignText) -> Fragment:
    """Nodes, their accelerators and domains. Format: NVIDIA/topograph@e2b62507:tests, computeNodes of NetQ.

    Raises:
        ForeignFormatError: the text is no such list.
    """
    data = load_values(text, "list of compute nodes of NetQ")
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    if not entries or len(entries) != len(data) or not all("GpuIDList" in entry for entry in entries):
        raise ForeignFormatError("every compute node is an object with GpuIDList", 1)
    sheet = Sheet()
    sheet.put(("num_nodes",), len(entries), "entries counted")
    sizes = Counter(len(entry["GpuIDList"]) for entry in entries if isinstance(entry["GpuIDList"], list))
    sheet.put(("num_accelerators",), sum(size * number for size, number in sizes.items()), "accelerators counted")
    if len(sizes) == 1 and 0 not in sizes:
        sheet.put(("node_groups", 0, "name"), "nodes", "a label for the one kind of node")
        sheet.put(("node_groups", 0, "num_nodes"), len(entries), "entries counted")
        sheet.put(("node_groups", 0, "num_accelerators_per_node"), next(iter(sizes)), "length of GpuIDList")
        sheet.unknown(("node_groups", 0, "accelerator"), "the list has identifiers of accelerators, not their model")
    else:
        told = ", ".join(f"{number} with {size}" for size, number in sizes.most_common(6))
        sheet.remark(f"nodes differ in their accelerators: {told}")
        sheet.unknown(("node_groups",), f"nodes differ in their accelerators: {told}")
    domains: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        domain = entry.get("DomainUUID")
        if isinstance(domain, str) and domain:
            domains[as_label(domain)].append(as_label(str(entry.get("Name"))))
        if entry.get("Health", "HEALTHY") != "HEALTHY":
            sheet.remark(f"{plain_text(entry.get('Name'))} is {plain_text(entry['Health'])}")
    put_domains(sheet, domains, "DomainUUID of the node")
    sheet.unknown(
        ("node_groups", 0, "scale_up", "domain_num_accelerators"),
        "the list may hold only some of the nodes of a domain",
    )
    return sheet.fragment(NODES, text)


FORMATS = (
    Format(GRAPH, "topology graph of NetQ, JSON", "ClusterProfile", looks_like_graph, read_graph),
    Format(NODES, "list of compute nodes of NetQ, JSON", "ClusterProfile", looks_like_nodes, read_nodes),
)
