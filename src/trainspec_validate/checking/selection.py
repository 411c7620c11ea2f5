"""Decides which requirements a run judges, and reads the words that choose them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from trainspec_validate.model.finding import LeftOut
from trainspec_validate.model.requirements import Index
from trainspec_validate.model.suggest import hint

_NEVER_CHECKED = frozenset({"manual", "runtime"})
"""Ways of checking that are not the validator's."""

NOT_READ = frozenset({"TS-DOC-001", "TS-DOC-002", "TS-DOC-003", "TS-DOC-004", "TS-CKP-083", "TS-SEC-003"})
"""Requirements whose findings report that a file was not read; without them unjudged input would pass."""


class UnknownRequirementError(Exception):
    """A word is neither an id, nor a name, nor the prefix of a chapter; the text says what was meant."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requirements are judged."""

    profile: str = "full"
    select: tuple[str, ...] = ()
    """Ids, names or chapter prefixes to judge; empty means all of the profile."""
    ignore: tuple[str, ...] = ()
    """Ids, names or chapter prefixes to leave out, of which those of `NOT_READ` are judged all the same."""

    def takes(self, index: Index, identifier: str) -> bool:
        """Whether a requirement is judged."""
        return self._decisions(index).by_id[identifier].is_taken

    def leaves_out(self, index: Index, identifier: str) -> bool:
        """Whether a requirement is ignored by name, which goes before everything else."""
        return self._decisions(index).by_id[identifier].is_ignored

    def _decisions(self, index: Index) -> _Decisions:
        return _decided(self.profile, frozenset(self.select), frozenset(self.ignore), index)

    def left_out(self, index: Index, settings: str, from_settings: Collection[str]) -> Iterator[LeftOut]:
        """Requirements that each option leaves out of the checked ones; those of `from_settings` are from a file."""
        ignored, rest = self._decisions(index).left_out
        profile = () if self.profile == "full" else (self.profile,)
        choice: LeftOut = LeftOut("select", self.select, "", ()) if self.select else LeftOut("profile", profile, "", ())
        for entry, found in ((LeftOut("ignore", self.ignore, "", ()), ignored), (choice, rest)):
            if found:
                source = settings if entry.option in from_settings else ""
                yield replace(entry, settings=source, requirements=tuple(sorted(found)))


def taken_by(selection: Selection, index: Index) -> frozenset[str]:
    """All requirements that a selection has judged."""
    return _decided(selection.profile, frozenset(selection.select), frozenset(selection.ignore), index).taken


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a selection decides on one requirement."""

    is_ignored: bool
    is_taken: bool


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What a selection decides on every requirement."""

    by_id: Mapping[str, _Decision]
    taken: frozenset[str]
    left_out: tuple[frozenset[str], frozenset[str]]
    """Of what the validator checks: the ignored ones, and those that are not chosen."""


@lru_cache(maxsize=16)
def _decided(profile: str, select: frozenset[str], ignore: frozenset[str], index: Index) -> _Decisions:
    """Decide once for all questions of a run."""
    decisions = {}
    for identifier, requirement in index.by_id.items():
        words = {requirement.id, requirement.area, requirement.name}
        is_ignored = not words.isdisjoint(ignore) and identifier not in NOT_READ
        in_profile = profile == "full" or requirement.profile == "core"
        is_chosen = not words.isdisjoint(select) if select else in_profile
        decisions[identifier] = _Decision(is_ignored, is_chosen and not is_ignored)
    taken = frozenset(identifier for identifier, decision in decisions.items() if decision.is_taken)
    checked = {identifier for identifier, known in index.by_id.items() if known.check not in _NEVER_CHECKED}
    ignored = frozenset(identifier for identifier in checked if decisions[identifier].is_ignored)
    return _Decisions(decisions, taken, (ignored, frozenset(checked) - taken - ignored))


def renamed(words: Iterable[str], index: Index) -> Iterator[str]:
    """A note on each word that is a former name of a requirement; it is understood all the same."""
    for word in (part.strip() for written in words for part in written.split(",")):
        requirement = index.renamed(word)
        if requirement is not None:
            yield f"Note: {word} is now called {requirement.name} ({requirement.id})"


def resolve(words: Iterable[str], index: Index) -> tuple[str, ...]:
    """Ids and chapter prefixes behind words that a person wrote, in any case, one by one or with commas.

    Raises:
        UnknownRequirementError: a word names no requirement.
    """
    areas = {requirement.area for requirement in index.by_id.values()}
    found = []
    for word in (part.strip() for written in words for part in written.split(",")):
        requirement = index.find(word)
        if requirement is not None:
            found.append(requirement.id)
        elif (area := f"TS-{word.upper().removeprefix('TS-')}") in areas:
            found.append(area)
        elif word:
            nearest = hint(word, index.words()) or "`trainspec rules` lists them"
            raise UnknownRequirementError(f"no requirement or chapter is called {word!r}; {nearest}")
    return tuple(dict.fromkeys(found))
