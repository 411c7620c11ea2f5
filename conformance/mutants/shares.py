"""Divides the mutants among the shares of a run, and orders the scenarios of each mutant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

from registry import Mutant

from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.model.requirements import load_index

CALM = "null-run"


@dataclass(frozen=True)
class Share:
    """One of several parts of equal size, counted from 1."""

    number: int = 1
    count: int = 1

    @staticmethod
    def parse(text: str) -> Share:
        """The share that a command line names.

        Raises:
            ArgumentTypeError: it is no share.
        """
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise argparse.ArgumentTypeError(f"{text!r} is no share: wanted I/N with I from 1 to N, as 2/8")
        return Share(int(number), int(count))

    def of(self, mutants: Iterable[Mutant]) -> list[Mutant]:
        """Every N-th of the mutants by name: each is in exactly one share, and neighbours are in several."""
        ordered = sorted(mutants, key=lambda one: one.name)
        return ordered[self.number - 1 :: self.count]


def ordered(one: Mutant, scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Scenarios in order of expected information: the mutant's own, the calm run, those of its chapter, all others."""
    index = load_index().by_id
    chapter = index[one.requirement].chapter

    def rank(scenario: Scenario) -> int:
        if scenario.requirement == one.requirement:
            return 0
        if scenario.metadata.name == CALM:
            return 1
        return 2 if index[scenario.requirement].chapter == chapter else 3

    return sorted(scenarios, key=rank)
