"""Reads the matrix of `nvidia-smi topo -m`: links, distances and affinity of one node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import _nvlink
from trainspec_validate.interop.readers._draft import Draft, as_name, plain_int
from trainspec_validate.interop.readers._links import Shape, from_nvlink_matrix
from trainspec_validate.interop.readers._matrix import MAX_COLUMNS, Row, plain_lines, rows, without_escapes
from trainspec_validate.interop.readers._node import Device, Node, describe
from trainspec_validate.model.values import cut_to

NAME = "nvidia-smi-topology-matrix"
_LOOK_CHARACTERS = 65_536
_CELL = re.compile(r"X|NV([0-9]{1,3})|PIX|PXB|PHB|NODE|SYS|SOC|N/A", re.ASCII)
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,4}):\s*(\S{1,128})\s*", re.ASCII)
_WORDS = _nvlink.Words(
    how="NV cells of the matrix",
    joined="accelerators of the node that NV cells join",
    no_topology="so many links of a pair may be direct or go through switches; see nvidia-smi nvlink -s",
    no_links="the matrix does not show the links of one accelerator",
    one_node="domains of coherent hosts may span nodes, and the matrix shows one",
)
# NODE crosses host bridges of one NUMA node, which collective libraries class with PHB; SOC is the older name of SYS.
_CLASSES = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "PHB", "SYS": "SYS", "SOC": "SYS"}


@dataclass(frozen=True, slots=True)
class _Affinity:
    """What stands behind the cells of an accelerator."""

    numa_node: int | None
    numa_text: str
    own_numa_node: int | None
    """NUMA node that the accelerator's own memory is, on coherent hosts."""


def looks_like(text: ForeignText) -> bool:
    """Whether a header of the matrix appears near the start."""
    lines = text.text[:_LOOK_CHARACTERS].split("\n")
    return any(_is_header(without_escapes(line)) for line in lines if "CPU Affinity" in line)


def _is_header(line: str) -> bool:
    return "CPU Affinity" in line and line.split(maxsplit=1)[0] == "GPU0"


def read(text: ForeignText) -> Fragment:
    """Facts of one node from the matrix.

    Raises:
        ForeignFormatError: there is no matrix, or it is cut off or damaged.
    """
    lines = plain_lines(text.text)
    start = next((k for k, line in enumerate(lines) if _is_header(line)), None)
    if start is None:
        raise ForeignFormatError("holds no matrix", help="copy the output of `nvidia-smi topo -m`")
    columns = lines[start].partition("CPU Affinity")[0].split()
    if len(columns) > MAX_COLUMNS or len(set(columns)) < len(columns):
        raise ForeignFormatError("the header names a device twice or too many devices", start + 1)
    table = rows(lines, start + 1, columns, lambda cell: _CELL.fullmatch(cell) is not None)
    draft = Draft()
    _symmetry(table, draft)
    gpus = [k for k, label in enumerate(columns) if re.fullmatch(r"GPU[0-9]+", label)]
    nics = [k for k in range(len(columns)) if k not in set(gpus)]
    affinity = [_affinity(table[k], lines[start]) for k in gpus]
    node = _node(table, gpus, nics, _legend(lines), affinity)
    coherent = any(item.own_numa_node is not None for item in affinity)
    hidden = coherent and bool(node.paths) and set(node.paths.values()) == {"SYS"}
    if hidden:
        draft.remark(
            "every path is SYS because the memory of each accelerator is a NUMA node of its own; "
            "compare CPU Affinity with the NUMA nodes of the interfaces"
        )
        node = Node(node.accelerators, node.nics)
    _not_shown(draft)
    describe(draft, node)
    _affinities(affinity, draft)
    _scale_up(table, gpus, coherent, draft)
    return draft.fragment(NAME, text)


def _not_shown(draft: Draft) -> None:
    draft.group_unknown("accelerator", "model", reason="the matrix names no product; see nvidia-smi --query-gpu")
    draft.group("accelerator", "vendor", value="nvidia", how="the tool shows accelerators of one maker")
    for key in ("generation", "num_lanes"):
        draft.group_unknown("host_link", key, reason="the matrix holds no slots; see nvidia-smi -q")
    draft.group_unknown("host", "num_numa_nodes", reason="the matrix shows NUMA nodes of accelerators alone; see lscpu")


