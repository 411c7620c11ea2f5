"""Keeps a plan from resting on a setting that a branch, a caller or another program decides.

A plan is made once for every value that such a setting may have. Facts that are alike in all of them stay; all others
are left open, with their possible values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.interop.readers._plan_parts import Default, Draft, why_open
from trainspec_validate.interop.readers._shell_choices import ABSENT, Alternatives
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import bare, cut_to

MAX_WORLDS = 400
_MAX_PRODUCT = 64
_MAX_LISTED = 6
_MAX_CAUSES = 128
_MAX_SHOWN = 3
_RANKS: frozenset[Pointer] = frozenset({("parallelism", "num_accelerators"), ("parallelism", "data")})
"""Facts that depend on the launcher wherever it varies."""
_PROBES: tuple[object, ...] = (ABSENT, 3, 8, True, False, "another", "bf16", "full")
"""Values that are tried for a setting of which nothing is known."""
_TOLD = "a branch, a loop or the caller decides, so that what follows from it is left open"

Values = Mapping[str, Any]
Make = Callable[[dict[str, Any]], Draft]
_Facts = dict[Pointer, Any]


@dataclass(slots=True)
class _Seen:
    """The facts of every world, and which settings made them differ."""

    base: _Facts
    by_setting: dict[Pointer, list[str]] = field(default_factory=dict)
    values: dict[Pointer, list[Any]] = field(default_factory=dict)
    worlds: dict[Pointer, dict[str, Any]] = field(default_factory=dict)
    """The first world in which a fact differs."""
    causes: dict[Pointer, list[str]] = field(default_factory=dict)
    """Of several settings that vary together the few that make a fact differ."""
    guessed: dict[Pointer, list[str]] = field(default_factory=dict)
    """Facts that differ for a tried value, with the settings."""
    doubts: dict[str, str] = field(default_factory=dict)
    """Why the value of a setting is not understood."""

    def compare(self, facts: _Facts, settings: tuple[str, ...], *, tried: bool) -> None:
        """Note what differs from the first world."""
        for pointer in dict.fromkeys((*self.base, *facts)):
            one, other = self.base.get(pointer, ABSENT), facts.get(pointer, ABSENT)
            if one is ABSENT and tried and not self.doubts.keys() & settings:
                continue
            if type(one) is type(other) and one == other:
                continue
            table = self.guessed if tried else self.by_setting
            names = table.setdefault(pointer, [])
            if not names:
                names.extend(settings)
            if not tried:
                known = self.values.setdefault(pointer, [one])
                if other not in known:
                    known.append(other)


def settled(values: Values, make: Make) -> Draft:
    """A plan of settings, some of which are `Alternatives` or texts that only a framework resolves.

    `make` builds the plan of settings that are plain values; it is called once for each world.
    """
    choices = _choices(values)
    first = {name: value for name, value in values.items() if not isinstance(value, Alternatives)}
    for name, value in values.items():
        if isinstance(value, Alternatives):
            first[name] = _first(value) if name in choices else f"${{{name}}}"
    draft = make(_given(first))
    draft.doubted = {name: doubt for name, doubt in draft.doubted.items() if name not in choices}
    seen = _Seen(dict(leaves(draft.facts)))
    told: set[str] = {message for message, _ in draft.told}
    for settings, world in _worlds(first, choices, draft.used):
        other = make(_given(world))
        seen.compare(dict(leaves(other.facts)), settings, tried=False)
        for pointer in seen.by_setting.keys() - seen.worlds.keys():
            seen.worlds[pointer] = world
        told &= {message for message, _ in other.told}
    seen.doubts.update((name, why) for name, (why, _) in draft.doubted.items())
    for name, world in _tried(values, first, choices, draft):
        seen.compare(dict(leaves(make(_given(world)).facts)), (name,), tried=True)
    _find_causes(seen, first, make)
    gone = {str(place) for message, place in draft.told if message not in told}
    if choices:
        draft.told = [entry for entry in draft.told if entry[0] in told]
    _open(draft, values, seen)
    _keep_settings(draft, choices, gone)
    told_of = {name for table in (seen.by_setting, seen.guessed) for names in table.values() for name in names}
    draft.idle = [*_idle(first, draft.used, make), *_absent(values, first, draft.used - told_of)]
    draft.elsewhere = _absent(values, first, set(values) - draft.used)
    return draft


def _find_causes(seen: _Seen, first: Values, make: Make) -> None:
    """Of settings that vary together, find the few that each fact follows from."""
    groups: dict[tuple[int, tuple[str, ...]], list[Pointer]] = {}
    for pointer, names in seen.by_setting.items():
        if len(names) > 1 and not any(str(pointer[-1]) in name for name in names):
            groups.setdefault((id(seen.worlds[pointer]), tuple(names)), []).append(pointer)
    left = _MAX_CAUSES
    for (_, together), pointers in groups.items():
        world = seen.worlds[pointers[0]]
        changed = {name: world[name] for name in together if world[name] is not first[name]}
        if 2 * len(changed) > left:
            return
        left -= 2 * len(changed)

        def differing(values: Values, pointers: Sequence[Pointer] = tuple(pointers)) -> list[Pointer]:
            facts = dict(leaves(make(_given({**first, **values})).facts))
            return [one for one in pointers if facts.get(one, ABSENT) != seen.base.get(one, ABSENT)]

        for name, value in changed.items():
            for pointer in differing({name: value}):
                launchers = [each for each in changed if each[0] == "$"] if pointer in _RANKS else []
                seen.causes.setdefault(pointer, list(dict.fromkeys([*launchers, name])))
        others = [pointer for pointer in pointers if pointer not in seen.causes]
        for name in list(changed) if others else []:
            fewer = {other: value for other, value in changed.items() if other != name}
            changed = fewer if len(differing(fewer, others)) == len(others) else changed
        seen.causes.update({pointer: list(changed) for pointer in others})


def _keep_settings(draft: Draft, choices: Mapping[str, Alternatives], gone: set[str]) -> None:
    """Remarks on settings of which only the value differs, so that no remark on one value holds."""
    said = {place for _, place in draft.told}
    for name in choices:
        if name in gone and name not in said:
            draft.remark(f"{name.lstrip('$')} is {choices[name]}: a branch, a loop or the caller decides", name)


def _idle(first: Values, used: set[str], make: Make) -> list[str]:
    """Settings that were looked at and without which the plan is the same, as it is with another value of them.

    One at a time is left out for good, so that of two settings that say the same one counts as needed. A value that is
    the default of its setting is not idle.
    """
    world = {name: value for name, value in _given(first).items() if name in used}
    names = [name for name, value in world.items() if value not in (None, {}, [])][:MAX_WORLDS]
    whole = _said(make(dict(world)))
    idle = []
    for name in reversed(names):
        value = world.pop(name)
        if _said(make(dict(world))) == whole and _said(make({**world, name: _another(value)})) == whole:
            idle.append(name)
        else:
            world[name] = value
    return [name for name in names if name in idle and not name.startswith("$")]


def _another(value: Any) -> Any:
    """A value of the same kind; of a text, whose kind is not known, the same."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else value


