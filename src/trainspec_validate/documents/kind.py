"""Decides which schema a loaded text is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.documents.types import API_VERSION, KINDS, SIDE_KINDS
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import did_you_mean, look_alike
from trainspec_validate.model.values import as_in_file

_HEAD = ("apiVersion", "kind")
_LISTED = 3
_SHORT = {
    "cluster": "ClusterProfile",
    "profile": "ClusterProfile",
    "plan": "TrainingPlan",
    "training": "TrainingPlan",
    "policy": "CheckpointPolicy",
    "checkpoint": "CheckpointPolicy",
    "checkpointing": "CheckpointPolicy",
    "waiver": "Waivers",
}


@dataclass(frozen=True, slots=True)
class KindFailure:
    """Why a document cannot be judged by any schema."""

    message: str
    help: str
    pointer: Pointer = ()
    points_at_key: bool = False


def kind_of(data: Any) -> str | KindFailure:
    """The kind that a document names, or what is wrong with it."""
    if not isinstance(data, dict):
        remedy = f"start with 'apiVersion: {API_VERSION}' and 'kind:'"
        return KindFailure("the document is not a mapping of keys to values", remedy)
    for key in _HEAD:
        if key not in data:
            return _without(key, data)
    version, kind = data["apiVersion"], data["kind"]
    if version != API_VERSION:
        message = f"apiVersion is {_shown(version)}, which this tool does not know"
        newer = isinstance(version, str) and version.startswith(API_VERSION.partition("/")[0])
        remedy = f"write apiVersion: {API_VERSION}" + (", or use the tool that it was written for" if newer else "")
        strange = look_alike(version) if isinstance(version, str) else ""
        return KindFailure(message, remedy + (f"; {strange}" if strange else ""), ("apiVersion",))
    if not isinstance(kind, str) or kind not in (*KINDS, *SIDE_KINDS):
        return KindFailure(f"kind is {_shown(kind)}, which is none of ours", _kind_help(kind, data), ("kind",))
    return kind


def misnamed(kind: str, data: Mapping[str, Any]) -> KindFailure | None:
    """Message, given once, on a document that names one kind and has only the keys of another."""
    fitting = _fitting(data)
    if fitting is None or _own_keys(kind) & data.keys():
        return None
    keys = [key for key in data if key in _own_keys(fitting)]
    listed = ", ".join(keys[:_LISTED]) + (", …" if len(keys) > _LISTED else "")
    message = f"kind is {kind}, but the keys are those of a {fitting}: {listed}"
    return KindFailure(message, f"write kind: {fitting}", ("kind",))


def _without(key: str, data: Mapping[str, Any]) -> KindFailure:
    near = did_you_mean(key, (str(name) for name in data))
    if near is not None and near.casefold() == key.casefold():
        return KindFailure(f"the key {near!r} is spelt {key}", f"write {key}", (near,), points_at_key=True)
    remedy = f"add the line apiVersion: {API_VERSION}"
    return KindFailure(f"the document has no {key}", remedy if key == "apiVersion" else _kind_help(None, data))


def _kind_help(kind: Any, data: Mapping[str, Any]) -> str:
    known = (*KINDS, *SIDE_KINDS)
    meant = None
    if isinstance(kind, str):
        meant = _SHORT.get(kind.casefold()) or did_you_mean(kind, known)
    meant = meant or _fitting(data)
    remedy = f"write kind: {meant}" if meant else f"one of: {', '.join(known)}"
    strange = look_alike(kind) if isinstance(kind, str) else ""
    return remedy + (f"; {strange}" if strange else "")


def _fitting(data: Mapping[str, Any]) -> str | None:
    """The kind that two keys or more speak for, and no key of another kind against."""
    counts = {kind: len(_own_keys(kind) & data.keys()) for kind in KINDS}
    best = max(counts, key=lambda kind: counts[kind])
    return best if counts[best] > 1 and not any(n for kind, n in counts.items() if kind != best) else None


def _own_keys(kind: str) -> set[str]:
    """The keys at the top of a kind that no other kind has."""
    from trainspec_validate.documents.schema import load_schema  # noqa: PLC0415

    others = {key for other in KINDS if other != kind for key in load_schema(other)["properties"]}
    return set(load_schema(kind)["properties"]) - others


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "empty" if value is None else as_in_file(value)[:60]
