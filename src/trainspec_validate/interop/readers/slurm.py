"""Reads the topology files of the Slurm scheduler, topology.conf and topology.yaml: trees and other shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._hostlist import MAX_NAMES, expand
from trainspec_validate.interop.readers._sheet import Sheet, load_values, plain_text, whole
from trainspec_validate.interop.readers._switch_tree import Switch, put_fabric_unknowns, put_nodes, put_tree
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import hint

CONF = "slurm-topology-conf"
YAML = "slurm-topology-yaml"
_SHOWN_KEYS = ("Level", "AggregatedBlock", "BlockIndex", "BlockSize")
"""Keys that `scontrol show topology` prints in addition to those of topology.conf."""
_KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes", "RingName", *_SHOWN_KEYS)
_STARTS = re.compile(
    r"^[ \t]*(switchname|blockname|aggregatedblock|ringname|blocksizes)[ \t]*=", re.IGNORECASE | re.MULTILINE
)
_PAIR = re.compile(r"(?<![A-Za-z])(?P<key>[A-Za-z]{1,32})[ \t]{0,8}=[ \t]{0,8}(?P<value>\S+)")
_YAML_STARTS = re.compile(r"^- +topology:", re.MULTILINE)
_YAML_SHAPES = ("tree", "block", "flat", "ring", "torus3d")
_MAX_ENTRIES = 100_000
_MAX_EXTENT = 100_000


def looks_like_conf(text: ForeignText) -> bool:
    """Whether a line starts with a key of topology.conf."""
    return bool(_STARTS.search(text.text))


def looks_like_yaml(text: ForeignText) -> bool:
    """Whether the text is a list of entries that start with `topology:`."""
    return bool(_YAML_STARTS.search(text.text)) and not looks_like_conf(text)


def read_conf(text: ForeignText) -> Fragment:
    """Nodes and tiers of a topology.conf, or of what `scontrol show topology` prints of it.

    Format: https://slurm.schedmd.com/topology.conf.html; SchedMD/slurm@075a23b8:src/plugins/topology.

    Raises:
        ForeignFormatError: no line has a key, a key is unknown, a list of names is malformed, or plug-ins are mixed.
    """
    sheet = Sheet()
    lines = list(_conf_lines(text))
    if not lines:
        raise ForeignFormatError("no line describes a switch, a block or a ring", None, "copy the whole topology.conf")
    found = {key for _, pairs in lines for key in pairs}
    shapes = [key for key in ("SwitchName", "BlockName", "RingName") if key in found]
    if len(shapes) > 1:
        number = next(number for number, pairs in lines if shapes[1] in pairs)
        raise ForeignFormatError(f"{shapes[0]} and {shapes[1]} in one file", number, "the file serves one plug-in only")
    names = _Names()
    if shapes == ["SwitchName"]:
        speeds = sorted({pairs["LinkSpeed"] for _, pairs in lines if "LinkSpeed" in pairs})
        if speeds:
            sheet.remark(f"LinkSpeed {', '.join(speeds[:6])} has no unit in Slurm, so no bandwidth is taken from it")
        put_tree(sheet, [switch for number, pairs in lines for switch in _switches(number, pairs, names)], "Slurm")
    elif shapes == ["RingName"]:
        _put_rings(sheet, _groups([(n, pairs.get("RingName"), pairs.get("Nodes", "")) for n, pairs in lines], names))
    else:
        _put_blocks(sheet, lines, names)
    if any(key in found for key in _SHOWN_KEYS):
        sheet.remark("the text is printed by scontrol show topology, so switches list every node below them")
    return sheet.fragment(CONF, text)


def _put_blocks(sheet: Sheet, lines: Sequence[tuple[int, dict[str, str]]], names: _Names) -> None:
    """Blocks of topology.conf, with the sizes of groups; or as the scheduler prints them, with the groups."""
    sizes = [(n, pairs["BlockSizes"]) for n, pairs in lines if "BlockSizes" in pairs]
    groups = [(n, pairs) for n, pairs in lines if "AggregatedBlock" in pairs]
    rest = [(n, p) for n, p in lines if p.keys() != {"BlockSizes"} and "AggregatedBlock" not in p]
    blocks = _groups([(n, p.get("BlockName"), p.get("Nodes", "")) for n, p in rest], names)
    printed: dict[int, list[int]] = {}
    for number, pairs in groups:
        size = whole(pairs.get("BlockSize"), 1, MAX_NAMES)
        if size is None:
            help_ = "AggregatedBlock=block[1-2] BlockIndex=4 Nodes=... BlockSize=64"
            raise ForeignFormatError("an aggregated block without its BlockSize", number, help_)
        printed.setdefault(size, []).append(len(set(names.of(pairs.get("Nodes", ""), number))))
    put_blocks(sheet, blocks, _sizes(*sizes[-1]) if sizes else [], printed)


class _Names:
    """Expands lists of names and bounds their sum over one file."""

    def __init__(self) -> None:
        self._left = MAX_NAMES

    def of(self, expression: str, line: int | None = None) -> list[str]:
        found = expand("" if expression == "(null)" else expression, line, self._left)
        self._left -= len(found)
        return found


def _groups(listed: Iterable[tuple[int | None, str | None, str]], names: _Names) -> dict[str, list[str]]:
    """Nodes by name of their block or ring."""
    found: dict[str, list[str]] = {}
    for line, name, nodes in listed:
        if name is None:
            raise ForeignFormatError("nodes of a block or ring without a name", line, "BlockName=rack1 Nodes=...")
        if name in found:
            raise ForeignFormatError(f"{plain_text(name)} is listed twice", line, "list each block or ring once")
        found[name] = names.of(nodes, line)
    return found


def _conf_lines(text: ForeignText) -> Iterator[tuple[int, dict[str, str]]]:
    """Number and keys of every line that says something; a backslash joins a line to the next."""
    known = {key.casefold(): key for key in _KEYS}
    joined, start = "", 0
    for number, raw in enumerate(text.text.split("\n"), start=1):
        line = raw.partition("#")[0].rstrip()
        start = start if joined else number
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        line, joined = joined + line, ""
        pairs: dict[str, str] = {}
        for match in _PAIR.finditer(line):
            key = known.get(match["key"].casefold())
            if key is None:
                told = hint(match["key"], _KEYS)
                raise ForeignFormatError(f"topology.conf has no key {plain_text(match['key'])!r}", start, told)
            pairs[key] = match["value"]
        if line.strip() and not pairs:
            raise ForeignFormatError(f"this line has no key: {plain_text(line)}", start, "SwitchName=leaf1 Nodes=...")
        if pairs:
            yield start, pairs
    if joined:
        raise ForeignFormatError("the file ends within a continued line", start)


def _switches(line: int, pairs: Mapping[str, str], names: _Names) -> Iterator[Switch]:
    if "SwitchName" not in pairs:
        raise ForeignFormatError(f"{next(iter(pairs))} without SwitchName", line, "SwitchName=leaf1 Nodes=...")
    children = tuple(names.of(pairs.get("Switches", ""), line))
    implied = "Level" in pairs and bool(children)
    nodes = () if implied else tuple(names.of(pairs.get("Nodes", ""), line))
    for name in names.of(pairs["SwitchName"], line):
        yield Switch(name, children, nodes, line)


def _sizes(line: int | None, written: str) -> list[int]:
    sizes = [whole(part, 1, MAX_NAMES) for part in written.split(",")]
    if None in sizes:
        raise ForeignFormatError(f"BlockSizes {plain_text(written)} are no numbers of nodes", line, "BlockSizes=8,16")
    return [size for size in sizes if size is not None]


def read_yaml(text: ForeignText) -> Fragment:
    """Nodes and tiers of a topology.yaml.

    Format: https://slurm.schedmd.com/topology.yaml.html.

    Raises:
        ForeignFormatError: the text is not of that format, or a list of names is malformed.
    """
    data = load_values(text, "topology.yaml")
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    if not entries or len(entries) != len(data):
        raise ForeignFormatError("topology.yaml is a list of topologies", 1, "- topology: name")
    sheet = Sheet()
    default = [entry for entry in entries if entry.get("cluster_default") is True]
    if len(entries) > 1 and len(default) != 1:
        named = ", ".join(plain_text(entry.get("topology")) for entry in entries[:6])
        why = f"the file has the topologies {named}, and not exactly one is the cluster_default"
        for pointer in (("num_nodes",), ("fabrics",)):
            sheet.unknown(pointer, why)
        return sheet.fragment(YAML, text)
    chosen = (default or entries)[0]
    if len(entries) > 1:
        others = ", ".join(plain_text(entry.get("topology")) for entry in entries if entry is not chosen)
        sheet.remark(f"topology {plain_text(chosen.get('topology'))} is taken, the others are left out: {others}")
    shapes = [shape for shape in _YAML_SHAPES if chosen.get(shape)]
    if len(shapes) != 1:
        message = (
            f"topology {plain_text(chosen.get('topology'))} has {len(shapes)} of the keys {', '.join(_YAML_SHAPES)}"
        )
        raise ForeignFormatError(message, None, "each topology has exactly one")
    _put_shape(sheet, shapes[0], chosen[shapes[0]])
    sheet.tell_unread("the topology", chosen, read=("topology", "cluster_default", *_YAML_SHAPES))
    return sheet.fragment(YAML, text)


def _put_shape(sheet: Sheet, shape: str, value: Any) -> None:
    names = _Names()
    if shape == "flat":
        _put_flat(sheet)
    elif shape == "tree":
        put_tree(sheet, [_yaml_switch(entry, names) for entry in _entries(value, "switches")], "Slurm")
    elif shape == "block":
        listed = [(None, _text(entry, "block"), _text(entry, "nodes", "")) for entry in _entries(value, "blocks")]
        sizes = value.get("block_sizes") or []
        written = ",".join(map(str, sizes if isinstance(sizes, list) else [sizes]))
        put_blocks(sheet, _groups(listed, names), _sizes(None, written) if written else [])
    elif shape == "ring":
        listed = [(None, _text(entry, "ring"), _text(entry, "nodes", "")) for entry in _entries(value, "rings")]
        _put_rings(sheet, _groups(listed, names))
    else:
        _put_torus(sheet, [(entry, names.of(_text(entry, "nodes", ""))) for entry in _tori(value)])


def _tori(value: Any) -> list[dict[str, Any]]:
    """The torus entries: a list of them under `toruses` or `tori`, a bare list, or one alone."""
    for key in ("toruses", "tori"):
        if isinstance(value, dict) and key in value:
            return _entries(value, key)
    if isinstance(value, list):
        return _entries({"torus3d": value}, "torus3d")
    return _entries({"torus3d": [value]}, "torus3d")


def _yaml_switch(entry: dict[str, Any], names: _Names) -> Switch:
    children = tuple(names.of(_text(entry, "children", "")))
    return Switch(_text(entry, "switch"), children, tuple(names.of(_text(entry, "nodes", ""))))


def _entries(value: Any, key: str) -> list[dict[str, Any]]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ForeignFormatError(f"topology.yaml needs a list of entries under {key}")
    if len(found) > _MAX_ENTRIES:
        raise ForeignFormatError(f"more than {_MAX_ENTRIES:,} entries under {key}")
    return found


def _text(entry: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = entry.get(key, default)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ForeignFormatError(f"topology.yaml: {key} is no text in {plain_text(entry)}")
    return value


def put_blocks(
    sheet: Sheet,
    blocks: Mapping[str, Sequence[str]],
    sizes: Sequence[int],
    printed: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """Record blocks as nested groups of nodes.

    `sizes` are BlockSizes, of which the first is the least size of a block and the others are groups of as many
    blocks; `printed` has the nodes of the groups that the scheduler prints, by their size.
    """
    put_nodes(sheet, {node for nodes in blocks.values() for node in nodes})
    _remark_shared(sheet, blocks, "blocks")
    counts = Counter(len(nodes) for nodes in blocks.values())
    differ = f"blocks differ in their nodes: {', '.join(f'{n} with {size}' for size, n in counts.most_common(6))}"
    base = max(counts) if len(counts) == 1 else None
    if len(counts) > 1:
        sheet.remark(differ)
    least = min(sizes, default=0)
    if counts and least > max(counts):
        sheet.remark(f"the smallest of BlockSizes is {least}, but the largest block has {max(counts)} nodes")
    layers = [("block", base, "nodes of each block, all equal" if base else differ)] if counts else []
    for size in sorted({*sizes} - {least}):
        num_blocks, rest = divmod(size, least)
        nodes = base * num_blocks if base and not rest else None
        layers.append((f"block-{size}", nodes, f"BlockSizes {size} over {least}, in blocks" if base else differ))
    for size, found in sorted((printed or {}).items()):
        same = found[0] if len(set(found)) == 1 else None
        layers.append((f"block-{size}", same, f"aggregated blocks, {'all equal' if same else 'which differ'}"))
    _put_layers(sheet, layers)
    put_fabric_unknowns(sheet, "Slurm")
    sheet.unknown(
        ("node_groups", 0, "scale_up", "domain_num_accelerators"),
        "a block is often one scale-up domain; the file does not say whether it is, nor its accelerators",
    )


def _put_layers(sheet: Sheet, layers: Sequence[tuple[str, int | None, str]]) -> None:
    """Record layers by name, with the nodes of a group or the reason why there is no number."""
    for level, (name, num_nodes, told) in enumerate(layers):
        place: Pointer = ("fabrics", 0, "tiers", level)
        sheet.put((*place, "name"), name, "a label by the size of the group")
        if num_nodes is None:
            sheet.unknown((*place, "group_num_nodes"), told)
        else:
            sheet.put((*place, "group_num_nodes"), num_nodes, told)
        sheet.unknown((*place, "num_switches"), "Slurm lists blocks of nodes, not switches")


def _put_rings(sheet: Sheet, rings: Mapping[str, Sequence[str]]) -> None:
    """Record the nodes of rings; no key holds a ring of nodes."""
    put_nodes(sheet, {node for nodes in rings.values() for node in nodes})
    _remark_shared(sheet, rings, "rings")
    put_fabric_unknowns(sheet, "Slurm")
    told = ", ".join(f"{plain_text(name)} of {len(nodes)}" for name, nodes in list(rings.items())[:6])
    sheet.remark(f"{len(rings)} rings of nodes, which no key of a fabric holds: {told}")


def _put_torus(sheet: Sheet, tori: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> None:
    """Record the nodes of three-dimensional tori; their extents count nodes, so no key takes them."""
    names = {node for _, nodes in tori for node in nodes}
    total = 0
    for entry, _ in tori:
        raw = entry.get("dims") or entry.get("dimensions")
        if isinstance(raw, Mapping):
            raw = [raw.get(axis) for axis in ("x", "y", "z")]
        extents = (
            [whole(extent, 1, _MAX_EXTENT) for extent in raw] if isinstance(raw, list) and len(raw) <= 3 else [None]
        )
        known = [extent for extent in extents if extent is not None]
        if len(known) != len(extents):
            sheet.remark(f"a torus has no three extents: {plain_text(raw)}")
            continue
        places = 1
        for extent in known:
            places *= extent
        total += places
        sheet.remark(f"a torus of {' x '.join(map(str, known))} nodes; scale_up.dimensions count accelerators")
    put_nodes(sheet, names)
    if total and names and total != len(names):
        sheet.remark(f"the extents make {total:,} places, but {len(names):,} nodes are listed")
    if total and not names:
        sheet.put(("num_nodes",), total, "product of the extents; the file lists no nodes")
    sheet.put(("fabrics", 0, "topology"), "torus")
    put_fabric_unknowns(sheet, "Slurm")


def _put_flat(sheet: Sheet) -> None:
    """Record that the file states nothing."""
    put_nodes(sheet, ())
    sheet.unknown(("num_nodes",), "a flat topology lists no nodes")
    sheet.remark("a flat topology says nothing about the network")


def _remark_shared(sheet: Sheet, groups: Mapping[str, Sequence[str]], what: str) -> None:
    counts = Counter(node for nodes in groups.values() for node in set(nodes))
    shared = sorted(node for node, count in counts.items() if count > 1)
    if shared:
        sheet.remark(f"{len(shared):,} nodes are in several {what}, for example {', '.join(shared[:6])}")


FORMATS = (
    Format(CONF, "topology.conf of the Slurm scheduler", "ClusterProfile", looks_like_conf, read_conf),
    Format(YAML, "topology.yaml of the Slurm scheduler", "ClusterProfile", looks_like_yaml, read_yaml),
)
