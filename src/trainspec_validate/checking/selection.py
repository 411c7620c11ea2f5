"""Decides which requirements a run judges, and reads the words that choose them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainspec_validate.model.requirements import Index
from trainspec_validate.model.suggest import hint


class UnknownRequirementError(Exception):
    """A word is neither an id, nor a name, nor the prefix of a chapter; the text says what was meant."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requirements are judged."""

    profile: str = "full"
    select: tuple[str, ...] = ()
    """Ids, names or chapter prefixes to judge; empty means all of the profile."""
    ignore: tuple[str, ...] = ()
    """Ids, names or chapter prefixes to leave out."""

    def takes(self, index: Index, identifier: str) -> bool:
        """Whether a requirement is judged."""
        if self.leaves_out(index, identifier):
            return False
        requirement = index.by_id[identifier]
        if self.select:
            return not {requirement.id, requirement.area, requirement.name}.isdisjoint(self.select)
        return self.profile == "full" or requirement.profile == "core"

    def leaves_out(self, index: Index, identifier: str) -> bool:
        """Whether a requirement is ignored by name, which goes before everything else."""
        requirement = index.by_id[identifier]
        return not {requirement.id, requirement.area, requirement.name}.isdisjoint(self.ignore)


def resolve(words: Iterable[str], index: Index) -> tuple[str, ...]:
    """Ids and chapter prefixes behind words that a person wrote, in any case, one by one or with commas.

    Raises:
        UnknownRequirementError: a word stands for no requirement.
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
