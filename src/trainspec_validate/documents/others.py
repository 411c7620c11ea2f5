"""Finds keys of a document whose value is `other`, and makes the document with a listed value in their place."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.base import Record
from trainspec_validate.documents.types.partial import Pointer, Unknown

OTHER = "other"
"""The value of an enumeration for what it has no name for."""
RecordT = TypeVar("RecordT", bound=Record)


def others(record: Record) -> Mapping[tuple[str, ...], tuple[Pointer, tuple[str, ...]]]:
    """By keys without positions in lists: the first place with the value, and the values that are listed with it."""
    found: dict[tuple[str, ...], tuple[Pointer, tuple[str, ...]]] = {}
    for pointer, listed in _others(record, ()):
        found.setdefault(_keys(pointer), (pointer, listed))
    return found


def without_others(record: RecordT) -> RecordT:
    """The record with nothing known in place of the values `other`: a use of one raises `UnknownValueError`."""
    for keys, (pointer, _) in others(record).items():
        record = with_listed(record, keys, Unknown("", pointer))
    return record


def with_listed(record: RecordT, keys: tuple[str, ...], value: str | Unknown) -> RecordT:
    """The record with another value at every place of these keys that has the value `other`."""
    first, *rest = keys
    own: Any = getattr(record, first)
    if not rest:
        return changed(record, **{first: value}) if type(own) is str and own == OTHER else record
    return changed(record, **{first: _below(own, tuple(rest), value)})


def _below(own: Any, keys: tuple[str, ...], value: str | Unknown) -> Any:
    if type(own) is tuple:
        return tuple(_below(item, keys, value) for item in own)
    return with_listed(own, keys, value) if _is_record(own) else own


def _others(record: Record, place: Pointer) -> Iterator[tuple[Pointer, tuple[str, ...]]]:
    listed = _listed(type(record))
    for name in record.__struct_fields__:
        own = getattr(record, name)
        if type(own) is str and own == OTHER and name in listed:
            yield (*place, name), listed[name]
        elif _is_record(own):
            yield from _others(own, (*place, name))
        elif type(own) is tuple:
            for number, item in enumerate(own):
                if _is_record(item):
                    yield from _others(item, (*place, name, number))


def _is_record(value: Any) -> bool:
    """Whether this is a part of a document; `isinstance` would ask a value that is not known."""
    return type(value) is not Unknown and issubclass(type(value), Record)


def _keys(pointer: Pointer) -> tuple[str, ...]:
    return tuple(step for step in pointer if isinstance(step, str))


@cache
def _listed(model: type[Record]) -> Mapping[str, tuple[str, ...]]:
    """Fields of a type whose enumeration has `other`, with what else it lists."""
    found = {name: tuple(_values(hint)) for name, hint in get_type_hints(model, include_extras=True).items()}
    return {name: tuple(v for v in values if v != OTHER) for name, values in found.items() if OTHER in values}


def _values(hint: Any) -> Iterator[str]:
    """The values of an enumeration behind annotations and `| None`."""
    origin = get_origin(hint)
    if origin is Literal:
        yield from (value for value in get_args(hint) if isinstance(value, str))
    elif origin is Annotated:
        yield from _values(get_args(hint)[0])
    elif origin in {Union, types.UnionType}:
        for each in get_args(hint):
            yield from _values(each)
