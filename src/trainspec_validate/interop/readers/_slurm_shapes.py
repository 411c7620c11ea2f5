"""Records the shapes of Slurm other than trees: blocks, rings, tori and flat networks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainspec_validate.interop.readers._sheet import Sheet, plain_text, whole
from trainspec_validate.interop.readers._switch_tree import put_fabric_unknowns, put_nodes
from trainspec_validate.model.finding import Pointer

_MAX_EXTENT = 100_000


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


def put_rings(sheet: Sheet, rings: Mapping[str, Sequence[str]]) -> None:
    """Record the nodes of rings; no key holds a ring of nodes."""
    put_nodes(sheet, {node for nodes in rings.values() for node in nodes})
    _remark_shared(sheet, rings, "rings")
    put_fabric_unknowns(sheet, "Slurm")
    told = ", ".join(f"{plain_text(name)} of {len(nodes)}" for name, nodes in list(rings.items())[:6])
    sheet.remark(f"{len(rings)} rings of nodes, which no key of a fabric holds: {told}")


def put_torus(sheet: Sheet, tori: Sequence[tuple[Mapping[str, Any], Sequence[str]]]) -> None:
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


def put_flat(sheet: Sheet) -> None:
    """Record that the file states nothing."""
    put_nodes(sheet, ())
    sheet.unknown(("num_nodes",), "a flat topology lists no nodes")
    sheet.remark("a flat topology says nothing about the network")


def _remark_shared(sheet: Sheet, groups: Mapping[str, Sequence[str]], what: str) -> None:
    counts = Counter(node for nodes in groups.values() for node in set(nodes))
    shared = sorted(node for node, count in counts.items() if count > 1)
    if shared:
        sheet.remark(f"{len(shared):,} nodes are in several {what}, for example {', '.join(shared[:6])}")
