"""Reads documents that lack some of what their kind needs, or have mistakes, so that rules judge the rest.

A key that is absent, has no value or a wrong one becomes an `Unknown`. Any use of it raises `UnknownValueError`: a
rule that needs the value comes to no verdict, and a rule that does not need it never notices.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from trainspec_validate.documents.types.base import Metadata, Record, Reference
from trainspec_validate.system.structs import converted

Pointer = tuple[str | int, ...]


class UnknownValueError(Exception):
    """A value was needed that a document does not give."""

    def __init__(self, path: str, pointer: Pointer) -> None:
        super().__init__(f"{path} does not give {'.'.join(map(str, pointer))}")
        self.path, self.pointer = path, pointer


class Unknown:
    """Represents a value that a document does not give."""

    __slots__ = ("_path", "_pointer")

    def __init__(self, path: str, pointer: Pointer) -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_pointer", pointer)

    def _raise(self, *_arguments: object) -> NoReturn:
        get = object.__getattribute__
        raise UnknownValueError(get(self, "_path"), get(self, "_pointer"))

    __getattribute__ = __setattr__ = __bool__ = __hash__ = __eq__ = __ne__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __len__ = __iter__ = __contains__ = __getitem__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _raise
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __divmod__ = __rdivmod__ = _raise
    __neg__ = __pos__ = __abs__ = __int__ = __float__ = __index__ = __round__ = __ceil__ = __floor__ = _raise
    __str__ = __format__ = _raise

    def __repr__(self) -> str:
        return "Unknown"


def is_given(value: object) -> bool:
    """Whether a document states an optional value, which is neither left to its default nor listed as unknown."""
    return value is not None and type(value) is not Unknown


@dataclass(frozen=True, slots=True)
class _Reader:
    """Builds the records of one document."""

    path: str
    unknown: frozenset[Pointer] = frozenset()
    """Keys that are known to be unknown, although a default would stand for them."""
    above: frozenset[Pointer] = frozenset()
    """The places that have such a key somewhere below."""

    def build(self, model: Any, value: Any, place: Pointer) -> Any:
        """A value of a type; what is absent below it is unknown.

        Raises:
            msgspec.ValidationError: something that is there does not satisfy the schema.
        """
        if place in self.above:
            return self._parts(model, value, place)
        try:
            return converted(value, model)
        except msgspec.ValidationError:
            return self._parts(model, value, place)

    def _parts(self, model: Any, value: Any, place: Pointer) -> Any:
        inner = _without_none(model)
        if isinstance(inner, type) and issubclass(inner, Record) and isinstance(value, Mapping):
            return self._record(inner, value, place)
        if get_origin(inner) is tuple and isinstance(value, list):
            item = get_args(inner)[0]
            return tuple(self._entry(item, entry, (*place, number)) for number, entry in enumerate(value))
        if get_origin(inner) is dict and isinstance(value, Mapping):
            item = get_args(inner)[1]
            return {key: self._entry(item, entry, (*place, key)) for key, entry in value.items()}
        return converted(value, model)

    def _entry(self, model: Any, value: Any, place: Pointer) -> Any:
        return Unknown(self.path, place) if value is None else self.build(model, value, place)

    def _record(self, model: type[Record], value: Mapping[str, Any], place: Pointer) -> Record:
        hints, fields = _shape(model)
        unknown = value.keys() - fields.keys() - {model.__struct_config__.tag_field}
        if unknown:
            raise msgspec.ValidationError(f"Object contains unknown field `{min(unknown)}`")
        absent = self.unknown | self.above | {(*place, name) for name in value}
        built = {}
        for name, field in fields.items():
            here, given = (*place, name), value.get(name)
            if given is not None:
                built[field.name] = self.build(hints[field.name], given, here)
            elif field.required or (here in absent and not self._is_reference(model, hints[field.name])):
                built[field.name] = self._unnamed(model, name) or Unknown(self.path, here)
        return model(**built)

    @staticmethod
    def _is_reference(model: type[Record], hint: Any) -> bool:
        """Whether a key is one by which documents find each other: what is unknown there counts as absent."""
        return model is Reference or _without_none(hint) is Reference

    def _unnamed(self, model: type[Record], name: str) -> Any:
        """What the identity of a document is, where it has none: reports and references need one."""
        if model is Metadata and name == "name":
            return f"({self.path})"
        return Metadata(name=f"({self.path})") if name == "metadata" else None


@cache
def _shape(model: type[Record]) -> tuple[Mapping[str, Any], Mapping[str, msgspec.structs.FieldInfo]]:
    """Types of the fields of a type by their names here, and the fields by those in a document."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(model)}
    return get_type_hints(model, include_extras=True), fields


def _without_none(model: Any) -> Any:
    """The type behind annotations, and behind `| None` where that is all of a union."""
    while get_origin(model) is Annotated:
        model = get_args(model)[0]
    if get_origin(model) in {Union, types.UnionType}:
        others = [each for each in get_args(model) if each is not type(None)]
        return _without_none(others[0]) if len(others) == 1 else model
    return model


def read_partial(model: type[Record], data: Any, path: str, unknown: Iterable[Pointer] = ()) -> Any:
    """The document with what is absent as unknown; None where something that is there breaks the schema.

    An absent key that may be absent has its default, unless it is in `unknown`; so has what it would replace.
    """
    known = frozenset(unknown)
    above = frozenset(pointer[:length] for pointer in known for length in range(len(pointer)))
    try:
        return _Reader(path, known, above)._record(model, integral_floats_as_int(data), ())
    except (msgspec.ValidationError, UnknownValueError, RecursionError):
        return None


def integral_floats_as_int(value: Any) -> Any:
    """Plain data with 8 for 8.0: JSON Schema counts 8.0 as an integer, the converter does not."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: integral_floats_as_int(item) for key, item in value.items()}
    if isinstance(value, list):
        return [integral_floats_as_int(item) for item in value]
    return value


def without(data: Any, values: Iterable[Pointer], keys: Iterable[Pointer]) -> Any:
    """A copy of plain data with null for some values, and without some keys; a mapping that keeps nothing is null.

    >>> without({"batch": {"size": "x", "step": 1}, "job": {"sed": 1}}, [("batch", "size")], [("job", "sed")])
    {'batch': {'size': None, 'step': 1}, 'job': None}
    """
    tree: dict[str | int, Any] = {}
    for pointers, leaf in ((keys, _DROPPED), (values, _NULL)):
        for pointer in pointers:
            here = tree
            for step in pointer[:-1]:
                inner = here.setdefault(step, {})
                here = inner if isinstance(inner, dict) else {}
            here[pointer[-1]] = leaf
    return _cut(data, tree)


_DROPPED, _NULL = object(), object()


def _cut(value: Any, tree: Mapping[str | int, Any]) -> Any:
    if isinstance(value, list):
        return [_kept(item, tree.get(number)) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {key: _kept(item, tree.get(key)) for key, item in value.items() if tree.get(key) is not _DROPPED}
    return kept if any(item is not None for item in kept.values()) else None


def _kept(value: Any, below: Any) -> Any:
    return None if below is _NULL else value if below is None else _cut(value, below)
