"""Finds the files of which Hydra and its like compose a configuration, and leaves open what they may set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.readers._setting_places import listed
from trainspec_validate.model.values import bare

LIST = "defaults"
"""The setting in which Hydra keeps the files that it lays under or over this one."""
_OWN = "_self_"
_BASES = ("_base_", "base", "base_config", "extends", "inherit", "inherit_from", "inherits", "include", "includes")
"""Settings that name a file whose settings hold where this one has none, in programs with a list of their own."""
_FILE = re.compile(r".{1,300}\.(?:ya?ml|json|py)")
_MARK = re.compile(r"(?:(?:optional|override)[ \t]+)+")
_DECISIVE = ("model.optim",)
"""A section below the top that other facts than its own follow from."""
_MAX_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class Part:
    """A file that is laid under this one, or over it, at a section; the top where that is empty."""

    name: str
    section: str
    over: bool


def parts(entries: object) -> Iterator[Part]:
    """The files that a list of Hydra names.

    >>> [(part.name, part.section, part.over) for part in parts(["base_llama", {"optional data@x.y": "c4"}])]
    [('base_llama', '', False), ('data: c4', 'x.y', False)]
    >>> [(part.name, part.over) for part in parts(["_self_", {"override /optim": "adamw"}, {"model": None}])]
    [('optim: adamw', True)]
    """
    over = False
    for entry in entries[:_MAX_ENTRIES] if isinstance(entries, list) else []:
        pairs: list[tuple[str, Any]] = (
            [(str(key), value) for key, value in entry.items()] if isinstance(entry, Mapping) else [(str(entry), "")]
        )
        for key, value in pairs:
            if key == _OWN:
                over = True
            elif value is not None:
                yield _part(key, value, over=over)


def _part(key: str, value: object, *, over: bool) -> Part:
    plain = _MARK.sub("", key[:300]).lstrip("/")
    named, at, section = plain.partition("@")
    if not at:  # a file without a group is laid at the top, one of a group at the section of that name
        group = named if value else named.rpartition("/")[0]
        section = group.replace("/", ".")
    return Part(
        f"{named}: {bare(value)}"[:100] if value else named[:100], "" if section == "_global_" else section, over
    )


def leave_composed_open(draft: Draft) -> bool:
    """Leave open what other files decide that the configuration is composed of, and name them.

    Returns whether one of them is laid over this file, so that none of its settings is sure.
    """
    found = list(parts(draft.values.get(LIST)))
    for name in _BASES:
        value = draft.values.get(name)
        files = value if isinstance(value, list) else [value]
        if name not in draft.used and any(isinstance(file, str) and _FILE.fullmatch(file) for file in files):
            found += [Part(str(file)[:100], "", over=False) for file in files]
            draft.used.add(name)
    if LIST in draft.values and isinstance(draft.values[LIST], list):
        draft.used.add(LIST)
    if not found:
        return False
    named = listed([part.name for part in found])
    draft.remark(f"the configuration is composed of further files, which are not read: {named}", LIST)
    wide = [part for part in found if "." not in part.section or part.section.startswith(_DECISIVE)]
    if not wide:
        return False
    why = f"{wide[0].name}, of which the configuration is composed and which is not read, may set it"
    draft.drop_defaults(why)
    over = next((part for part in wide if part.over and part.section in {"", "model", "trainer"}), None)
    if over is not None:
        why = f"{over.name} is laid over this file, and is not read"
        draft.drop([(group,) for group in draft.facts if group != "metadata"], why)
        draft.derived = {at: how for at, how in draft.derived.items() if at[0] == "metadata"}
    return over is not None
