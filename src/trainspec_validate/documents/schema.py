"""Judges a plain value against a published schema, a large one in pieces, so that its errors fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import islice
from operator import getitem
from typing import Any

from trainspec_validate.documents.keys import Unknown, key_paths, unknown_key
from trainspec_validate.documents.schema_messages import bad_keys, missing_keys, shown, value_message
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.requirements import DATA_DIRECTORY

MAX_VALUES_AT_ONCE = 30_000
"""A document with more values is judged in pieces: one error of the validator takes 10 kB."""
MAX_ERRORS = 1_000
"""Errors of a document that is judged in pieces; published documents have a few hundred values."""
MAX_UNKNOWN = 1000
ABSENT = "TS-DOC-006"
"""Requirement on the keys that a document needs."""
MAX_ALIKE = 3
"""Entries of a list that lack the same keys and are reported one by one."""
_MORE = f"the document has more mistakes than these; the first {MAX_ERRORS:,} errors are listed"
_MAX_ITEMS = 20
"""Items of a list that one piece holds; lists are in lists, so the values of a piece grow with its square."""
_MAX_KEYS = 1_000
"""Keys of a mapping that a piece holds; no mapping with declared keys comes near."""
_MOST_CHARACTERS = 4_096
"""Characters at each end of a text that a piece holds; no text with a limit may have more. Errors repeat their text."""
_FREE = "extensions"
"""Key whose values the schemas leave alone."""


@dataclass(frozen=True, slots=True)
class SchemaFailure:
    """One place where a value breaks its schema."""

    requirement: str
    pointer: Pointer
    key: bool
    """True when the finding is about the key, not the value."""
    message: str
    help: str = ""
    is_absence: bool = False
    """True when the place lacks a key or a value, and nothing that is there is wrong."""
    meant: tuple[Pointer, ...] = ()
    """The places whose value a key that is not known may be: no default can be assumed there."""


def schema_file(kind: str) -> str:
    """File name of the schema of a kind: `ClusterProfile` is judged by `cluster-profile.schema.json`."""
    dashed = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind).lstrip("-")
    return f"{dashed}.schema.json"


@cache
def load_schema(kind: str) -> dict[str, Any]:
    """The packaged schema of a kind."""
    import json  # noqa: PLC0415

    text = (DATA_DIRECTORY / "schemas" / schema_file(kind)).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator(kind: str) -> Any:
    import jsonschema_rs  # noqa: PLC0415

    return jsonschema_rs.Draft202012Validator(load_schema(kind))


@cache
def _lenient_validator(kind: str) -> Any:
    """A validator of everything but the presence of keys."""
    import jsonschema_rs  # noqa: PLC0415

    return jsonschema_rs.Draft202012Validator(_without_required(load_schema(kind)))


def _without_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_required(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_required(value)
        for key, value in schema.items()
        if key != "required" or not isinstance(value, list)
    }


def failures(
    kind: str, data: Any, *, max_alike: int = MAX_ALIKE, unknown: Set[Pointer] = frozenset()
) -> Iterator[SchemaFailure]:
    """Every place where `data` breaks the schema of its kind; what follows from another failure is left out.

    Faults that more than `max_alike` entries of a list have alike are one failure. An absent key is no failure where
    its place is in `unknown`.
    """
    validator = _validator(kind)
    if validator.is_valid(data):
        return
    findings = _Findings(kind, data, max_alike)
    if _is_small(data):
        for error in validator.iter_errors(data):
            if not _is_of(error, tuple(error.instance_path), unknown):
                findings.take(error, tuple(error.instance_path))
        yield from findings.all()
        return
    errors = (each for each in _errors_in_pieces(validator, data) if not _is_of(*each, unknown))
    for error, pointer in islice(errors, MAX_ERRORS):
        findings.take(error, pointer)
    if not findings.num_taken:
        findings.take_first(_lenient_validator(kind) if unknown else validator, data)
    found = list(findings.all())
    yield from found[:-1]
    for last in found[-1:]:
        yield last if next(errors, None) is None else replace(last, help="; ".join(filter(None, (last.help, _MORE))))


def _is_of(error: Any, pointer: Pointer, unknown: Set[Pointer]) -> bool:
    """Whether an error is the absence of one of these keys."""
    return bool(unknown) and error.kind.name == "required" and (*pointer, error.kind.property) in unknown


def has_place(kind: str, pointer: Pointer) -> bool:
    """Whether documents of a kind have a place, if their lists are long enough.

    >>> has_place("TrainingPlan", ("parallelism", "context")), has_place("TrainingPlan", ("parallelism", 0))
    (True, False)
    """
    return _schema_at(kind, pointer) is not None


def is_required(kind: str, pointer: Pointer) -> bool:
    """Whether a mapping that documents of a kind have must hold the last key of a place.

    >>> is_required("TrainingPlan", ("batch",)), is_required("TrainingPlan", ("parallelism", "context"))
    (True, False)
    """
    above = _schema_at(kind, pointer[:-1])
    return above is not None and pointer[-1] in above.get("required", ())


def _schema_at(kind: str, pointer: Pointer) -> Mapping[str, Any] | None:
    schema = load_schema(kind)
    here: Any = schema
    for step in pointer:
        if isinstance(step, int):
            here = here.get("items")
        else:
            here = here.get("properties", {}).get(step, here.get("additionalProperties"))
        if not isinstance(here, dict):
            return None
        if "$ref" in here:
            here = schema["$defs"][here["$ref"].rsplit("/", 1)[1]]
    found: Mapping[str, Any] = here
    return found


def _is_small(data: Any) -> bool:
    """Whether a document has few values and no long text, so that its errors are listed in bounded memory."""
    found, pending = 0, [data]
    while pending and found <= MAX_VALUES_AT_ONCE:
        value = pending.pop()
        found += 1
        if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
            return False
        if isinstance(value, (dict, list)):
            pending.extend(islice(value.values() if isinstance(value, dict) else value, MAX_VALUES_AT_ONCE + 1))
    return found <= MAX_VALUES_AT_ONCE


def _errors_in_pieces(validator: Any, data: Any) -> Iterator[tuple[Any, Pointer]]:
    """The errors of a large document with their places, a few at a time."""
    for piece in _pieces(data):
        for error in validator.iter_errors(piece.data):
            pointer = piece.place(tuple(error.instance_path))
            if pointer is None or (error.kind.name == "required" and pointer in piece.shortened):
                continue
            yield error, pointer


class _Findings:
    """Collects the errors of one document, and turns those that have one cause into one failure."""

    def __init__(self, kind: str, data: Any, max_alike: int) -> None:
        self.kind, self.data, self.max_alike = kind, data, max_alike
        self.schema = load_schema(kind)
        self.num_taken = 0
        self.failures: list[SchemaFailure] = []
        self.unknown: dict[Pointer, dict[str, Mapping[str, Any]]] = {}
        self.missing: dict[Pointer, dict[str, Mapping[str, Any]]] = {}
        self.misformed: set[Pointer] = set()
        """Texts whose form or length was found wrong: one finding is enough."""
        self.judged_keys: set[Pointer] = set()
        """Mappings with a form for all their keys that was judged: each bad key is an error of its own."""
        self.empty: dict[Pointer, Mapping[str, Any]] = {}
        """Keys without a value that want a mapping, with the schema of it."""

    def take(self, error: Any, pointer: Pointer) -> None:
        self.num_taken += 1
        keyword = str(error.kind.name)
        trail = list(_subschemas(self.schema, error.schema_path))
        if keyword == "additionalProperties":
            self.unknown.setdefault(pointer, {}).update(dict.fromkeys(error.kind.unexpected[:MAX_UNKNOWN], trail[-1]))
        elif keyword == "required":
            wanted = trail[-1].get("properties", {}).get(error.kind.property, {})
            self.missing.setdefault(pointer, {})[error.kind.property] = wanted
        elif keyword == "propertyNames":
            owner = _owner(self.schema, trail, keyword)
            if pointer not in self.judged_keys:
                self.judged_keys.add(pointer)
                for key, message, help_text in bad_keys(iter(error.instance), trail[-1]):
                    self.failures.append(SchemaFailure(owner, (*pointer, key), True, message, help_text))
        else:
            value = error.instance
            is_cut = isinstance(value, str) and len(value) > _MOST_CHARACTERS
            self.value(keyword, pointer, reduce(getitem, pointer, self.data) if is_cut else value, trail)

    def take_first(self, validator: Any, data: Any) -> None:
        """Take the error that a whole document has and its pieces have not: it lies in a mapping that was cut."""
        import jsonschema_rs  # noqa: PLC0415

        try:
            validator.validate(data)
        except jsonschema_rs.ValidationError as error:
            self.take(error, tuple(error.instance_path))

    def value(self, keyword: str, pointer: Pointer, value: Any, trail: list[Mapping[str, Any]]) -> None:
        outer = trail[-2] if len(trail) > 1 else {}
        required = bool(pointer) and pointer[-1] in outer.get("required", ())
        if keyword in _FORMS and pointer in self.misformed:
            return
        if keyword in _FORMS:
            self.misformed.add(pointer)
        if value is None and trail[-1].get("type") == "object":
            self.empty[pointer] = trail[-1]
        message, help_text = value_message(keyword, value, trail[-1], place=pointer, required=required)
        owner = _owner(self.schema, trail, keyword)
        self.failures.append(SchemaFailure(owner, pointer, False, message, help_text, value is None))

    def all(self) -> Iterator[SchemaFailure]:
        """The failures, without the keys that are missing because they are misspelt or stand elsewhere."""
        kinds = {self.kind: _paths(self.kind)} | {kind: _paths(kind) for kind in _PUBLISHED}
        meant: set[Pointer] = set()
        for pointer, keys in self.unknown.items():
            below = self.keys_below_empty(pointer)
            for key, parent in keys.items():
                options = parent.get("properties", {})
                guess = unknown_key(key, pointer, options, self.kind, kinds)
                meant.update([(*pointer, guess.sibling)] if guess.sibling else guess.paths)
                if key not in below:
                    owner = _owner(self.schema, [], "additionalProperties")
                    message, places = f"unknown key {shown(key)}", self.places(guess, (*pointer, key), options)
                    yield SchemaFailure(owner, (*pointer, key), True, message, guess.help, meant=tuple(places))
        yield from self.failures
        yield from self.absences(meant)

    def places(self, guess: Unknown, pointer: Pointer, options: Mapping[str, Any]) -> Iterator[Pointer]:
        """The places of the document that an unknown key may have been meant for."""
        if guess.sibling or guess.any_sibling:
            yield from ((*pointer[:-1], key) for key in ([guess.sibling] if guess.sibling else options))
        elif len(pointer) == 1 and not guess.paths:
            keys = _inner_keys(self.data[pointer[0]])
            alike = {key: keys & self.target(schema).get("properties", {}).keys() for key, schema in options.items()}
            yield from ((key,) for key, shared in alike.items() if 2 * len(shared) > len(keys))
        for path in guess.paths:
            yield from _expanded(self.data, path, ())

    def absences(self, meant: Set[Pointer]) -> Iterator[SchemaFailure]:
        """The keys that are missing; what many entries of a list lack alike is one failure, at the first of them."""
        alike: dict[tuple[Pointer, tuple[str, ...]], list[Pointer]] = {}
        for pointer, wanted in self.missing.items():
            keys = tuple(key for key in wanted if (*pointer, key) not in meant)
            pattern = tuple("*" if isinstance(step, int) else step for step in pointer)
            alike.setdefault((pattern, keys), []).append(pointer)
        for (_, keys), pointers in alike.items():
            of_one = {key: self.missing[pointers[0]][key] for key in keys}
            if len(pointers) > self.max_alike:
                more = f"; {len(pointers) - 1:,} more entries lack the same"
                yield from (replace(f, message=f.message + more) for f in self.lacks(pointers[0], of_one))
            else:
                yield from (failure for pointer in pointers for failure in self.lacks(pointer, of_one))

    def keys_below_empty(self, pointer: Pointer) -> set[str]:
        """The keys that belong into a mapping beside them that has no value: they are indented too little."""
        below = (schema for place, schema in self.empty.items() if place[:-1] == pointer)
        return {key for schema in below for key in schema.get("properties", ())}  # labels may have any key

    def lacks(self, pointer: Pointer, wanted: Mapping[str, Mapping[str, Any]]) -> Iterator[SchemaFailure]:
        by_owner: dict[str, dict[str, Mapping[str, Any]]] = {}
        for key, subschema in wanted.items():
            by_owner.setdefault(_owner(self.schema, [subschema], "required"), {})[key] = subschema
        for owner, keys in by_owner.items():
            targets = {key: self.target(subschema) for key, subschema in keys.items()}
            yield SchemaFailure(owner, pointer, False, *missing_keys(pointer, keys, targets), is_absence=True)

    def target(self, subschema: Mapping[str, Any]) -> Mapping[str, Any]:
        subschema = subschema.get("items", subschema)
        if "$ref" not in subschema:
            return subschema
        found: Mapping[str, Any] = self.schema["$defs"][str(subschema["$ref"]).rsplit("/", 1)[1]]
        return found


def _inner_keys(value: Any) -> frozenset[str]:
    """The keys of a mapping, or of the first entry of a list."""
    first = value[0] if isinstance(value, list) and value else value
    return frozenset(first) if isinstance(first, dict) else frozenset()


def _expanded(value: Any, path: tuple[str, ...], place: Pointer) -> Iterator[Pointer]:
    """The places in a document that a path of keys leads to, for every entry of the lists on its way."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _expanded(item, path, (*place, number))
    elif len(path) > 1 and isinstance(value, dict) and path[0] in value:
        yield from _expanded(value[path[0]], path[1:], (*place, path[0]))
    else:
        yield (*place, *path)