def _symmetry(table: Sequence[Row], draft: Draft) -> None:
    for i, row in enumerate(table):
        if row.cells[i] != "X":
            draft.remark(f"the cell of {row.label} with itself is {row.cells[i]}", row.line)
        for j in range(i):
            if row.cells[j] != table[j].cells[i]:
                told = f"{row.label} to {table[j].label} is {row.cells[j]}, back {table[j].cells[i]}"
                draft.remark(told, row.line)


def _legend(lines: Sequence[str]) -> dict[str, str]:
    return {found[1]: found[2] for line in lines if (found := _LEGEND.fullmatch(line))}


def _affinity(row: Row, header: str) -> _Affinity:
    """CPU affinity, NUMA affinity and own NUMA node; a lost field leaves the NUMA node unknown."""
    titles = [name for name in ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID") if name in header]
    words = list(row.tail)
    if "GPU NUMA ID" in titles and len(words) > 3:
        words = [*words[:2], next((word for word in reversed(words[2:]) if word), "")]
    known = dict(zip(titles, words, strict=False)) if len(words) >= len(titles) else {}
    numa = known.get("NUMA Affinity", "")
    return _Affinity(plain_int(numa, 0, 1024), numa[:64], plain_int(known.get("GPU NUMA ID"), 0, 1024))


def _node(
    table: Sequence[Row],
    gpus: Sequence[int],
    nics: Sequence[int],
    legend: dict[str, str],
    affinity: Sequence[_Affinity],
) -> Node:
    accelerators = tuple(
        Device(f"accelerator-{table[k].label.removeprefix('GPU')}", named=False, numa_node=item.numa_node)
        for k, item in zip(gpus, affinity, strict=True)
    )
    taken: set[str] = set()
    interfaces: list[Device] = []
    for k in nics:
        label = table[k].label
        shown = legend.get(label, label)
        name = as_name(shown, label)
        unique = name if name not in taken else as_name(f"{cut_to(name, 100)}-{label}", label)
        taken.add(unique)
        named = unique == shown and not re.fullmatch(r"NIC[0-9]+", unique)
        interfaces.append(Device(unique, named=named, bonded="bond" in shown.lower(), line=table[k].line))
    paths = {
        (a, n): _CLASSES[table[i].cells[j]]
        for a, i in enumerate(gpus)
        for n, j in enumerate(nics)
        if table[i].cells[j] in _CLASSES
    }
    return Node(accelerators, tuple(interfaces), paths, "from the matrix; NODE is written PHB")


def _affinities(affinity: Sequence[_Affinity], draft: Draft) -> None:
    lists = sorted({item.numa_text for item in affinity if re.fullmatch(r"[0-9]+[-,][0-9,-]+", item.numa_text)})
    if lists:
        draft.remark(f"NUMA affinity is a list: {'; '.join(lists[:8])}")


def _scale_up(table: Sequence[Row], gpus: Sequence[int], coherent: bool, draft: Draft) -> None:
    pairs = {}
    for a, i in enumerate(gpus):
        for b, j in enumerate(gpus):
            found = _CELL.fullmatch(table[i].cells[j])
            if i != j and found is not None and found[1]:
                pairs[a, b] = int(found[1])
    shape = from_nvlink_matrix(len(gpus), pairs)
    for a, i in enumerate(gpus):
        draft.device(a, name=table[i].label, num_links=_num_links(shape, a, pairs) if len(gpus) > 1 else None)
    if shape is None:
        _nvlink.none_found(draft, len(gpus), "the matrix shows no NVLink")
    else:
        _nvlink.write(draft, shape, set(pairs.values()), _WORDS, coherent=coherent)


def _num_links(shape: Shape | None, position: int, pairs: Mapping[tuple[int, int], int]) -> int | None:
    """Links of one accelerator: through switches each pair shows all of them, else a pair shows its own."""
    own = [count for (one, _), count in pairs.items() if one == position]
    if shape is None or (not own and not shape.islands):
        return 0
    if shape.topology == "switched":
        return max(own, default=0)
    return sum(own) if shape.topology is not None else shape.num_links


FORMATS: tuple[Format, ...] = (Format(NAME, "matrix of `nvidia-smi topo -m`", "ClusterProfile", looks_like, read),)
