"""Defines what the pydantic models of all documents share: strict values, plain dumps, and verdicts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from trainspec_validate.checking.selection import Selection
from trainspec_validate.documents.types import Record, plain
from trainspec_validate.model.finding import Report
from trainspec_validate.pipeline.form import read_form
from trainspec_validate.pipeline.inputs import Input, text_of
from trainspec_validate.pipeline.validation import validate

Item = TypeVar("Item")


def _whole(value: object) -> object:
    """8 for 8.0, which JSON Schema counts as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer; never a truth value or a text."""


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


ListOf = Annotated[list[Item], BeforeValidator(_listed)]
"""A list; a tuple becomes one."""


def Meta(  # noqa: N802 - it takes the place of `msgspec.Meta`
    *,
    pattern: str | None = None,
    extra_json_schema: Mapping[str, Any] | None = None,
    description: str | None = None,
    **limits: float,
) -> object:
    """The limits of a value, of the length of a text or of a list, and the pattern of a text."""
    extra = dict(extra_json_schema or {})
    known: dict[str, Any] = {**limits, "description": description}
    if pattern is not None:
        # In Python `$` also fits before a line break at the end; in JSON Schema it does not.
        known["pattern"] = re.compile(re.sub(r"\$$", r"\\Z", pattern))
        extra["pattern"] = pattern
    return Field(**known, json_schema_extra=extra or None)


class DocumentPart(BaseModel):
    """A group of named values, as the specification declares it.

    Values are judged when a model is made and when one is assigned: limits, patterns, words, unknown keys. A dump
    leaves out what has its default, as a document does. Names carry their units, such as `_bytes` and `_seconds`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, validate_assignment=True)

    def __init__(self, /, **values: Any) -> None:
        tags = {name: _tag(field.annotation) for name, field in type(self).model_fields.items() if field.init is False}
        super().__init__(**{**tags, **values})

    # Without this mark pydantic would call `__init__` for mappings too, which must name their kind themselves.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if not self._is_default(name)}

    def _is_default(self, name: str) -> bool:
        field = type(self).model_fields[name]
        return not field.is_required() and bool(
            getattr(self, name) == field.get_default(call_default_factory=True, validated_data={})
        )


def _tag(annotation: Any) -> Any:
    """The word of a key that tells a model from others, which has no other."""
    return annotation.__args__[0]


class Document(DocumentPart):
    """A document of one kind; `apiVersion` and `kind` need not be given when it is made in Python."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The document in a YAML or JSON file.

        Raises:
            InvalidDocumentError: it is of another kind or breaks its schema; the findings name the lines.
            InputError: the file cannot be read.
        """
        name = os.fspath(path)
        return cls.model_validate(read_form(cls._kind(), Path(name), Path(name).as_posix()))

    @classmethod
    def from_text(cls, text: str | bytes, name: str = "<text>") -> Self:
        """The document in a YAML or JSON text; findings call it `name`.

        Raises:
            InvalidDocumentError: it is of another kind or breaks its schema; the findings name the lines.
        """
        return cls.model_validate(read_form(cls._kind(), text, name))

    @classmethod
    def from_record(cls, record: Record) -> Self:
        """The model of a typed document, such as one that `trainspec_validate.plan` returns.

        Raises:
            pydantic.ValidationError: the document is of another kind.
        """
        return cls.model_validate(plain(record))

    def to_yaml(self) -> str:
        """The document as YAML, with the keys in the order of the specification and without those at their default.

        Raises:
            InputError: an extension holds what no document can hold.
        """
        return text_of(self.model_dump(), self._kind())

    def check(self, *others: Input, selection: Selection | None = None) -> Report:
        """The verdict of `trainspec_validate.validate` on the document, judged together with `others`.

        Raises:
            InputError: as `trainspec_validate.validate`.
        """
        return validate([self, *others], selection)

    @classmethod
    def _kind(cls) -> str:
        return str(_tag(cls.model_fields["kind"].annotation))
