"""Holds the options that words of a command say, each with the values that it may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trainspec_validate.interop.readers._launched_ranks import LAUNCHER, LAUNCHER_OPTIONS
from trainspec_validate.interop.readers._shell_choices import ABSENT, OUTSIDE, Alternatives, has_marks
from trainspec_validate.model.values import cut_to

PROGRAM = "$program"
"""Under which the name of the program appears among its options."""
COMMAND = "$command"
"""Under which the module or the installed command appears that is started where no file of a program is named."""
UNRESOLVED = re.compile(r"\$[{(A-Za-z_0-9@*]|`")
_PRINTED = re.compile(r"\$\((?!\()|`")
"""What a command prints."""
MORE = "$(more)"
"""A value besides those that are known."""


@dataclass(frozen=True, slots=True)
class Option:
    """The value of an option and where it is."""

    value: object
    line: int


Options = Mapping[str, Option]
Possible = list[Option]
"""The values that an option may have; `ABSENT` among them where it may not be given."""


@dataclass(slots=True)
class Found:
    """Options in words: every option with the values that it may have."""

    options: dict[str, Possible] = field(default_factory=dict)
    ways: dict[str, tuple[int, tuple[object, ...]]] = field(default_factory=dict)
    """Options that one branch alone decides, with the value for each way through it."""
    doubled: list[tuple[str, int]] = field(default_factory=list)
    """Options that are given twice with different values, which no branch explains."""
    is_list: bool = False
    """Whether the words are lists that no command of the script uses."""
    outside: dict[str, int] = field(default_factory=dict)
    """Words from outside the script that may hold further options, with their lines."""
    further: list[str] = field(default_factory=list)
    """Those of them that can be nothing else."""
    overriding: bool = False
    """Whether such a word may give again what was given before it."""

    def set(self, name: str, possible: Possible, ways: tuple[int, tuple[object, ...]] | None = None) -> None:
        """Give an option its values; a later one goes before an earlier one where it is given."""
        lone = name not in self.options or all(option.value is not ABSENT for option in possible)
        self.ways.pop(name, None)
        if ways is not None and lone:
            self.ways[name] = ways
        before = self.given(name)
        here = [option for option in possible if option.value is not ABSENT]
        whole = len(here) == len(possible)
        for option in before if whole else ():
            if _PRINTED.match(str(option.value)) and option.value != MORE:  # it may hold further options too
                self.outside.setdefault(cut(str(option.value)), option.line)
        given = before[0].value
        if whole and len(here) == len(before) == 1 and given is not ABSENT and given != here[0].value:
            self.doubled.append((name.replace("_", "-"), here[0].line))
        self.options[name] = here if whole else distinct([*here, *before])

    def given(self, name: str) -> Possible:
        """The values that an option may have so far."""
        return self.options.get(name, [Option(ABSENT, 0), *([Option(MORE, 0)] if self.overriding else [])])

    def override(self, line: int) -> None:
        """A word may give every option again that was given before it; one of a launcher ends with the launcher."""
        self.overriding = True
        for name in self.options.keys() - {PROGRAM, COMMAND, LAUNCHER} - LAUNCHER_OPTIONS:
            self.options[name] = distinct([*self.options[name], Option(MORE, line)])
            self.ways.pop(name, None)

    def settings(self, outside: str = OUTSIDE) -> dict[str, Option]:
        """Every option with its one value, or with its alternatives; `outside` names what else may set one."""
        return {name: self._one(name, possible, outside) for name, possible in self.options.items()}

    def _one(self, name: str, possible: Possible, outside: str) -> Option:
        one = _one(possible, outside)
        if name not in self.ways or not isinstance(one.value, Alternatives):
            return one
        event, ways = self.ways[name]
        return Option(replace(one.value, event=event, ways=ways), one.line)


def distinct(options: Iterable[Option]) -> Possible:
    return list({(type(option.value), repr(option.value)): option for option in options}.values())


def _one(possible: Possible, outside: str) -> Option:
    each = distinct(possible)
    known = [option for option in each if not _is_open(option.value)]
    if len(each) == 1 or not known:
        return each[0]
    values = tuple(option.value for option in known)
    free = len(known) < len(each)
    return Option(Alternatives(values, tuple(option.line for option in known), free, outside=outside), known[0].line)


def _is_open(value: object) -> bool:
    return isinstance(value, str) and bool(UNRESOLVED.search(value))


def cut(text: str) -> str:
    """The beginning of a word; one with marks stays whole, since half a mark is none."""
    return text if has_marks(text) else cut_to(text, 40)


def either(picked: list[Found], event: int | None) -> Found:
    """Options in one of several lists of words; `event` is the branch that picks one."""
    whole = Found()
    for found in picked:
        whole.doubled.extend(found.doubled)
        whole.outside.update(found.outside)
        whole.further += found.further
        whole.overriding = whole.overriding or found.overriding
    for name in dict.fromkeys(name for found in picked for name in found.options):
        every = [found.given(name) for found in picked]
        ways = None
        if event is not None and all(len(options) == 1 for options in every):
            ways = event, tuple(options[0].value for options in every)
        whole.options[name] = distinct(option for options in every for option in options)
        if ways is not None:
            whole.ways[name] = ways
    return whole
