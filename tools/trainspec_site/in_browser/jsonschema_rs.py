"""Gives `jsonschema` the interface of `jsonschema_rs`, which has no wheel for Pyodide.

The validator of the playground imports this module under that name; only what the validator uses of it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import ValidationError as PlainError
from jsonschema.validators import Draft202012Validator as PlainValidator

Path = list[str | int]


@dataclass(frozen=True, slots=True)
class Kind:
    """Violation by a value: the keyword, and the keys concerned."""

    name: str
    unexpected: tuple[str, ...] = ()
    property: str = ""


class ValidationError(ValueError):
    """One place where a value breaks its schema."""

    def __init__(self, error: PlainError, schema: Mapping[str, Any]) -> None:
        super().__init__(error.message)
        self.kind: Kind = getattr(error, "kind", None) or Kind(str(error.validator))
        self.instance = error.instance
        self.instance_path: Path = list(error.absolute_path)
        self.schema_path = _canonical(schema, error.absolute_schema_path)


class Draft202012Validator:
    """Judges values by one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._plain = _Telling(schema)

    def is_valid(self, instance: Any) -> bool:
        """Whether the value breaks nothing."""
        return bool(self._plain.is_valid(instance))

    def iter_errors(self, instance: Any) -> Iterator[ValidationError]:
        """Every place where the value breaks the schema."""
        return (ValidationError(error, self._schema) for error in self._plain.iter_errors(instance))

    def validate(self, instance: Any) -> None:
        """Raise the first ValidationError, if there is one."""
        for error in self.iter_errors(instance):
            raise error


def _canonical(schema: Mapping[str, Any], steps: Iterable[str | int]) -> Path:
    """The path within the definition that was last referred to; that of `jsonschema` leaves references out."""
    path: Path = []
    here: Any = schema
    for step in steps:
        while isinstance(here, dict) and "$ref" in here and step not in here:
            name = str(here["$ref"]).rsplit("/", 1)[1]
            path, here = ["$defs", name], schema["$defs"][name]
        path.append(step)
        here = here[step]
    return path


def _told(error: PlainError, kind: Kind) -> PlainError:
    error.kind = kind
    return error


def _required(_: Any, required: list[str], instance: Any, __: Any) -> Iterator[PlainError]:
    if isinstance(instance, dict):
        for key in required:
            if key not in instance:
                yield _told(PlainError(f"{key!r} is a required property"), Kind("required", property=key))


def _additional(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[PlainError]:
    """`additionalProperties: false` names its keys; with a schema it judges them as ever."""
    if allowed is not False or not isinstance(instance, dict):
        yield from PlainValidator.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)
        return
    unexpected = tuple(key for key in instance if key not in schema.get("properties", {}))
    if unexpected:
        kind = Kind("additionalProperties", unexpected=unexpected)
        yield _told(PlainError(f"unexpected: {', '.join(unexpected)}"), kind)


def _names(validator: Any, names: Any, instance: Any, _: Any) -> Iterator[PlainError]:
    """The mapping is told, once for each of its keys that is wrong; not the key, which has no place of its own."""
    if isinstance(instance, dict):
        for key in instance:
            for error in validator.evolve(schema=names).iter_errors(key):
                yield _told(PlainError(error.message, schema_path=error.schema_path), Kind("propertyNames"))


_Telling = validators.extend(
    PlainValidator, {"required": _required, "additionalProperties": _additional, "propertyNames": _names}
)
