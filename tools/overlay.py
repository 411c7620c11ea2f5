"""Applies an example's excerpt to a complete document, and finds the excerpt's line again."""

from __future__ import annotations

from typing import Any

Pointer = tuple[str | int, ...]


def overlay(base: Any, excerpt: Any) -> Any:
    """The base with the excerpt on top.

    Mappings merge key by key; a key with the value null is left out of the result; items of a list that have a
    `name`, `layer` or `fault` merge with the base's item of that name, and new names are appended; every other
    list or value replaces the base's.
    """
    if isinstance(base, dict) and isinstance(excerpt, dict):
        merged = {key: value for key, value in base.items() if key not in excerpt}
        for key, value in excerpt.items():
            if value is not None:
                merged[key] = overlay(base.get(key), value)
        return merged
    if isinstance(excerpt, list) and _named(base) and _named(excerpt):
        merged_items = list(base)
        names = [_name(item) for item in base]
        for item in excerpt:
            if _name(item) in names:
                position = names.index(_name(item))
                merged_items[position] = overlay(base[position], item)
            else:
                merged_items.append(overlay(None, item))
        return merged_items
    if isinstance(excerpt, dict):
        return {key: overlay(None, value) for key, value in excerpt.items() if value is not None}
    if isinstance(excerpt, list):
        return [overlay(None, item) for item in excerpt]
    return excerpt


def excerpt_pointer(excerpt: Any, merged: Any, pointer: Pointer) -> Pointer:
    """Position in the excerpt of a place in the merged document, as deep as the excerpt reaches."""
    found: list[str | int] = []
    for step in pointer:
        if isinstance(step, int):
            position = _position(excerpt, merged, step)
            if position is None:
                break
            found.append(position)
            excerpt, merged = excerpt[position], merged[step]
        elif isinstance(excerpt, dict) and step in excerpt:
            found.append(step)
            excerpt = excerpt[step]
            merged = merged.get(step) if isinstance(merged, dict) else None
        else:
            break
    return tuple(found)


def _position(excerpt: Any, merged: Any, index: int) -> int | None:
    if not isinstance(excerpt, list) or not isinstance(merged, list) or index >= len(merged):
        return None
    if _named(excerpt) and _named(merged):
        names = [_name(item) for item in excerpt]
        wanted = _name(merged[index])
        return names.index(wanted) if wanted in names else None
    return index if index < len(excerpt) else None


def _named(items: Any) -> bool:
    return isinstance(items, list) and bool(items) and all(_name(item) is not None for item in items)


def _name(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    return next((item[key] for key in ("name", "layer", "fault") if isinstance(item.get(key), str)), None)
