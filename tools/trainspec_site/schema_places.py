"""Finds where the published schemas name a requirement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Place = tuple[str, str]
"""A file of a schema, and the JSON Pointer of what names the requirement."""


@dataclass(slots=True)
class SchemaPlaces:
    """Places in the schemas by requirement."""

    places: dict[str, list[Place]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> SchemaPlaces:
        """The places of all schemas in a directory."""
        found = cls()
        for path in sorted(directory.glob("*.schema.json")):
            for identifier, pointer in _named(json.loads(path.read_text(encoding="utf-8")), ""):
                found.places.setdefault(identifier, []).append((path.name, pointer))
        return found

    def of(self, identifier: str) -> list[Place]:
        """The places of a requirement, none when no schema names it."""
        return self.places.get(identifier, [])


def _named(node: Any, pointer: str) -> Iterator[Place]:
    if isinstance(node, dict):
        if isinstance(node.get("x-requirement"), str):
            yield node["x-requirement"], pointer or "/"
        by_keyword = node.get("x-requirements", {})
        for identifier in dict.fromkeys(by_keyword.values()):
            words = ", ".join(keyword for keyword, owner in by_keyword.items() if owner == identifier)
            yield identifier, f"every {words}"
        for key, value in node.items():
            yield from _named(value, f"{pointer}/{key}")
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from _named(item, f"{pointer}/{number}")
