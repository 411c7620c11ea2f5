"""Takes the explicit node of a one-node description out of a document of many nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from trainspec_validate.interop.fragment import Unknown
from trainspec_validate.model.finding import Pointer

Entry = TypeVar("Entry")
_NODES: Pointer = ("layout", "nodes")


def drop_lone_node(
    facts: dict[str, Any], derived: dict[Pointer, str], origins: dict[Pointer, str], unknown: list[Unknown]
) -> str:
    """Drop the one explicit node whose name is a label of ours, where its group has other than the listed nodes.

    A layout lists every node of a group or none. Returns what was dropped, in words; empty when nothing was.

    >>> facts = {"num_nodes": 4, "node_groups": [{"name": "n", "num_nodes": 4}],
    ...          "layout": {"nodes": [{"name": "node-0", "group": "n"}]}}
    >>> drop_lone_node(facts, {("layout", "nodes", 0, "name"): "a label"}, {}, [])
    'the explicit node node-0 represents 4 nodes of n and is left out; a layout lists every node of a group'
    >>> "layout" in facts
    False
    """
    layout = facts.get("layout")
    nodes = layout.get("nodes") if isinstance(layout, dict) else None
    if not isinstance(nodes, list):
        return ""
    labels = [k for k, node in enumerate(nodes) if (*_NODES, k, "name") in derived and isinstance(node, dict)]
    if len(labels) != 1:
        return ""
    index = labels[0]
    name = nodes[index].get("group")
    groups = facts.get("node_groups", ())
    count = next((group.get("num_nodes") for group in groups if group.get("name") == name), None)
    if count is None or count == sum(node.get("group") == name for node in nodes):
        return ""
    dropped = nodes.pop(index)
    _shift(derived, index)
    _shift(origins, index)
    kept = [Unknown(place, entry.reason) for entry in unknown if (place := _after(entry.pointer, index)) is not None]
    unknown[:] = kept
    if not nodes:
        layout = facts["layout"]
        del layout["nodes"]
        if not layout:
            del facts["layout"]
    told = "a layout lists every node of a group"
    return f"the explicit node {dropped.get('name')} represents {count} nodes of {name} and is left out; {told}"


def _shift(entries: dict[Pointer, Entry], index: int) -> None:
    moved: Mapping[Pointer | None, Entry] = {_after(pointer, index): entry for pointer, entry in entries.items()}
    entries.clear()
    entries.update({pointer: entry for pointer, entry in moved.items() if pointer is not None})


def _after(pointer: Pointer, index: int) -> Pointer | None:
    """Where a path stands when one explicit node is gone; None inside of that node."""
    if pointer[:2] != _NODES or len(pointer) < 3 or not isinstance(pointer[2], int) or pointer[2] < index:
        return pointer
    return None if pointer[2] == index else (*_NODES, pointer[2] - 1, *pointer[3:])
