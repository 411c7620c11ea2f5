"""Turns the names of values in other programs into metrics of the catalog, in their units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.model.metrics import Alias, by_alias, catalog
from trainspec_validate.model.suggest import did_you_mean
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.tally import Tally

_UNIT_AT_END = re.compile(r"(?P<base>.*\S) ?(?:\((?P<unit>[^()]+)\)|in (?P<word>\w+))")
_MAX_NAMES = 10_000
_MAX_LENGTH = 300
_HARDWARE = {"dcgm": "gpu", "gpud": "gpu", "amd": "gpu", "wandb": "gpu", "node-exporter": "network"}
IMPLIED: Mapping[str, Mapping[str, str]] = {
    "train.loss.mean": {"train.loss.name": "total"},
    "train.loss.max": {"train.loss.name": "total"},
    "train.token.count": {"train.token.kind": "all"},
}
"""Series attributes of metrics that programs name without them."""


@dataclass(frozen=True, slots=True)
class _Index:
    """The names of some programs, as they are looked up."""

    exact: dict[str, list[Alias]]
    indexed: list[Alias]
    """Those with the index of a device in them."""
    by_base: dict[str, list[Alias]]
    """Those with a unit at their end, by what stands before it."""
    endings: dict[str, str]

    @staticmethod
    def of(beside: Iterable[Alias], ecosystems: tuple[str, ...]) -> _Index:
        """The index of the catalog's aliases of some programs, and of further ones."""
        index = _Index({}, [], {}, {})
        listed = (a for metric in catalog().metrics.values() for a in metric.aliases if a.ecosystem in ecosystems)
        for alias in (*beside, *listed):
            index.exact.setdefault(alias.name.casefold(), []).append(alias)
            index.endings[_ending(alias.name)] = alias.name
            if "{i}" in alias.name:
                index.indexed.append(alias)
            if match := _UNIT_AT_END.fullmatch(alias.name):
                index.by_base.setdefault(match["base"].casefold(), []).append(alias)
        return index


