"""Turns what a program hands over into paths and texts: texts, plain mappings, typed documents and models."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trainspec_validate.documents.types import Record, plain
from trainspec_validate.model.finding import Finding
from trainspec_validate.system.boundary import InputError, refusal_of


@dataclass(frozen=True, slots=True)
class NamedText:
    """A document or a stream as text, with the name that findings on it have."""

    name: str
    """Such as `plan.yaml`; references of the document to files are relative to the directory of this name."""
    text: str | bytes


@runtime_checkable
class Dumps(Protocol):
    """A model of pydantic, or another object that gives a plain mapping."""

    def model_dump(self) -> Any:
        """The document in mappings, lists, texts, numbers and truth values."""


Input = str | os.PathLike[str] | NamedText | Mapping[str, Any] | Record | Dumps
"""A path, a text under a name, a plain mapping, a typed document, or a pydantic model."""
_ONE = (str, os.PathLike, NamedText, Mapping, Record, Dumps)


class InvalidDocumentError(InputError):
    """A document cannot be used, because the validator finds errors in it."""

    def __init__(self, message: str, findings: Iterable[Finding] = ()) -> None:
        self.findings = tuple(findings)
        super().__init__(message, *(f"  {_told(each)}" for each in self.findings))
        self.message = message

    def __reduce__(self) -> tuple[type[InvalidDocumentError], tuple[str, tuple[Finding, ...]]]:
        return type(self), (self.message, self.findings)


@dataclass(frozen=True, slots=True)
class Given:
    """A text that a program hands over."""

    name: str
    content: bytes
    is_document: bool = False
    """False where it may be a stream too."""


def sorted_out(inputs: Input | Iterable[Input]) -> tuple[list[str], tuple[Given, ...]]:
    """The paths, and the texts, among what is to be judged.

    Raises:
        InputError: a mapping holds what no document can hold, or two texts have one name.
        TypeError: an input is none of `Input`.
    """
    paths, given = list[str](), list[Given]()
    seen: Counter[str] = Counter()
    for each in [inputs] if isinstance(inputs, _ONE) else inputs:
        if isinstance(each, str | os.PathLike):
            paths.append(os.fspath(each))
        elif isinstance(each, NamedText):
            content = each.text.encode("utf-8", "surrogatepass") if isinstance(each.text, str) else bytes(each.text)
            given.append(Given(each.name, content))
        else:
            data = plain_of(each)
            name = _name(data)
            seen[name] += 1
            number = f" {seen[name]}" if seen[name] > 1 else ""
            content = text_of(data, name).encode("utf-8", "surrogatepass")
            given.append(Given(f"<{name}{number}>", content, is_document=True))
    twice = [name for name, count in Counter(each.name for each in given).items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]}: two texts have this name; give each a name of its own")
    return paths, tuple(given)


def name_of(one: Input) -> str:
    """Name in findings of an input that is judged alone, or as the only one of its kind.

    Raises:
        TypeError: it is none of `Input`.
    """
    if isinstance(one, str | os.PathLike):
        return Path(os.fspath(one)).as_posix()
    return one.name if isinstance(one, NamedText) else f"<{_name(plain_of(one))}>"


def plain_of(document: Mapping[str, Any] | Record | Dumps) -> Mapping[str, Any]:
    """The plain mapping of a document.

    Raises:
        TypeError: the object is no document.
    """
    if isinstance(document, Record):
        data = plain(document)
        return {"apiVersion": data["apiVersion"], **data} if "apiVersion" in data else data  # the key that comes first
    found = document.model_dump() if isinstance(document, Dumps) and not isinstance(document, type) else document
    if isinstance(found, Mapping):
        return found
    raise TypeError(
        f"a {type(document).__name__} cannot be judged: give a path, a NamedText, a mapping, or a typed document"
    )


def text_of(data: Mapping[str, Any], name: str = "document") -> str:
    """Plain values as YAML that is read back to the same values.

    Raises:
        InputError: a value is none that a document can hold.
    """
    from trainspec_validate.interop.document import plain_text  # noqa: PLC0415 - files go without

    try:
        return plain_text(_values(data, name)) or "{}\n"
    except RecursionError as error:
        refusal = refusal_of(error)
        raise InputError(f"{name}: {refusal.reason}; {refusal.help}" if refusal else name) from error


def _values(value: Any, place: str) -> Any:
    """The value in dictionaries, lists and scalars of Python alone."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {_key(key): _values(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_values(item, f"{place}.{number}") for number, item in enumerate(value)]
    kind = type(value).__name__
    raise InputError(f"{place}: a document cannot hold a {kind}; write a text, a number, a list or a mapping")


def _key(key: Any) -> Any:
    return str.__str__(key) if isinstance(key, str) else key


def _name(data: Mapping[str, Any]) -> str:
    kind = data.get("kind")
    return kind if isinstance(kind, str) and kind.isidentifier() else "mapping"


def _told(finding: Finding) -> str:
    place = f":{finding.span.line}:{finding.span.column}" if finding.span else ""
    remedy = f" ({finding.help})" if finding.help else ""
    return f"{finding.path}{place}: {finding.requirement}: {finding.message}{remedy}"
