"""Multiplies the mesh axes of MaxText, inside slices and between them, to degrees."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from trainspec_validate.interop.readers._plan_parts import LARGEST, Draft, is_count
from trainspec_validate.model.values import as_in_file, cut_to

_AXES = {
    "data": ("diloco", "data"),
    "fsdp": ("fsdp", "fsdp_transpose"),
    "expert": ("expert",),
    "context": ("sequence", "context", "context_usp_ulysses"),
    "tensor": ("tensor", "tensor_transpose", "tensor_sequence"),
    "pipeline": ("pipeline",),
}
"""Mesh axes of each kind of split."""
_LEFT_OVER = {("dcn", "data"), ("ici", "fsdp")}
"""Axes that take what is left over unless the settings say otherwise."""
_TOPOLOGY = re.compile(r"(v5e|v6e|v4|v5p)-([0-9]{1,6})")
_TWO_CORES = frozenset({"v4", "v5p"})
"""Kinds whose slices are named by cores, two on each chip."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Degrees of the mesh; None where an axis takes ranks that are left over and no one says how many there are."""

    degrees: dict[str, int | None]
    world: int | None
    world_from: str
    splits_sequence: bool = False
    """Whether tensor ranks also split activations along the sequence."""
    stated: frozenset[str] = frozenset()
    """Kinds of split of which the settings name an axis; the others have the degrees of base.yml."""


def axes_of(draft: Draft) -> Axes:
    """The mesh: product of the axes inside a slice and between slices."""
    slices = draft.count("compile_topology_num_slices", "num_slices")
    found = _TOPOLOGY.fullmatch(draft.word("compile_topology") or "")
    chips = int(found[2]) // (2 if found[1] in _TWO_CORES else 1) if found else None
    world, source = draft.count("num_target_devices"), "num_target_devices"
    if world is None and chips:
        world, source = chips * (slices or 1), f"{slices or 1} slices of {chips} chips by compile_topology"
    if world and slices and world % slices == 0:
        chips = world // slices
    inside, between = (
        _mesh(draft, "ici", chips),
        _mesh(draft, "dcn", slices or (1 if world and world == chips else None)),
    )
    degrees: dict[str, int | None] = {}
    for kind, names in _AXES.items():
        parts = [mesh[name] for mesh in (inside, between) for name in names]
        degrees[kind] = math.prod(part for part in parts if part) if None not in parts else None
    whole = None if None in degrees.values() else math.prod(part for part in degrees.values() if part)
    if world is None and whole and whole <= LARGEST:
        world, source = whole, "product of all axes inside and between slices"
    elif world and whole and whole != world:
        draft.remark(f"the axes multiply to {whole}, but the job has {world} devices")
    if any((mesh["diloco"] or 1) > 1 for mesh in (inside, between)):
        draft.remark("an axis for DiLoCo: replicas do not step together, so synchrony must be given")
    splits_sequence = any((mesh["tensor_sequence"] or 1) > 1 for mesh in (inside, between))
    return Axes(degrees, world, source, splits_sequence, _stated(draft))


def _stated(draft: Draft) -> frozenset[str]:
    named = {name for name, value in draft.values.items() if value is not None}
    settings = {
        kind: {f"{prefix}_{name}_parallelism" for prefix in ("ici", "dcn") for name in names}
        for kind, names in _AXES.items()
    }
    return frozenset(kind for kind, wanted in settings.items() if wanted & named)


def _mesh(draft: Draft, prefix: str, total: int | None) -> dict[str, int | None]:
    """Degrees of one mesh, the axis of -1 filled up to the total."""
    mesh: dict[str, int | None] = {}
    for names in _AXES.values():
        for name in names:
            setting = f"{prefix}_{name}_parallelism"
            value = draft.look(setting)
            default = -1 if (prefix, name) in _LEFT_OVER else 1
            if value is None and not draft.reasons(setting):
                value = default
            if value != -1 and not is_count(value):
                draft.remark(f"{setting} is {cut_to(as_in_file(value), 40)}, where a degree or -1 belongs", setting)
            mesh[name] = value if is_count(value) and isinstance(value, int) else None
    draft.look(f"{prefix}_autoregressive_parallelism", f"{prefix}_parallelism")
    open_axes = [name for name, value in mesh.items() if value is None]
    rest = math.prod(value for value in mesh.values() if value)
    if total and len(open_axes) == 1 and total % rest == 0:
        mesh[open_axes[0]] = total // rest
    return mesh
