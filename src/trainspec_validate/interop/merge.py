"""Joins the facts of several files about one machine or plan, decides which of two stays, and reports disagreement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents.types import read_partial
from trainspec_validate.documents.types.model import Model
from trainspec_validate.interop.completion import complete
from trainspec_validate.interop.fragment import ForeignFormatError, Fragment, Kind, Remark, Unknown
from trainspec_validate.interop.lone_node import drop_lone_node
from trainspec_validate.model.finding import Pointer
from trainspec_validate.performance.derived.families import TRANSFORMERS, foreign_keys, shape_lacks

_APPENDED = frozenset({"measurements", "observations", "frameworks", "sources"})
"""Lists whose entries are records of their own: those of every file are kept."""
_REFERENCES = (("node_groups", "group"), ("fabrics", "fabric"), ("node_groups", "node_group"))
_Inputs = Mapping[Pointer, Any]
"""Values that a fact was computed from, by their places."""
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Choice:
    """Facts that a person states in addition to the files."""

    num_nodes: int | None = None
    """Nodes of the only node group."""
    name: str | None = None
    """Name of the document."""


@dataclass(frozen=True, slots=True)
class FileRemark:
    """A remark with the file that it is about; the name is empty where it is about several."""

    name: str
    remark: Remark


@dataclass(frozen=True, slots=True)
class Merged:
    """One document in plain values, with everything that is said about it."""

    kind: Kind
    facts: Mapping[str, Any]
    unknown: tuple[Unknown, ...]
    remarks: tuple[FileRemark, ...]
    derived: Mapping[Pointer, str]
    origins: Mapping[Pointer, str]
    """Name of the file of each fact, by the path of its last mapping or list entry."""
    sources: tuple[tuple[str, str], ...]
    """Name and format of every file, in the order of reading."""


@dataclass(slots=True)
class _Joint:
    """The facts of the files so far, and where each came from."""

    facts: dict[str, Any] = field(default_factory=dict)
    origins: dict[Pointer, str] = field(default_factory=dict)
    labels: set[Pointer] = field(default_factory=set)
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)
    moved: dict[Pointer, Pointer] = field(default_factory=dict)
    derived: dict[Pointer, str] = field(default_factory=dict)
    defaults: dict[Pointer, bool] = field(default_factory=dict)
    """Facts that stand on a default, as keys."""
    inputs: dict[Pointer, _Inputs] = field(default_factory=dict)
    """Facts that files computed, with the values that they were computed from."""
    newest: set[Pointer] = field(default_factory=set)
    """Places that the newest file filled; files may have one name."""
    unknown: list[Unknown] = field(default_factory=list)
    remarks: list[FileRemark] = field(default_factory=list)


def merge(fragments: Sequence[Fragment], choice: Choice | None = None) -> Merged:
    """One document of the fragments of one kind; of two different facts one stays and a remark names both.

    A value of a file goes before one by a default of a framework; among equals the first stays. A value computed from
    a fact that gave way is computed again, or becomes unknown. Counts that follow from others are marked as derived.
    Entries of lists are joined by name, then by role, and when each side has only one; others stay.

    Raises:
        ForeignFormatError: there is nothing to merge, or the fragments are of several kinds.

    >>> one = Fragment("ClusterProfile", "a", "a.txt", {"num_nodes": 2})
    >>> two = Fragment("ClusterProfile", "b", "b.txt", {"num_nodes": 3, "num_accelerators": 8})
    >>> merged = merge([one, two])
    >>> merged.facts, merged.remarks[0].remark.message
    ({'num_nodes': 2, 'num_accelerators': 8}, 'num_nodes is 2 by a.txt, which is taken, and 3 by b.txt')
    """
    if not fragments:
        raise ForeignFormatError("nothing was read", None, "name a file")
    kinds = list(dict.fromkeys(fragment.kind for fragment in fragments))
    if len(kinds) > 1:
        raise ForeignFormatError(
            f"the files make several kinds: {', '.join(kinds)}", None, "import each kind by itself"
        )
    joint = _Joint()
    outdated = [entry for fragment in fragments for entry in _add(joint, fragment)]
    picked = choice or Choice()
    untold = [(entry.pointer, entry.reason) for entry in joint.unknown]
    told = complete(kinds[0], joint.facts, joint.derived, (picked.num_nodes, picked.name), untold)
    told.extend(_again(joint, outdated))
    told.append(drop_lone_node(joint.facts, joint.derived, joint.origins, joint.unknown))
    joint.remarks.extend(FileRemark("", Remark(message)) for message in told if message)
    return Merged(
        kinds[0],
        joint.facts,
        tuple(_open(joint.facts, joint.unknown)),
        tuple(joint.remarks),
        joint.derived,
        joint.origins,
        tuple((fragment.name, fragment.format) for fragment in fragments),
    )


def _untold_shape(model: Any) -> list[Unknown]:
    """What the shape of a transformer needs and no file tells."""
    found = read_partial(Model, model, "") if isinstance(model, dict) and model.get("family") in TRANSFORMERS else None
    return [Unknown(("model", *key.split(".")), "no file states it") for key in (shape_lacks(found) if found else ())]


def _again(joint: _Joint, outdated: Sequence[Unknown]) -> list[str]:
    """Facts that files computed from what gave way, and that were computed again; those that were not are unknown."""
    joint.unknown += [*outdated, *_untold_shape(joint.facts.get("model"))]
    found = dict.fromkeys(entry.pointer for entry in outdated if value_at(joint.facts, entry.pointer) is not None)
    names = ", ".join(".".join(map(str, pointer)) for pointer in found)
    return [f"computed again from what all files say: {names}"] if found else []


def _add(joint: _Joint, fragment: Fragment) -> list[Unknown]:
    """Take what one file says into the joint document; tells the computed facts that had to go."""
    joint.moved, joint.renamed, joint.newest = {}, {}, set()
    joint.labels |= {pointer for pointer in joint.derived if pointer[-1:] == ("name",)}
    _join_mapping(joint, joint.facts, _copied(fragment.facts), ((), ()), fragment)
    for pointer, how in (fragment.derived or {}).items():
        place = _moved(joint, pointer)
        if place in joint.newest:
            joint.derived[place] = how
            joint.defaults |= {place: True} if pointer in fragment.defaults else {}
            if pointer in fragment.inputs:
                inputs = fragment.inputs[pointer]
                joint.inputs[place] = {_moved(joint, item): value_at(fragment.facts, item) for item in inputs}
    joint.unknown.extend(Unknown(_moved(joint, entry.pointer), entry.reason) for entry in fragment.unknown)
    joint.remarks.extend(FileRemark(fragment.name, remark) for remark in fragment.remarks)
    _follow_names(joint, fragment.name)
    return _drop_outdated(joint.facts, joint.inputs, joint.origins, joint.derived, joint.defaults)


Places = tuple[Pointer, Pointer]
"""Path in the joint document, and path in the fragment."""


def _join_mapping(
    joint: _Joint, into: dict[str, Any], new: Mapping[str, Any], places: Places, origin: Fragment
) -> None:
    for key, value in new.items():
        there = ((*places[0], key), (*places[1], key))
        present = into.get(key)
        if key not in into:
            into[key] = value
            _note_origin(joint, there[0], value, origin.name)
        elif isinstance(present, dict) and isinstance(value, dict):
            _join_mapping(joint, present, value, there, origin)
        elif isinstance(present, list) and (present or value) and _are_records(present) and _are_records(value):
            _join_list(joint, present, value, there, origin)
        elif present != value:
            if _disagree(joint, there, (present, value), origin):
                into[key] = value
                _note_origin(joint, there[0], value, origin.name)
        elif there[1] not in origin.defaults and (
            there[0] in joint.defaults or (there[0] in joint.inputs and there[1] not in origin.inputs)
        ):
            _forget(there[0], joint.derived, joint.origins, joint.defaults, joint.inputs)
            _note_origin(joint, there[0], value, origin.name)


def _are_records(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _join_list(joint: _Joint, into: list[Any], new: list[Any], places: Places, origin: Fragment) -> None:
    key = str(places[0][-1])
    partners = {} if key in _APPENDED else _partners(into, new, "compute" if key == "nics" else None)
    num_before = len(into)
    for index, item in enumerate(new):
        if index in partners:
            target = partners[index]
            joint.moved[(*places[1], index)] = (*places[0], target)
            _join_mapping(joint, into[target], item, ((*places[0], target), (*places[1], index)), origin)
        elif key not in _APPENDED or item not in into[:num_before]:
            joint.moved[(*places[1], index)] = (*places[0], len(into))
            _note_origin(joint, (*places[0], len(into)), item, origin.name)
            into.append(item)
    if num_before and key not in _APPENDED and len(into) > num_before and key in {"node_groups", "nics", "fabrics"}:
        path = ".".join(map(str, places[0]))
        added = f"{len(into) - num_before} of {origin.name}"
        joint.remarks.append(
            FileRemark("", Remark(f"{path}: {num_before} entries are kept next to {added}; none of them match"))
        )


def _partners(into: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], role: str | None) -> dict[int, int]:
    """Position in the joint list of every new entry that one there describes too; `role` is that of silent ones."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for key in ("name", "role"):
        default = role if key == "role" else None
        ours, theirs = _unique(into, key, default), _unique(new, key, default)
        for value, index in theirs.items():
            target = ours.get(value)
            if index not in found and target is not None and target not in taken:
                found[index] = target
                taken.add(target)
    if len(into) == len(new) == 1 and not found and into[0].get("role") in (None, new[0].get("role")):
        found[0] = 0
    return found


