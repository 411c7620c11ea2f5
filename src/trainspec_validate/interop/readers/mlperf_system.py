"""Reads system descriptions of MLPerf Training submissions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _mlperf_node as node
from trainspec_validate.interop.readers._mlperf_software import put_software, words
from trainspec_validate.interop.readers._mlperf_text import NicText, nics
from trainspec_validate.interop.readers._sheet import Sheet, as_label, load_values, plain_text, whole
from trainspec_validate.model.catalog import CatalogAccelerator
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

NAME = "mlperf-system"
_MARKS = re.compile(r'"(accelerator_model_name|accelerators_per_node|host_processors_per_node|number_of_nodes)"\s*:')
_MAX_NODES = 1_000_000
_READ = frozenset(
    {
        *("submitter", "system_name", "number_of_nodes", "accelerators_per_node"),
        *("accelerator_model_name", "accelerator_memory_capacity", "accelerator_host_interconnect"),
        *("accelerator_interconnect", "accelerator_interconnect_topology"),
        *("host_processors_per_node", "host_processor_core_count"),
        *("host_memory_capacity", "host_networking", "host_networking_topology"),
        *("framework", "other_software_stack", "operating_system"),
    }
)
"""Keys that become facts, unknowns or remarks of their own."""
_MAX_UNREAD = 100
_ROLES = ("compute", "storage", "management")
_FABRIC = "fabric"
_SHAPES = (("rail-optimi", "rail-optimised"), ("fat tree", "fat-tree"), ("fat-tree", "fat-tree"))
_TOPOLOGIES = ("host_networking_topology", "accelerator_interconnect_topology")
_RDMA = re.compile(r"(?i)roce|rdma|\befa\b")
_SHOWN = 200


def looks_like(text: ForeignText) -> bool:
    """Whether the text is an object with three of the keys that every description has."""
    return text.text[:4096].lstrip().startswith("{") and len(set(_MARKS.findall(text.text[:200_000]))) >= 3


def read(text: ForeignText) -> Fragment:
    """Nodes, accelerators, links, interfaces and software of a description; its values are free text.

    A clear value becomes a fact, everything else an unknown or a remark. Format: mlcommons/training_results_v5.1,
    files in `systems`.

    Raises:
        ForeignFormatError: the text is no such description.
    """
    data = load_values(text, "system description of MLPerf")
    if not isinstance(data, dict):
        raise ForeignFormatError("a system description is an object", 1)
    sheet = Sheet()
    said = {str(key): value for key, value in data.items()}
    _put_identity(sheet, said)
    per_node = _put_counts(sheet, said)
    model = node.put_accelerator(sheet, said)
    node.put_host(sheet, said)
    node.put_scale_up(sheet, said, model, per_node)
    _put_network(sheet, said, model, per_node)
    put_software(sheet, said)
    _tell_unread(sheet, said)
    return sheet.fragment(NAME, text)


def _tell_unread(sheet: Sheet, said: Mapping[str, Any]) -> None:
    """Name every key that says something and is not read, with the beginning of its value."""
    given = [
        key for key in said if key not in _READ and (words(said, key) or isinstance(said[key], bool | dict | list))
    ]
    for key in given[:_MAX_UNREAD]:
        sheet.remark(f"no key takes {cut_to(key, 100)}: {cut_to(plain_text(said[key]), 120)}")
    if len(given) > _MAX_UNREAD:
        sheet.remark(f"{len(given) - _MAX_UNREAD:,} more keys are not read")


def _put_identity(sheet: Sheet, said: Mapping[str, Any]) -> None:
    title, owner = words(said, "system_name"), words(said, "submitter")
    if as_label(title):
        sheet.put(("metadata", "name"), as_label(title), "system_name, with other characters as hyphens")
    if title:
        sheet.put(("metadata", "description"), f"{title}, submitted to MLPerf by {owner}" if owner else title)


def _put_counts(sheet: Sheet, said: Mapping[str, Any]) -> int | None:
    """Nodes and accelerators; returns the accelerators of one node."""
    nodes = whole(said.get("number_of_nodes"), 1, _MAX_NODES)
    per_node = whole(said.get("accelerators_per_node"), 1, 1024)
    group = ("node_groups", 0)
    sheet.put((*group, "name"), "nodes", "a label for the one kind of node")
    if nodes is not None:
        sheet.put(("num_nodes",), nodes)
        sheet.put((*group, "num_nodes"), nodes, "number_of_nodes; the form has one kind of node")
    else:
        sheet.unknown(("num_nodes",), f"number_of_nodes says {words(said, 'number_of_nodes') or 'nothing'}")
    if per_node is not None:
        sheet.put((*group, "num_accelerators_per_node"), per_node)
    else:
        reason = f"accelerators_per_node says {words(said, 'accelerators_per_node') or 'nothing'}"
        sheet.unknown((*group, "num_accelerators_per_node"), reason)
    if nodes is not None and per_node is not None:
        sheet.put(("num_accelerators",), nodes * per_node, "number_of_nodes times accelerators_per_node")
    return per_node


def _put_network(sheet: Sheet, said: Mapping[str, Any], model: CatalogAccelerator | None, per_node: int | None) -> None:
    """Record interfaces and the fabric of the compute interfaces."""
    written = words(said, "host_networking")
    listed = _with_roles(_with_technology(nics(written), said))
    said_roles = any(nic.role for nic in nics(written))
    position = 0
    # A list without the interfaces for collectives would say that there are none.
    lost = [nic for nic in listed if nic.role == "compute" and None in (nic.technology, nic.rate_bytes_per_second)]
    for nic in () if lost else listed:
        if _put_nic(sheet, position, nic, said=said_roles):
            position += 1
    clear = [nic for nic in listed if nic.role == "compute" and _is_whole(nic)]
    if position < len(listed) or not listed:
        told = written[:_SHOWN] or "nothing"
        if not position:
            sheet.unknown(("node_groups", 0, "nics"), f"host_networking says {told}")
        if written:
            sheet.remark(f"host_networking is not clear in all: {told}")
    for nic in clear:
        if per_node and nic.num_per_node and nic.num_per_node > per_node:
            told = f"{nic.num_per_node} compute interfaces for {per_node} accelerators of a node"
            sheet.remark(f"host_networking lists {told}; check that it is not the text of another machine")
    _put_fabric(sheet, said, written, clear)
    _remark_cards(sheet, said, listed)
    if not written and (whole(said.get("number_of_nodes"), 1, 10**6) or 1) > 1:
        name = model.title if model else "accelerators"
        sheet.remark(f"several nodes of {name}, but host_networking says nothing")


def _with_technology(listed: list[NicText], said: Mapping[str, Any]) -> list[NicText]:
    """Compute interfaces without a link layer have that of the network, where the form names one."""
    shape = words(said, "host_networking_topology").casefold()
    named = [name for name in ("ethernet", "infiniband") if name in shape]
    if len(named) != 1:
        return listed
    return [
        replace(nic, technology=named[0]) if nic.role == "compute" and nic.technology is None else nic for nic in listed
    ]


def _is_whole(nic: NicText) -> bool:
    return None not in (nic.num_per_node, nic.technology, nic.rate_bytes_per_second)


def _with_roles(listed: list[NicText]) -> list[NicText]:
    """The sole InfiniBand or a sole Ethernet with RDMA carries collectives; plain Ethernet states no role."""
    if any(nic.role for nic in listed):
        return listed
    chosen = [nic for nic in listed if nic.technology == "infiniband" and _is_whole(nic)]
    if len(chosen) != 1:
        chosen = [nic for nic in listed if len(listed) == 1 and _is_whole(nic) and _RDMA.search(nic.text)]
    return [
        NicText(n.text, "compute", n.num_per_node, n.technology, n.generation, n.rate_bytes_per_second)
        if n in chosen
        else n
        for n in listed
    ]


def _put_nic(sheet: Sheet, position: int, nic: NicText, *, said: bool) -> bool:
    """Record one interface when its role, technology and rate are clear; returns whether they are."""
    if nic.role not in _ROLES or nic.technology is None or nic.rate_bytes_per_second is None:
        return False
    place: Pointer = ("node_groups", 0, "nics", position)
    sheet.put((*place, "name"), nic.role, "a label by what the interface carries")
    sheet.put((*place, "role"), nic.role, "" if said else "the one interface with RDMA; the form states no role")
    if nic.role == "compute":
        sheet.put((*place, "fabric"), _FABRIC, "a label; the form has one network for collectives")
    if nic.num_per_node is not None:
        sheet.put((*place, "num_per_node"), nic.num_per_node)
    else:
        sheet.put((*place, "num_per_node"), 1, f"named without a number: {nic.text[:_SHOWN]}")
    sheet.put((*place, "technology"), nic.technology)
    if nic.generation:
        sheet.put((*place, "generation"), nic.generation)
    sheet.put((*place, "rate_bytes_per_second"), nic.rate_bytes_per_second, f"host_networking says {nic.text[:_SHOWN]}")
    return True


def _put_fabric(sheet: Sheet, said: Mapping[str, Any], written: str, clear: list[NicText]) -> None:
    """Record the fabric, where it is clear what the compute interfaces speak."""
    shape_text = "; ".join(f"{key} says {words(said, key)[:_SHOWN]}" for key in _TOPOLOGIES if words(said, key))
    shapes = [value for word, value in _SHAPES for key in _TOPOLOGIES if word in words(said, key).casefold()]
    shape = shapes[0] if shapes else None
    plain = words(said, "host_networking_topology").casefold()
    if plain and not any(word in plain for word, _ in _SHAPES):
        sheet.remark(f"host_networking_topology names no known shape: {words(said, 'host_networking_topology')}")
    plain = written.casefold()
    transport = None
    if any(nic.technology == "infiniband" for nic in clear):
        transport = "infiniband"
    elif "roce" in plain and "infiniband" not in plain:
        transport = "rocev2"
    if not clear and transport is None and shape is None:
        sheet.unknown(("fabrics",), f"host_networking says {written[:_SHOWN] or 'nothing'}")
        return
    sheet.put(("fabrics", 0, "name"), _FABRIC, "a label; the form gives the network no name")
    if transport:
        sheet.put(("fabrics", 0, "transport"), transport, f"host_networking says {written[:_SHOWN]}")
    else:
        sheet.unknown(("fabrics", 0, "transport"), f"host_networking says {written[:_SHOWN]}")
    if shape:
        sheet.put(("fabrics", 0, "topology"), shape, shape_text)
        if shape == "rail-optimised" and len(clear) == 1:
            sheet.put(
                ("fabrics", 0, "num_rails"), clear[0].num_per_node, "one rail for each compute interface of a node"
            )
        elif shape == "rail-optimised":
            sheet.unknown(("fabrics", 0, "num_rails"), "it is not clear which interfaces carry collectives")
    else:
        sheet.unknown(("fabrics", 0, "topology"), shape_text or "the form says nothing")


def _remark_cards(sheet: Sheet, said: Mapping[str, Any], listed: list[NicText]) -> None:
    written = words(said, "host_network_card_count")
    counted = sum(nic.num_per_node or 1 for nic in listed if nic.role)
    number = whole(said.get("host_network_card_count"), 1, 1000)
    if number is not None and counted and number != counted:
        sheet.remark(f"host_network_card_count says {number}, but host_networking lists {counted}")
    elif written and not counted:
        sheet.remark(f"host_network_card_count says {written[:_SHOWN]}, without what each interface is for")


FORMATS = (
    Format(NAME, "system description of an MLPerf Training submission, JSON", "ClusterProfile", looks_like, read),
)
