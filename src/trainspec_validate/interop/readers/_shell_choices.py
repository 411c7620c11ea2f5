"""Holds values that a script leaves to a branch, a loop or its caller, with their alternatives.

In a text an alternative appears as a mark, two private characters around a number, so that it passes through
assignments and substitutions like any other text.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from trainspec_validate.model.values import bare, cut_to

MAX_ALTERNATIVES = 16
_MAX_DEPTH = 40
_MARK = re.compile("\ue000([0-9]{1,9})\ue001")
_ONLY_MARKS = re.compile("(?:\ue000[0-9]{1,9}\ue001)+")


class _Absent:
    """The alternative that a setting is not given at all."""

    def __repr__(self) -> str:
        return "not given"


ABSENT = _Absent()
OUTSIDE = "the caller or the environment"


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The values that a setting may have, with the lines that they come from."""

    values: tuple[object, ...]
    lines: tuple[int, ...]
    free: bool
    """Whether it may have other values too, because something outside decides."""
    event: int | None = None
    """The branch that decides it; settings of one branch vary together."""
    ways: tuple[object, ...] = ()
    """The value for each way through that branch."""
    outside: str = OUTSIDE
    """Other event that sets it, where it is free."""

    def __str__(self) -> str:
        shown = [
            f"{cut_to(bare(value), 120)}{f' (line {line})' if line else ''}"
            for value, line in zip(self.values, self.lines, strict=True)
        ]
        if self.free:
            shown.append(f"what {self.outside} sets")
        return " or ".join(shown)


@dataclass(frozen=True, slots=True)
class Value:
    """A text and the line that it comes from."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Unset(Value):
    """The empty text of a variable that the script itself unsets."""


@dataclass(slots=True)
class Choices:
    """Every choice of a script, by its number."""

    _options: list[tuple[Value, ...]] = field(default_factory=list)
    _depths: list[int] = field(default_factory=list)
    _known: dict[object, int] = field(default_factory=dict)
    _ways: dict[int, tuple[int, tuple[Value, ...]]] = field(default_factory=dict)
    _num_events: int = 0
    _flat: dict[int, tuple[tuple[Value, ...], bool]] = field(default_factory=dict)

    def event(self) -> int:
        """The number of a new branch, which decides about several variables at once."""
        self._num_events += 1
        return self._num_events

    def ways(self, word: str) -> tuple[int, tuple[Value, ...]] | None:
        """The branch that decides about a word which is one mark, and the value for each way through it."""
        found = _MARK.fullmatch(word)
        return self._ways.get(int(found[1])) if found else None

    def mark(self, values: list[Value], fallback: str, event: int | None = None) -> str:
        """The text that can have one of several values; `fallback`, which is open, where they are too many.

        With an event the values are those of each way through that branch.
        """
        distinct = tuple({value.text: value for value in values}.values())
        if not distinct:
            return fallback
        if len(distinct) == 1:
            return distinct[0].text
        depth = 1 + max(self._depth(value.text) for value in distinct)
        if len(distinct) > MAX_ALTERNATIVES or depth > _MAX_DEPTH:
            return fallback
        key = distinct if event is None else (event, tuple(values))
        number = self._known.setdefault(key, len(self._options))
        if number == len(self._options):
            self._options.append(distinct)
            self._depths.append(depth)
            if event is not None:
                self._ways[number] = event, tuple(values)
        return f"\ue000{number}\ue001"

    def _depth(self, text: str) -> int:
        return max((self._depths[int(found[1])] for found in _MARK.finditer(text)), default=0)

    def parts(self, word: str) -> tuple[Value, ...]:
        """The values of a word that is one mark; nothing for any other word."""
        found = _MARK.fullmatch(word)
        return self._options[int(found[1])] if found else ()

    def flat(self, text: str) -> tuple[tuple[Value, ...], bool]:
        """Every text that the marks in a text can mean, at most `MAX_ALTERNATIVES`; and whether there are more."""
        numbers = list(dict.fromkeys(int(found[1]) for found in _MARK.finditer(text)))
        if not numbers:
            return (Value(text, 0),), False
        whole = [self._flat_option(number) for number in numbers]
        more = any(cut for _, cut in whole)
        found: dict[str, Value] = {}
        for picked in itertools.islice(itertools.product(*(values for values, _ in whole)), 4 * MAX_ALTERNATIVES):
            by_number = dict(zip(numbers, picked, strict=True))
            made = _MARK.sub(lambda mark, table=by_number: table[int(mark[1])].text, text)  # type: ignore[misc]
            found.setdefault(made, Value(made, max(value.line for value in picked)))
        kept = tuple(found.values())[:MAX_ALTERNATIVES]
        count = 1
        for values, _ in whole:
            count *= len(values)
        return kept, more or count > 4 * MAX_ALTERNATIVES or len(kept) < len(found)

    def shown(self, text: str) -> str:
        """A text for a person: every text that it can mean, without marks.

        >>> choices = Choices()
        >>> choices.shown(choices.mark([Value("a.sh", 1), Value("b.sh", 2)], "") + " or " + "c.sh")
        'a.sh or c.sh or b.sh or c.sh'
        """
        values, more = self.flat(text)
        texts = [value.text for value in values if value.text.strip()]
        return " or ".join([*(texts or ["an empty word"]), *(["more"] if more else [])])

    def _flat_option(self, number: int) -> tuple[tuple[Value, ...], bool]:
        if number not in self._flat:
            found: dict[str, Value] = {}
            more = False
            for value in self._options[number]:
                inner, cut = self.flat(value.text)
                more = more or cut
                for item in inner:
                    found.setdefault(item.text, Value(item.text, value.line or item.line))
            kept = tuple(found.values())[:MAX_ALTERNATIVES]
            self._flat[number] = kept, more or len(kept) < len(found)
        return self._flat[number]


def has_marks(text: str) -> bool:
    """Whether a text can mean several."""
    return "\ue000" in text


def only_marks(word: str) -> bool:
    """Whether a word is nothing but marks."""
    return bool(_ONLY_MARKS.fullmatch(word))


def split_marks(word: str) -> list[str]:
    """The marks of a word that is nothing else."""
    return [found[0] for found in _MARK.finditer(word)]


def without_marks(word: str) -> str:
    """Text of a word without marks."""
    return _MARK.sub("", word)