_FORMS = frozenset({"pattern", "minLength", "maxLength"})
_PUBLISHED = ("ClusterProfile", "TrainingPlan", "CheckpointPolicy")


@cache
def _paths(kind: str) -> Mapping[str, frozenset[tuple[str, ...]]]:
    return key_paths(load_schema(kind))


def _subschemas(schema: Mapping[str, Any], path: list[str | int]) -> Iterator[Mapping[str, Any]]:
    """The schemas from the root to the one whose keyword failed; the keyword itself is the path's last step."""
    here: Any = schema
    yield schema
    for step in path[:-1]:
        here = here[step]
        if isinstance(here, dict) and step not in {"properties", "$defs"}:
            yield here


def _owner(schema: Mapping[str, Any], trail: list[Mapping[str, Any]], keyword: str) -> str:
    """The requirement that a failure belongs to: the nearest `x-requirement`, else that of the keyword."""
    for subschema in reversed(trail):
        if "x-requirement" in subschema:
            return str(subschema["x-requirement"])
    by_keyword: Mapping[str, str] = schema["x-requirements"]
    return by_keyword.get(keyword, by_keyword["type"])


@dataclass(frozen=True, slots=True)
class _Piece:
    """A small value, and its place in the large one.

    The first piece is an outline: everything, with the first items of each long list. Every other holds nothing but
    some further items of one list, wrapped in the keys that lead there.
    """

    data: Any
    path: Pointer | None = None
    """The list whose items these are; None for the outline."""
    start: int = 0
    shortened: frozenset[Pointer] = field(default_factory=frozenset)
    """Mappings that were cut: a key that such a piece lacks may well be there."""

    def place(self, pointer: Pointer) -> Pointer | None:
        """The place in the large value; None where only the wrapping of the piece is concerned."""
        if self.path is None:
            return pointer
        depth = len(self.path)
        if len(pointer) <= depth:
            return None
        return (*self.path, self.start + int(pointer[depth]), *pointer[depth + 1 :])


