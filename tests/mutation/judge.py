"""Decides whether damage changes meaning, and whether the validator notices it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from trainspec_validate.documents import schema
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import KINDS, Document, Record, read
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline.engine import Member, run_rules
from trainspec_validate.pipeline.references import ReferenceFailure, bindings, referenced_files
from trainspec_validate.rules import all_rules

from .operators import FREE_CHOICES, Mutant, Pointer


@dataclass(frozen=True, slots=True, eq=False)
class DocumentSet:
    """Valid documents that belong together, by path."""

    name: str
    data: Mapping[str, Any]


def load_set(name: str, paths: Iterable[Path]) -> DocumentSet:
    return DocumentSet(name, {str(path): load_file(path).data for path in paths})


Complaint = tuple[str, str, Pointer]
"""Requirement, path and place of a finding: what stays the same when only the numbers of its message differ."""


def complaints(data: Mapping[str, Any]) -> set[Complaint]:
    """What is wrong with a set of plain values, and where; as `check.validate` finds it, without files and waivers."""
    members: dict[str, Member] = {}
    found: set[Complaint] = set()
    for path, value in data.items():
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind not in KINDS or value.get("apiVersion") != "trainspec/v1":
            return {("TS-DOC-004", path, ("kind",))}
        failures = {(failure.requirement, path, failure.pointer) for failure in schema.failures(kind, value)}
        found |= failures
        if not failures:
            members[path] = Member(path, read(kind, value))
    if found:
        return found
    for _, target in referenced_files(members.values(), lambda _: False):
        if isinstance(target, ReferenceFailure):
            found.add((target.requirement, target.path, target.pointer))
    by_path = {os.path.realpath(path): member for path, member in members.items()}
    bound, reference_failures = bindings(list(members.values()), lambda path: by_path.get(os.path.realpath(path)))
    found |= {(failure.requirement, failure.path, failure.pointer) for failure in reference_failures}
    rule_findings, *_ = run_rules(all_rules().values(), bound, load_index())
    return found | {(finding.requirement, finding.path, finding.pointer) for finding in rule_findings}


@cache
def departures(documents: DocumentSet) -> frozenset[Complaint]:
    """What a set says against itself before it is damaged: published plans depart from the rules, with reasons."""
    return frozenset(complaints(documents.data))


def notices(documents: DocumentSet, path: str, data: Any) -> bool:
    """Whether the validator finds anything in a set with one document replaced that it did not find before."""
    return not complaints({**documents.data, path: data}) <= departures(documents)


def changes_meaning(kind: str, mutant: Mutant) -> bool:
    """Whether a program that obeys the document would do or believe something else.

    Leaving out an optional key whose absence means "not stated" makes a document say less, not something wrong:
    that is not counted. Leaving out a key that is needed, or whose absence stands for a value, is. Nor is another
    pick of what a person chooses freely: see `FREE_CHOICES`.
    """
    if (mutant.operator, _place(mutant)) in FREE_CHOICES:
        return False
    if mutant.operator != "delete":
        return True
    return _absence_has_meaning(KINDS[kind], mutant.pointer)


def _place(mutant: Mutant) -> str:
    """Keys on the way to the damage; interfaces for management go by their role, as lists have no keys."""
    owner = mutant.data
    for step in mutant.pointer[:-1]:
        owner = owner[step]
    if isinstance(owner, dict) and owner.get("role") == "management":
        return f"management.{mutant.pointer[-1]}"
    return ".".join(step for step in mutant.pointer if isinstance(step, str))


@cache
def _fields(record: type[Record]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Fields of a record; msgspec resolves all annotations anew at each call."""
    return msgspec.structs.fields(record)


def _absence_has_meaning(model: type[Any], pointer: Pointer) -> bool:
    field = None
    for step in pointer:
        if isinstance(step, int):
            continue
        record = _record(model)
        if record is None:
            return True
        field = next((f for f in _fields(record) if f.encode_name == step), None)
        if field is None:
            return step == "kind"
        model = field.type
    if field is None:
        return True
    has_default = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
    if not has_default:
        return True
    return isinstance(field.default, (str, int, float, bool)) and field.default is not None


def _record(annotation: Any) -> type[Record] | None:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _record(argument)
        if found:
            return found
    return _record(annotation.__origin__) if hasattr(annotation, "__metadata__") else None


def same_document(kind: str, before: Any, after: Any) -> bool:
    """Whether two plain values are the same document once defaults are filled in."""
    try:
        left: Document = read(kind, before)
        right: Document = read(kind, after)
    except (KeyError, msgspec.ValidationError):
        return False
    return left == right