def _unique(entries: Sequence[Mapping[str, Any]], key: str, default: str | None) -> dict[str, int]:
    values = [str(entry[key]) if key in entry else default for entry in entries]
    counts = Counter(values)
    return {value: i for i, value in enumerate(values) if value is not None and counts[value] == 1}


def _disagree(joint: _Joint, places: Places, values: tuple[Any, Any], origin: Fragment) -> bool:
    """Whether the new value goes before the present one; a label that no file gives is replaced in silence."""
    place, key = places[0], places[0][-1]
    parent = str(place[-3]) if len(place) >= 3 else ""
    new_is_derived = places[1] in (origin.derived or {})
    labelled = key == "name" and parent in {"node_groups", "fabrics", "nics", "tiers"}
    if labelled and (new_is_derived or place in joint.labels):
        joint.renamed[parent, str(values[1])] = str(values[0])
        return False
    sides = (
        _Side(values[0], joint.origins.get(place, "an earlier file"), place in joint.defaults),
        _Side(values[1], origin.name, places[1] in origin.defaults),
    )
    replaced, message = _prefer(place, *sides)
    joint.remarks.append(FileRemark("", Remark(message)))
    if replaced:
        _forget(place, joint.derived, joint.origins, joint.defaults, joint.inputs)
    elif key == "name":
        joint.renamed[parent, str(values[1])] = str(values[0])
    if not new_is_derived:
        joint.inputs.pop(place, None)  # what the remark calls taken stays
    return replaced