def _pieces(data: Any) -> Iterator[_Piece]:
    """The outline of a value, then the rest of its long lists."""
    shortened: set[Pointer] = set()
    outline = _outline(data, (), shortened)
    yield _Piece(outline, shortened=frozenset(shortened))
    for path, items in _long_lists(data, ()):
        for start in range(_MAX_ITEMS, len(items), _MAX_ITEMS):
            part = [_outline(item, (), set()) for item in items[start : start + _MAX_ITEMS]]
            yield _Piece(_wrapped(part, path), path, start)


def _outline(value: Any, pointer: Pointer, shortened: set[Pointer]) -> Any:
    if isinstance(value, dict):
        if len(value) > _MAX_KEYS:
            shortened.add(pointer)
        kept = islice(value.items(), _MAX_KEYS)
        if pointer == (_FREE,):
            return {key: 0 for key, _ in kept}
        return {key: _outline(item, (*pointer, key), shortened) for key, item in kept}
    if isinstance(value, list):
        return [_outline(item, (*pointer, i), shortened) for i, item in enumerate(islice(value, _MAX_ITEMS))]
    if isinstance(value, str) and len(value) > 2 * _MOST_CHARACTERS:
        return value[:_MOST_CHARACTERS] + value[-_MOST_CHARACTERS:]
    return value


def _long_lists(value: Any, pointer: Pointer) -> Iterator[tuple[Pointer, list[Any]]]:
    if isinstance(value, dict) and pointer != (_FREE,):
        for key, item in islice(value.items(), _MAX_KEYS):
            yield from _long_lists(item, (*pointer, key))
    elif isinstance(value, list):
        if len(value) > _MAX_ITEMS:
            yield pointer, value
        for i, item in enumerate(value):
            if isinstance(item, (dict, list)):
                yield from _long_lists(item, (*pointer, i))


def _wrapped(items: list[Any], path: Pointer) -> Any:
    value: Any = items
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value
