"""Reads the matrices of `rocm-smi --showtopo`: weights, hops and link types of one node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _nvlink
from trainspec_validate.interop.readers._draft import Draft, plain_int
from trainspec_validate.interop.readers._links import meshed
from trainspec_validate.interop.readers._matrix import MAX_COLUMNS, Row, plain_lines, rows
from trainspec_validate.interop.readers._node import Device, Node, describe

NAME = "rocm-smi-topology"
_LOOK_CHARACTERS = 65_536
_TITLES = {
    "Weight between two GPUs": "weight",
    "Hops between two GPUs": "hops",
    "Link Type between two GPUs": "type",
}
_NUMA = re.compile(r"\s*GPU\[([0-9]{1,4})\]\s*:\s*\(Topology\) Numa (Node|Affinity):\s*(-?[0-9]{1,4})\s*", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}|N/A", re.ASCII)
_TYPE = re.compile(r"0|XGMI|PCIE|XXXX|N/A|UNKNOWN")
# Source: ROCm/rocm-systems#5763.
_HOPS = {"2": "over PCIe within one socket", "3": "over PCIe across sockets"}


def looks_like(text: ForeignText) -> bool:
    """Whether one of the titles of the matrices appears near the start."""
    start = text.text[:_LOOK_CHARACTERS]
    return any(f" {title} =" in start for title in _TITLES)


def read(text: ForeignText) -> Fragment:
    """Facts of one node from the matrices.

    Raises:
        ForeignFormatError: no matrix is there, or one is cut off or damaged.
    """
    lines = plain_lines(text.text)
    tables = {
        key: _table(lines, k, _TYPE if key == "type" else _NUMBER)
        for k, line in enumerate(lines)
        if (key := _TITLES.get(line.strip().strip("=").strip()))
    }
    if not tables:
        raise ForeignFormatError("holds no matrix", help="copy the output of `rocm-smi --showtopo`")
    labels = {tuple(row.label for row in table) for table in tables.values()}
    if len(labels) != 1:
        raise ForeignFormatError("the matrices list different devices", help="copy them from one run")
    draft = Draft()
    numa = _numa_nodes(lines)
    draft.group_unknown("accelerator", "model", reason="the matrices name no product; see rocm-smi --showproductname")
    draft.group("accelerator", "vendor", value="amd", how="the tool shows accelerators of one maker")
    draft.group_unknown("nics", reason="the matrices hold accelerators alone; see the NCCL topology file")
    draft.group_unknown("host", "num_numa_nodes", reason="only NUMA nodes of accelerators are shown; see lscpu")
    for key in ("generation", "num_lanes"):
        draft.group_unknown("host_link", key, reason="the matrices hold no slots; see rocm-smi --showbus")
    devices = tuple(
        Device(f"accelerator-{label.removeprefix('GPU')}", named=False, numa_node=numa.get(label))
        for label in labels.pop()
    )
    describe(draft, Node(devices, ()))
    draft.remark("each device counts as one accelerator; packages of several dies or partitions show as several")
    _symmetry(tables, draft)
    _hops(tables.get("hops", []), draft)
    _scale_up(tables.get("type"), len(devices), draft)
    return draft.fragment(NAME, text)


def _table(lines: Sequence[str], title: int, cell: re.Pattern[str]) -> list[Row]:
    header = next((k for k in range(title + 1, len(lines)) if lines[k].strip()), None)
    if header is None or lines[header].split()[0] != "GPU0":
        raise ForeignFormatError("the title is followed by no matrix", title + 1, "copy the whole output")
    columns = lines[header].split()
    if len(columns) > MAX_COLUMNS or any(not re.fullmatch(r"GPU[0-9]{1,4}", label) for label in columns):
        raise ForeignFormatError("the header of the matrix holds something else than devices", header + 1)
    if len(set(columns)) < len(columns):
        raise ForeignFormatError("the header of the matrix names a device twice", header + 1)
    return rows(lines, header + 1, columns, lambda word: cell.fullmatch(word) is not None)


def _numa_nodes(lines: Sequence[str]) -> dict[str, int]:
    """NUMA node of each device; the driver writes -1 where it does not know."""
    found: dict[str, int] = {}
    for line in lines:
        match = _NUMA.fullmatch(line)
        node = plain_int(match[3], 0, 1024) if match else None
        if match and node is not None and (match[2] == "Node" or f"GPU{match[1]}" not in found):
            found[f"GPU{match[1]}"] = node
    return found


def _symmetry(tables: dict[str, list[Row]], draft: Draft) -> None:
    for key, table in tables.items():
        for i, row in enumerate(table):
            for j in range(i):
                if row.cells[j] != table[j].cells[i]:
                    told = f"{key} of {row.label} to {table[j].label} is {row.cells[j]}, back {table[j].cells[i]}"
                    draft.remark(told, row.line)


def _hops(table: Sequence[Row], draft: Draft) -> None:
    counts: dict[str, int] = {}
    for i, row in enumerate(table):
        for cell in row.cells[:i]:
            counts[cell] = counts.get(cell, 0) + 1
    for hops, meaning in _HOPS.items():
        if counts.get(hops):
            draft.remark(f"{counts[hops]} pairs are {hops} hops apart, which means {meaning}")


def _scale_up(table: Sequence[Row] | None, size: int, draft: Draft) -> None:
    if table is None:
        draft.group_unknown("scale_up", reason="the matrix of link types is missing; see rocm-smi --showtopotype")
        return
    pairs = {(i, j): 1 for i, row in enumerate(table) for j, cell in enumerate(row.cells) if cell == "XGMI" and i != j}
    shape = meshed(size, pairs, count_links=False)
    if shape is None:
        draft.group_unknown("scale_up", reason="no pair of accelerators has an xGMI link")
        if size > 1:
            draft.remark("no xGMI between accelerators; they reach each other over PCIe")
            if all(cell == "PCIE" for i, row in enumerate(table) for j, cell in enumerate(row.cells) if i != j):
                for position, row in enumerate(table):
                    draft.device(position, name=row.label, num_links=0)
        return
    how = "pairs whose link type is XGMI"
    draft.group("scale_up", "technology", value="xgmi")
    _nvlink.islands(draft, shape)
    for key, value in (("topology", shape.topology), ("domain_num_accelerators", shape.num_accelerators)):
        if value is None:
            draft.group_unknown("scale_up", key, reason=_nvlink.UNEVEN)
        else:
            draft.group("scale_up", key, value=value, how=how)
    draft.group_unknown("scale_up", "num_links", reason="the matrix shows the type of a pair's link, not the number")


FORMATS: tuple[Format, ...] = (Format(NAME, "matrices of `rocm-smi --showtopo`", "ClusterProfile", looks_like, read),)