@dataclass
class Names:
    """The names of one program, as they are met."""

    ecosystems: tuple[str, ...]
    tally: Tally
    quantities: dict[str, float] = field(default_factory=dict)
    """Quantities of the job that conversions need; readers add what a file states."""
    beside: tuple[Alias, ...] = ()
    """Spellings that the catalog does not list."""
    implied: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: IMPLIED)
    _known: dict[str, tuple[Alias, ...]] = field(default_factory=dict)
    _keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _plain: dict[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    """Key and factor of names whose values are no more than multiplied."""
    _totals: dict[str, float] = field(default_factory=dict)

    def take(self, name: str, value: Any, offset: int, into: dict[str, MetricValue]) -> bool:
        """Put the value of a name under the keys of its metrics; False, and a loss, where it has none."""
        plain = self._plain.get(name)
        if plain is not None and (told := fit.number(value)) is not None:
            for key, factor in plain:
                into.setdefault(key, told if isinstance(told, str) else fit.told(told * factor))  # type: ignore[arg-type]
            return True
        aliases = self.aliases(name)
        if not aliases:
            advice = self._advice(name) if self.tally.is_new("unknown-name", name) else ""
            self.tally.lose("unknown-name", name, advice, offset)
            return False
        number = fit.number(value)
        if number is None:
            self.tally.lose(
                "value", name, f"{name} has values that are no numbers, such as {str(value)[:40]!r}", offset
            )
            return False
        taken = [
            self._convert(alias, key, name, number, offset, into)
            for alias, key in zip(aliases, self._keys_of(name, aliases), strict=True)
        ]
        if any(taken):
            self.note_read(name)
        return any(taken)

    def note_read(self, name: str) -> None:
        """Note that a value of a name was read."""
        if len(self.tally.read) < _MAX_NAMES:
            self.tally.read.add(name)

    def _keys_of(self, name: str, aliases: tuple[Alias, ...]) -> tuple[str, ...]:
        """The key of the series of each alias of a name."""
        found = self._keys.get(name)
        if found is None:
            attributes = ({**_hardware(a), **self.implied.get(a.metric, {}), **a.implies} for a in aliases)
            found = tuple(keys.join(a.metric, each) for a, each in zip(aliases, attributes, strict=True))
            if len(self._keys) < _MAX_NAMES:
                self._keys[name] = found
                if not any(a.factor is None or a.times or a.over or a.inverse or a.delta for a in aliases):
                    self._plain[name] = tuple((key, a.factor or 0.0) for key, a in zip(found, aliases, strict=True))
        return found

    def _convert(  # noqa: PLR0913, PLR0917
        self, alias: Alias, key: str, name: str, value: fit.Number, offset: int, into: dict[str, MetricValue]
    ) -> bool:
        if alias.factor is None:
            self.tally.lose("unit", name, f"{name} is not converted: {alias.note or 'its unit is not settled'}", offset)
            return False
        wanted = (*alias.times, *alias.over)
        missing = [each for each in wanted if each not in self.quantities] if wanted else wanted
        if missing:
            self.tally.lose("quantity", name, f"{name} is {alias.metric} only where {missing[0]} is known", offset)
            return False
        try:
            found = value if isinstance(value, str) else fit.told(alias.convert(value, self.quantities))
        except (ValueError, OverflowError):
            self.tally.lose("value", name, f"{name} has values that do not convert, such as {value}", offset)
            return False
        if alias.delta:
            found = self._added(key, name, found, offset)
        into.setdefault(key, found)  # type: ignore[arg-type]
        return True

    def _added(self, key: str, name: str, value: fit.Number, offset: int) -> fit.Number:
        self.tally.lose(
            "meaning", name, f"{name} is of one interval; it is added up from the start of the file", offset
        )
        if isinstance(value, float):
            self._totals[key] = self._totals.get(key, 0.0) + value
        return fit.told(self._totals.get(key, 0.0))

    def aliases(self, name: str) -> tuple[Alias, ...]:
        """The aliases that a name represents; a unit at its end may differ from that of the catalog's spelling."""
        if name in self._known:
            return self._known[name]
        found = self._find(name)
        if len(self._known) < _MAX_NAMES:
            self._known[name] = found
        return found

    def _find(self, name: str) -> tuple[Alias, ...]:
        known = self._index
        exact = known.exact.get(name.casefold(), ()) or [a for a in known.indexed if a.is_called(name)]
        return tuple(exact) or tuple(self._by_base(name))

    @cached_property
    def _index(self) -> _Index:
        return _Index.of(self.beside, self.ecosystems)

    def _by_base(self, name: str) -> Iterable[Alias]:
        """Aliases that differ in the unit at the end of the name alone."""
        mine = _UNIT_AT_END.fullmatch(name) if len(name) < _MAX_LENGTH else None
        unit = catalog().units.get(mine["unit"] or mine["word"]) if mine else None
        if mine is None or unit is None:
            return
        for alias in self._index.by_base.get(mine["base"].casefold(), ()):
            known = catalog().units.get(alias.unit or "")
            if known and known.base == unit.base:
                yield replace(alias, name=name, unit=unit.unit, factor=unit.factor)

    def _advice(self, name: str) -> str:
        """What to say of a name that is not known."""
        if len(name) > _MAX_LENGTH:
            return "a name of the file is too long for one"
        stripped = name.strip()
        if stripped != name and self.aliases(stripped):
            return f"{name!r} begins or ends with a blank; {stripped!r} would be known"
        elsewhere = by_alias(None, name)[:1]
        if elsewhere:
            return f"{name!r} is no name of this program; {catalog().ecosystems[elsewhere[0].ecosystem].title} has it"
        endings = self._index.endings
        near = did_you_mean(_ending(name), endings)
        # Names of one program are alike: only a slip of a letter or two is told.
        hint = f"; did you mean {endings[near]!r}?" if near and _is_slip(near, _ending(name)) else ""
        return f"the catalog has no metric for {name!r}{hint}"


def _is_slip(one: str, other: str) -> bool:
    """Whether two words differ in at most two letters."""
    from difflib import SequenceMatcher  # noqa: PLC0415

    same = sum(block.size for block in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
    return max(len(one), len(other)) - same <= 2


def _hardware(alias: Alias) -> Mapping[str, str]:
    """Kind of component that a program is about."""
    kind = _HARDWARE.get(alias.ecosystem)
    return {"hw.type": kind} if kind and "hw.type" in catalog().metrics[alias.metric].attributes else {}


def _ending(name: str) -> str:
    """The part of a name that tells it from others of the same program."""
    return re.split(r"[./]", name)[-1]
