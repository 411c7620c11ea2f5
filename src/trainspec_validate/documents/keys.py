"""Guesses which key was meant by one that a schema does not know, for messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.model.aliases import KEYS, fold
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.suggest import did_you_mean, meant

Path = tuple[str, ...]
"""Keys from the root of a document, without the indices of lists."""
Paths = Mapping[str, frozenset[Path]]
"""Where each key of a kind appears: the paths of the mappings that take it."""

_MAX_PLACES = 2
_MAX_LISTED = 20
_UNITS = ("bytes_per_second", "flops_per_second", "bytes", "seconds", "watts")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Key or value that was probably meant, in words, and as a key of the same mapping or as paths from the root."""

    help: str
    sibling: str = ""
    paths: tuple[Path, ...] = ()
    any_sibling: bool = False
    """True where it may be any key of the mapping that is absent."""


def key_paths(schema: Mapping[str, Any]) -> Paths:
    """Every key that a schema knows, with the mappings that take it."""
    found: dict[str, set[Path]] = {}
    for path, properties in _mappings(schema, schema, ()):
        for key in properties:
            found.setdefault(key, set()).add(path)
    return {key: frozenset(paths) for key, paths in found.items()}


def _mappings(node: Mapping[str, Any], schema: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Iterable[str]]]:
    while "$ref" in node or "items" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]] if "$ref" in node else node["items"]
    if "properties" not in node:
        return
    yield path, node["properties"]
    for key, inner in node["properties"].items():
        yield from _mappings(inner, schema, (*path, key))


def unknown_key(key: str, pointer: Pointer, options: Iterable[str], kind: str, kinds: Mapping[str, Paths]) -> Unknown:
    """Key to write instead of one that the mapping at `pointer` does not take."""
    here: Path = tuple(step for step in pointer if isinstance(step, str))
    known = list(options)
    same = next((option for option in known if fold(option) == fold(key)), None)
    if same:
        return Unknown(f"did you mean '{same}'?", same)
    head, colon, tail = key.partition(":")
    if colon and head in known:
        return Unknown(f"put a blank after the ':', as in '{head}: {tail[:40]}'", head)
    guess = _foreign(key, here, kind) or _elsewhere(key, kinds[kind])
    if guess:
        return guess
    nearest = did_you_mean(key, known)
    if nearest:
        return Unknown(f"{meant(key, nearest)}{_unit_note(key, nearest)}", nearest)
    other = next((name for name, paths in kinds.items() if name != kind and () in paths.get(key, ())), None)
    if other:
        return Unknown(f"this is a key of a {other}, which is a document of its own")
    if not here:
        return Unknown(f"remove it, or keep it under extensions: {{org.example: {{{key[:40]}: …}}}}")
    return Unknown(f"one of: {', '.join(known)}" if len(known) <= _MAX_LISTED else "", any_sibling=True)


def _unit_note(key: str, nearest: str) -> str:
    if "bit" in key.casefold() and "bytes" in nearest:
        return " 8 bits are 1 byte"
    unit = next((unit for unit in _UNITS if nearest.endswith(f"_{unit}")), "")
    return f" in {unit.replace('_', ' ')}" if unit and not key.endswith(unit) else ""


def _foreign(key: str, here: Path, kind: str) -> Unknown | None:
    alias = KEYS.get(fold(key))
    if alias is None:
        return None
    path = tuple(alias.path.split("."))
    note = f"; {alias.note}" if alias.note else ""
    if alias.kind != kind:
        return Unknown(f"write it as '{alias.path}' of a {alias.kind}{note}")
    if path[:-1] == here:
        return Unknown(f"write it as '{path[-1]}'{note}", path[-1])
    return Unknown(f"write it as '{alias.path}'{note}", paths=(path,))


def _elsewhere(key: str, paths: Paths) -> Unknown | None:
    places = sorted(paths.get(key, ()))
    if not 0 < len(places) <= _MAX_PLACES:
        return None
    below = " or ".join(f"under '{'.'.join(place)}'" if place else "at the left margin" for place in places)
    return Unknown(f"it belongs {below}", paths=tuple((*place, key) for place in places))
