"""Turns the text of a launch configuration into settings with dotted names and their lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.documents.load import LoadError, Source, load_text
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._plan_parts import Lines

_MAX_STEPS = 8
_REFERENCE = re.compile(r"\$\{(?P<up>\.{0,8})(?P<name>[A-Za-z_][\w.]{0,200})\}")
"""A reference of OmegaConf to another key; dots in front count levels up."""
_FACTOR = r"([^,${}]{1,40}|[ ]{0,9}\$\{[^${}:]{1,210}\}[ ]{0,9})"
_PRODUCT = re.compile(rf"\$\{{mul(?:tiply)?:{_FACTOR},{_FACTOR}\}}")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_MAX_FACTOR = 10**15
MAX_SETTINGS = 100_000
_JSON_PART = re.compile(
    r'"(?P<key>[^"\\\n]{0,200}+)"(?=[ \t\r\n]{0,1000}+:)|"(?:[^"\\\n]|\\.){0,65536}+"'
    r'|//[^\n]*+|(?<=[\s,])#[^\n]*+|"[^\n]{0,65536}+|[{}\[\]]'
)
"""A key, another string, a comment, a string without its end, or a bracket of a JSON text."""
_MAX_KEY = 100
_MAX_LEVELS = 6


def flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings as one, with dotted names; lists, and mappings below the sixth level, stay values.

    >>> flatten({"zero_optimization": {"stage": 2}, "steps": 1})
    {'zero_optimization.stage': 2, 'steps': 1}

    Raises:
        ForeignFormatError: there are more settings than any launch configuration has.
    """
    flat: dict[str, Any] = {}
    waiting: list[tuple[str, Any, int]] = [(str(key)[:_MAX_KEY], data[key], 1) for key in reversed(list(data))]
    while waiting:
        name, value, level = waiting.pop()
        if isinstance(value, Mapping) and value and level < _MAX_LEVELS:
            waiting.extend((f"{name}.{str(key)[:_MAX_KEY]}", value[key], level + 1) for key in reversed(list(value)))
        else:
            flat[name] = value
        if len(flat) + len(waiting) > MAX_SETTINGS:
            raise ForeignFormatError(f"more than {MAX_SETTINGS} settings", help="name the configuration of a job")
    return flat


def resolved(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which a whole value such as `${a.b}` or `${.c}` is the plain value that the file has there.

    A product of two numbers, which NeMo (`nemo/core/classes/modelPT.py`) and NeMo RL resolve, is computed.

    >>> resolved({"a.b": 1, "a.c": "${.b}", "d": "${a.c}", "e": "${f}"})
    {'a.b': 1, 'a.c': 1, 'd': 1, 'e': '${f}'}
    >>> resolved({"a.b": 3, "a.c": "${multiply:4, ${.b}}", "d": "${mul:${a.c},0.5}", "e": "${multiply:${a.d},2}"})
    {'a.b': 3, 'a.c': 12, 'd': '${mul:${a.c},0.5}', 'e': '${multiply:${a.d},2}'}
    """
    return {name: _followed(flat, name) for name in flat}


def _followed(flat: Mapping[str, Any], name: str) -> Any:
    """The value of a setting after its references; one that leads to no plain value stays as it is written."""
    written = flat[name]
    name, value = _reached(flat, name, written)
    found = _PRODUCT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return written if value is None else value
    factors = [_factor(flat, name, text.strip()) for text in found.groups()]
    return math.prod(factor for factor in factors if factor is not None) if None not in factors else written


def _reached(flat: Mapping[str, Any], name: str, value: Any) -> tuple[str, Any]:
    """The setting that a value of another one leads to, with the plain value there; None where it leads to none."""
    for _ in range(_MAX_STEPS):
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return name, value
        above = name.split(".")[: -len(found["up"])] if found["up"] else []
        name = ".".join([*above, found["name"]])
        value = flat.get(name)
        if value is None or isinstance(value, list | dict):
            break
    return name, None


def _factor(flat: Mapping[str, Any], name: str, text: str) -> int | float | None:
    """The number that a text of a setting is, or leads to."""
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    _, value = _reached(flat, name, text)
    plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FACTOR
    return value if plain else None


def top_keys(text: str) -> frozenset[str]:
    """The keys of the outermost object of a JSON text, also of one that is cut off; comments are no trouble.

    >>> sorted(top_keys('{"a": {"b": 1}, "c": ["d", {"e": 2}], "f": "g", // "h": 1'))
    ['a', 'c', 'f']
    """
    keys: set[str] = set()
    level = 0
    for found in _JSON_PART.finditer(text):
        part = found[0]
        if part in "{[":
            level += 1
        elif part in "}]":
            level -= 1
        elif level == 1 and found["key"] is not None:
            keys.add(found["key"])
    return frozenset(keys)


def load_mapping(text: ForeignText, format: str | None = None) -> Source:  # noqa: A002
    """A YAML or JSON text whose top is a mapping; whole numbers are those of YAML 1.1, which these programs read.

    Raises:
        ForeignFormatError: it is not.
    """
    try:
        source = load_text(text.text, text.name, "yaml" if format == "yaml" else None, older=True)
    except LoadError as error:
        raise ForeignFormatError(error.message, error.span.line if error.span else None, error.help) from None
    if not isinstance(source.data, dict):
        raise ForeignFormatError("the file holds no settings", 1, "a mapping of names to values is read")
    return source


def lines_in(source: Source, written: Mapping[str, str] | None = None) -> Lines:
    """Finds the lines of dotted names in a loaded file; `written` has the file's own names where they differ."""
    own = written or {}

    def find(names: Iterable[str]) -> Mapping[str, int]:
        wanted = {name: tuple(own.get(name, name).split(".")) for name in names}
        spans = source.locate([(pointer, True) for pointer in wanted.values()])
        return {name: spans[pointer, True].line for name, pointer in wanted.items()}

    return find