def _follow_names(joint: _Joint, name: str) -> None:
    """References of the newest file to an entry whose name was dropped follow to the name that stayed."""
    for parent, key in _REFERENCES:
        for (where, old), kept in joint.renamed.items():
            if where == parent:
                _rename(joint, joint.facts, (), (key, old, kept), name)


def _rename(joint: _Joint, value: Any, place: Pointer, change: tuple[str, str, str], name: str) -> None:
    key, old, kept = change
    if isinstance(value, dict):
        if value.get(key) == old and joint.origins.get((*place, key)) == name:
            value[key] = kept
        for inner, item in value.items():
            _rename(joint, item, (*place, inner), change, name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _rename(joint, item, (*place, index), change, name)


def _note_origin(joint: _Joint, place: Pointer, value: Any, name: str) -> None:
    joint.origins[place] = name
    joint.newest.add(place)
    if isinstance(value, dict):
        for key, item in value.items():
            _note_origin(joint, (*place, key), item, name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                _note_origin(joint, (*place, index), item, name)


def _moved(joint: _Joint, pointer: Pointer) -> Pointer:
    """Where a path of the newest file went."""
    for length in range(len(pointer), 0, -1):
        target = joint.moved.get(pointer[:length])
        if target is not None:
            return (*target, *pointer[length:])
    return pointer


def _open(facts: Mapping[str, Any], unknown: Sequence[Unknown]) -> list[Unknown]:
    """What stays unknown: not what another file tells, nor what the family of the model has not; each path once."""
    left: dict[Pointer, Unknown] = {}
    family = value_at(facts, ("model", "family"))
    foreign = {("model", key) for key in foreign_keys(family)} if family else set()
    for entry in unknown:
        if value_at(facts, entry.pointer) is None and entry.pointer[:2] not in foreign:
            left.setdefault(entry.pointer, entry)
    return list(left.values())


def _copied(value: Any) -> Any:
    """Plain mappings and lists that may be changed."""
    if isinstance(value, Mapping):
        return {str(key): _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class _Side:
    """Facts of one file."""

    value: Any
    name: str
    """Name of the file."""
    default: bool
    """Whether the value rests on a default of a framework."""

    def __str__(self) -> str:
        text = repr(self.value) if isinstance(self.value, list | dict) else str(self.value)
        told = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return f"{told} by {self.name}{' (a default)' if self.default else ''}"


def _prefer(place: Pointer, present: _Side, new: _Side) -> tuple[bool, str]:
    """Whether the new value replaces the present one, and the remark that names both.

    >>> _prefer(("memory", "activation_policy"), _Side("none", "a.json", True), _Side("full", "b.yaml", False))[1]
    'memory.activation_policy is full by b.yaml, which is taken, and none by a.json (a default)'
    """
    replaced = present.default and not new.default
    taken, left = (new, present) if replaced else (present, new)
    return replaced, f"{'.'.join(map(str, place))} is {taken}, which is taken, and {left}"


def _forget(place: Pointer, *tables: MutableMapping[Pointer, Any]) -> None:
    """Remove from tables by place what is said of a place and of those inside it."""
    for table in tables:
        for inner in [key for key in table if key[: len(place)] == place]:
            del table[inner]


def value_at(facts: Any, place: Pointer) -> Any:
    """The value at a path of keys and positions; None where there is none.

    >>> value_at({"tiers": [{"num_switches": 4}]}, ("tiers", 0, "num_switches")), value_at({}, ("tiers", 0))
    (4, None)
    """
    for key in place:
        if isinstance(facts, dict) and key in facts:
            facts = facts[str(key)]
        elif isinstance(facts, list) and isinstance(key, int) and key < len(facts):
            facts = facts[key]
        else:
            return None
    return facts


def _drop_outdated(
    facts: dict[str, Any],
    inputs: MutableMapping[Pointer, _Inputs],
    origins: MutableMapping[Pointer, str],
    *tables: MutableMapping[Pointer, Any],
) -> list[Unknown]:
    """Remove the facts that a file computed from values which did not stay; they, with the reason.

    `inputs` holds every computed fact with the values that it was computed from, `origins` the file of every fact;
    `tables` are others by place that lose the facts too.
    """
    dropped: list[Unknown] = []
    changed = True
    while changed:
        changed = False
        for place, values in list(inputs.items()):
            stale = next((item for item, value in values.items() if value_at(facts, item) != value), None)
            inner = value_at(facts, place[:-1])
            if stale is None or not isinstance(inner, dict):
                continue
            how = f"{origins.get(place, 'a file')} computes it from {'.'.join(map(str, stale))}"
            dropped.append(Unknown(place, f"{how}, of which another file says otherwise"))
            inner.pop(str(place[-1]), None)
            _forget(place, inputs, origins, *tables)
            changed = True
    return dropped