def _said(draft: Draft) -> tuple[object, ...]:
    weak = {pointer for pointer, how in draft.derived.items() if isinstance(how, Default)}
    return draft.facts, draft.unknown, draft.derived, weak, sorted(draft.told, key=repr)


def _absent(values: Values, first: Values, names: set[str]) -> list[str]:
    """Settings that only some branches give, the first one not among them."""
    return [name for name in values if name in names and first[name] is ABSENT and not name.startswith("$")]


def _choices(values: Values) -> dict[str, Alternatives]:
    """The settings with alternatives, as many as can be tried."""
    found: dict[str, Alternatives] = {}
    left = MAX_WORLDS
    for name, value in values.items():
        if isinstance(value, Alternatives) and len(value.values) <= left:
            found[name] = value
            left -= len(value.values)
    return found


def _first(choice: Alternatives) -> object:
    return choice.values[0] if choice.event is None else choice.ways[0]


def _given(values: Values) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not ABSENT}


def _worlds(
    first: Values, choices: Mapping[str, Alternatives], used: set[str]
) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Settings that differ from the first world, with their values: each branch alone, then all where they are few."""
    groups: dict[object, list[str]] = {}
    for name, choice in choices.items():
        groups.setdefault(name if choice.event is None else choice.event, []).append(name)
    ways = {key: _ways([choices[name] for name in names]) for key, names in groups.items()}
    for key, names in groups.items():
        for way in ways[key]:
            yield tuple(names), {**first, **dict(zip(names, way, strict=True))}
    together = [key for key, names in groups.items() if used & set(names) and len(ways[key]) > 1]
    names = [name for key in together for name in groups[key]]
    if len(together) < 2:
        return
    if math.prod(len(ways[key]) for key in together) <= _MAX_PRODUCT:
        for picked in itertools.product(*(ways[key] for key in together)):
            yield tuple(names), {**first, **dict(zip(names, itertools.chain(*picked), strict=True))}
    else:
        last = itertools.chain(*(ways[key][-1] for key in together))
        yield tuple(names), {**first, **dict(zip(names, last, strict=True))}


def _ways(choices: list[Alternatives]) -> list[tuple[object, ...]]:
    """The values of settings that vary together, for each way."""
    if choices[0].event is None:
        return [(value,) for value in choices[0].values]
    return list(zip(*(choice.ways for choice in choices), strict=True))


def _tried(
    values: Values, first: Values, choices: Mapping[str, Alternatives], draft: Draft
) -> Iterator[tuple[str, dict[str, Any]]]:
    names = [name for name in values if name in draft.used]
    unknown = [name for name in names if (name in choices and choices[name].free) or why_open(first[name]) is not None]
    tried = dict.fromkeys(unknown, _PROBES) | {
        name: (ABSENT, *others) for name, (_, others) in draft.doubted.items() if name in first
    }
    for name, probes in list(tried.items())[: MAX_WORLDS // len(_PROBES)]:
        for value in probes:
            yield name, {**first, name: value}


def leaves(facts: Any, place: Pointer = ()) -> Iterator[tuple[Pointer, Any]]:
    """Every value of nested mappings that is none itself, with its place."""
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from leaves(value, (*place, key))
        else:
            yield (*place, key), value


def _open(draft: Draft, values: Values, seen: _Seen) -> None:
    """Take out what differs, and say why."""
    for pointer in [*seen.by_setting, *(pointer for pointer in seen.guessed if pointer not in seen.by_setting)]:
        names = seen.by_setting.get(pointer) or seen.guessed[pointer]
        _remove(draft.facts, pointer)
        optional = len(pointer) > 2 and (ABSENT in seen.values.get(pointer, ()) or pointer not in seen.base)
        if not optional and (pointer in seen.base or pointer in seen.by_setting):
            draft.unknown[pointer] = _why(pointer, names, values, seen)
        else:
            draft.unknown.setdefault(pointer[:2] if optional else pointer, _why(pointer, names, values, seen))
    for name in dict.fromkeys(name for names in (*seen.by_setting.values(), *seen.guessed.values()) for name in names):
        if isinstance(values[name], Alternatives) and name in draft.used:
            draft.remark(f"{name.lstrip('$')} is {values[name]}: {_TOLD}", name)


def _why(pointer: Pointer, names: list[str], values: Values, seen: _Seen) -> str:
    known = [value for value in seen.values.get(pointer, []) if not isinstance(value, list | dict)]
    known.sort(key=lambda value: value is ABSENT)
    causes = [name for name in names if str(pointer[-1]) in name][:1] or seen.causes.get(pointer, [])[:_MAX_SHOWN]
    cause = causes[0] if causes else _cause(pointer, names)
    if cause in seen.doubts:
        return seen.doubts[cause]
    reason = why_open(values[cause])
    if reason is not None:
        return f"it follows from {cause}: {reason}"
    choice = values[cause]
    free = isinstance(choice, Alternatives) and choice.free
    if not known and (one := seen.base.get(pointer, ABSENT)) is not ABSENT and not isinstance(one, list | dict):
        known = [one]
    if free:
        known = [value for value in known if value is not ABSENT] or known
    shown = [_shown(value) for value in known[:_MAX_LISTED]] + (["more"] if len(known) > _MAX_LISTED else [])
    alternatives = " or ".join([*shown, *(["another value"] if free else [])])
    others = [f", and from {name.lstrip('$')}, which is {values[name]}" for name in causes[1:]]
    return f"{alternatives}: it follows from {cause.lstrip('$')}, which is {choice}{''.join(others)}"


def _cause(pointer: Pointer, names: list[str]) -> str:
    """One of the settings that vary together: a launcher decides on ranks, arguments on the rest."""
    launchers = [name for name in names if name.startswith("$")]
    others = [name for name in names if name not in launchers]
    return (launchers or others if pointer[0] == "parallelism" else others or launchers)[0]


def _shown(value: object) -> str:
    if value is ABSENT:
        return "another one, which is not given"
    is_large = isinstance(value, int) and not isinstance(value, bool) and value >= 10**6
    return f"{value:,}" if is_large else cut_to(bare(value), 120)


def _remove(facts: dict[str, Any], pointer: Pointer) -> None:
    inner = facts
    trail = []
    for key in pointer[:-1]:
        trail.append((inner, str(key)))
        inner = inner.get(str(key), {})
    inner.pop(str(pointer[-1]), None)
    for outer, key in reversed(trail):
        if outer.get(key) == {}:
            del outer[key]
