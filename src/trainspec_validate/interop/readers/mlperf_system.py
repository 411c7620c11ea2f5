"""Reads system descriptions of MLPerf Training submissions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _mlperf_node as node
from trainspec_validate.interop.readers._mlperf_network import put_network
from trainspec_validate.interop.readers._mlperf_software import put_software, words
from trainspec_validate.interop.readers._sheet import Sheet, as_label, load_values, plain_text, whole

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
    put_network(sheet, said, model, per_node)
    put_software(sheet, said)
    _tell_unread(sheet, said)
    return sheet.fragment(NAME, text)


def _tell_unread(sheet: Sheet, said: Mapping[str, Any]) -> None:
    """Name every key that says something and is not read, with the beginning of its value."""
    given = [
        key for key in said if key not in _READ and (words(said, key) or isinstance(said[key], bool | dict | list))
    ]
    for key in given[:_MAX_UNREAD]:
        sheet.remark(f"no key takes {key[:100]}: {plain_text(said[key])[:120]}")
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


FORMATS = (
    Format(NAME, "system description of an MLPerf Training submission, JSON", "ClusterProfile", looks_like, read),
)
