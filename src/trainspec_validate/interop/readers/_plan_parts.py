"""Collects the facts of a plan from the named settings of a launch configuration."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.interop.fragment import ForeignText, Fragment, Remark, Unknown
from trainspec_validate.interop.readers._environment import variables
from trainspec_validate.interop.readers._setting_places import listed, place_of, unread_remarks
from trainspec_validate.interop.readers._unread_names import asks_for_eight_bit, decides
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import as_in_file
from trainspec_validate.system.digits import is_digits

LARGEST = 10**15
"""Whole numbers above this are no sizes or counts of a plan; nothing is computed from them."""
SECTIONS = ("metadata", "model", "parallelism", "batch", "precision", "communication", "memory", "job")
"""Groups of a plan in the order of its schema."""
LONGEST_NAME = 128
_MAX_SHOWN = 60
_WHOLE = re.compile(r"(?=.{1,22}\Z)[+-]?[0-9]+(?:_[0-9]+)*")
"""What `int` of Python accepts."""
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_NARROW_GATHER = re.compile(r"(?:fp8|float8)\w*gather")
_GROUPED = re.compile(r"[0-9]{1,3}(?:_[0-9]{3}){1,4}")
"""Numbers such as 10_000, which YAML 1.1 and command lines read as whole numbers."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._+-]+")


class Default(str):
    """How a fact came about that rests on a default of the framework: what another file states goes before it."""

    __slots__ = ()


class Habit(str):
    """How a fact came about that no setting states: the code of one program does it, and another may do otherwise."""

    __slots__ = ()


def like(how: str, words: str) -> str:
    """Words for what follows from a fact that came about in the way `how`: a default where that one is.

    >>> isinstance(like(Default("the default of x"), "in the same format"), Default), isinstance(like("", "x"), Default)
    (True, False)
    """
    return Default(words) if isinstance(how, Default) else words


Lines = Callable[[Iterable[str]], Mapping[str, int]]
"""Lines of settings by name, for those that have one."""


def shown(value: object) -> str:
    """A value for a message, as files have it, cut short.

    >>> shown("fixed_linear")
    "'fixed_linear'"
    """
    is_long = isinstance(value, int) and abs(value) > LARGEST
    text = "a number of many digits" if is_long else as_in_file(value)
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1 that can be computed with.

    >>> is_count(8), is_count(True), is_count(0), is_count("8")
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST


def name_of(text: str) -> str | None:
    """A model or run as a name of a document: the last part of a local path, otherwise with dashes for slashes.

    >>> name_of("meta-llama/Llama-3.1-8B"), name_of("/data/checkpoints/llama 8b/"), name_of("...")
    ('meta-llama-Llama-3.1-8B', 'llama-8b', None)
    """
    text = text[:1024].rstrip("/")
    if "$" in text:  # a variable that is set elsewhere
        return None
    if text.startswith(("/", ".", "~")):
        text = text.rpartition("/")[2]
    return _NO_NAME.sub("-", text).strip("-._+")[:LONGEST_NAME].rstrip("-._+") or None


def word_value(text: str) -> Any:
    """The value of a word on a command line or in a log.

    >>> [word_value(text) for text in ("32", "1.5e-4", "True", "None", "fp8")]
    [32, 0.00015, True, None, 'fp8']
    """
    if _WHOLE.fullmatch(text):
        return int(text.replace("_", ""))
    if len(text) <= _MAX_SHOWN and _REAL.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    if text in {"None", "null", ""}:
        return None
    return _WORDS.get(text.lower(), text) if text.lower() in {"true", "false"} else text


_PLACEHOLDER = re.compile(r"/?path/to/.*|.*/path/to/.*|<[^<>]{1,100}>|your[_-].*", re.IGNORECASE | re.DOTALL)


def is_placeholder(text: str) -> bool:
    """Whether a name or a path is one that the person who starts the job replaces.

    >>> is_placeholder("/path/to/base_model"), is_placeholder("<model>"), is_placeholder("models/llama")
    (True, True, False)
    """
    return bool(_PLACEHOLDER.fullmatch(text[:1024]))


CUT = "<cut off>"
"""The value of a setting whose line is cut off."""


def why_open(value: object, name: str = "the source") -> str | None:
    """Why a value is none: a reference that only the framework resolves, or a placeholder.

    >>> why_open("${model.hidden_size}")
    'the source refers to ${model.hidden_size}, which is not resolved'
    """
    if not isinstance(value, str):
        return None
    if "${" in value or "$(" in value or "`" in value or re.match(r"\$[A-Za-z_0-9@*]", value):
        return f"the source refers to {value[:_MAX_SHOWN]}, which is not resolved"
    if value == CUT:
        return "the log cuts its line before the value"
    if value == "???":
        return "the source leaves it to the person who starts the job"
    return f"{name} says auto: the program that starts the job fills it in" if value == "auto" else None


_STATED_ELSEWHERE = frozenset({"batch", "optimizer", "memory"})
"""Groups of a plan of which each setting states one fact, so that one that is not read leaves that fact open."""


def without_empty(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts without groups that hold nothing.

    >>> without_empty({"a": {"b": {}}, "c": 1})
    {'c': 1}
    """
    inner = {key: without_empty(value) if isinstance(value, dict) else value for key, value in facts.items()}
    return {key: value for key, value in inner.items() if value != {}}


def _decider(name: str) -> str:
    return f"`{name[:_MAX_SHOWN]}`, which this reader does not know, may decide it"


@dataclass(slots=True)
class Draft:
    """A plan in the making: settings that remember whether they were read, and what they say."""

    values: Mapping[str, Any]
    lines: Lines = lambda _: {}
    origins: Mapping[str, str] = field(default_factory=dict)
    """Names that the file itself has for settings, where they differ."""
    facts: dict[str, Any] = field(default_factory=dict)
    unknown: dict[Pointer, str] = field(default_factory=dict)
    derived: dict[Pointer, str] = field(default_factory=dict)
    """How facts were derived; a `Default` marks those that rest on one."""
    inputs: dict[Pointer, tuple[Pointer, ...]] = field(default_factory=dict)
    """Inputs that facts were computed from."""
    used: set[str] = field(default_factory=set)
    attention_parameters: int | None = None
    """Parameters of the attention of one layer, where they do not follow from heads alone."""
    more_parameters: tuple[int, int] | str = (0, 0)
    """Parameters that the shape leaves out, of all and of those that a token uses, or why they are not known."""
    _open: dict[str, str] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    """Settings that were read and without which the plan is the same."""
    elsewhere: list[str] = field(default_factory=list)
    """Settings that no one read, of branches that these values do not come from."""
    unfit: set[str] = field(default_factory=set)
    """Settings whose value is of another kind than the one that was looked for."""
    typed: bool = False
    """Whether the program converts each word with `int` or `float`, as argparse does, so that `1e3` is no count."""
    fit: set[str] = field(default_factory=set)
    """Settings whose value was of the kind that was looked for."""
    taken: set[str] = field(default_factory=set)
    """Settings whose value was taken."""
    passed: set[str] = field(default_factory=set)
    """Settings that were passed over for another one of the same meaning."""
    carried: set[str] = field(default_factory=set)
    """Environment variables that facts hold whole."""
    doubted: dict[str, tuple[str, Sequence[object]]] = field(default_factory=dict)
    """Settings whose value is not understood: why, and the values that the reader knows for them."""
    told: list[tuple[str, str | int | None]] = field(default_factory=list)
    """Remarks, each with a line, or the setting whose line it is about."""

    def look(self, *names: str) -> Any:
        """The value of the first of several settings that has one; None where none has, or it is unresolved."""
        present = [name for name in names if name in self.values]
        self.used.update(names)
        for name in present:
            value = self.values[name]
            if value is None:
                continue
            reason = why_open(value, name)
            self.taken.add(name)
            others = present[present.index(name) + 1 :]
            self.passed.update(other for other in others if self.values[other] not in (None, value))
            if reason is None:
                grouped = isinstance(value, str) and _GROUPED.fullmatch(value)
                return int(value.replace("_", "")) if grouped else value
            if name not in self._open:
                self._open[name] = reason
                self.remark(f"{name}: {reason}", name)
            return None
        return None

    def reasons(self, *names: str) -> list[str]:
        """Why settings that were looked at are unresolved."""
        return [self._open[name] for name in names if name in self._open]

    def _fitting(self, names: Sequence[str], value: Any, *, fits: bool) -> None:
        """Remember settings whose value is of another kind."""
        if value is None:
            return
        name = next(name for name in names if self.values.get(name) is not None)
        if fits:
            self.unfit.discard(name)
            self.fit.add(name)
        elif name not in self.fit:
            self.unfit.add(name)

    def count(self, *names: str) -> int | None:
        """A whole number of at least 1; None for anything else."""
        value = self._whole(*names)
        return value if is_count(value) else None

    def _whole(self, *names: str) -> Any:
        """The value of a setting that takes a whole number; open where `int` of the program refuses its word."""
        value = self.look(*names)
        word = isinstance(value, str) and is_digits(value[:1]) and value.isascii()
        if not self.typed or not (isinstance(value, float) or word):
            return value
        name = next(name for name in names if self.values.get(name) is not None)
        if "." in name:  # a setting of a configuration that the script writes, which is no word of a command
            return value
        if name not in self._open:
            why = f"{shown(value)} is not written as a whole number, and a program that reads it with int() refuses it"
            self._open[name] = why
            self.remark(f"{name}: {why}", name)
        return None

    def number(self, *names: str) -> float | None:
        """A finite number; None for anything else."""
        value = self.look(*names)
        plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST * LARGEST
        self._fitting(names, value, fits=plain)
        return float(value) if plain else None

    def flag(self, *names: str) -> bool | None:
        """A truth value, also as a word or as 0 and 1; None for anything else."""
        value = self.look(*names)
        found = _WORDS.get(value.lower()) if isinstance(value, str) else None
        if isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1)):
            found = bool(value)
        self._fitting(names, value, fits=found is not None)
        return found

    def word(self, *names: str) -> str | None:
        """A text; None for anything else."""
        value = self.look(*names)
        found = value if isinstance(value, str) and value else None
        self._fitting(names, value, fits=found is not None)
        return found

    def known(self, table: Collection[str], *names: str) -> str | None:
        """A word of a table, in its spelling there; another one leaves open what a word of the table could change."""
        value = self.look(*names)
        text = "" if value is None or isinstance(value, bool | Mapping | list) else str(value)
        found = next((word for word in table if word.casefold() == text.casefold()), None)
        self._fitting(names, value, fits=bool(text))
        if text and found is None:
            name = next(name for name in names if self.values.get(name) is not None)
            self.doubt(name, f"{self.origins.get(name, name)} is {shown(value)}, which is not known", tuple(table))
        return found

    def doubt(self, name: str, why: str, others: Sequence[object]) -> None:
        """Leave open each fact that differs for one of `others` in place of the value of a setting."""
        self.doubted.setdefault(name, (why, others))
        self.remark(why, name)

    def copy(self, pointer: Pointer, *names: str, least: int = 1) -> int | None:
        """Take a whole number over as it is; what is no number is kept with a remark."""
        value = self._whole(*names)
        if value is None:
            for reason in self.reasons(*names):
                self.lacks(pointer, reason)
            return None
        if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
            value = int(value)
        if value == -1:
            self.lacks(pointer, "the source says -1, which leaves it to something else")
            return None
        self.put(pointer, value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST:
            return value
        name = next(name for name in names if self.values.get(name) is not None)
        wanted = f"a whole number of at least {least}"
        self.remark(f"{name} is {shown(value)}, where {wanted} belongs", name)
        return None

    def put(self, pointer: Pointer, value: Any, how: str = "") -> None:
        """Set a fact to a plain value or a list of them; `how` says how it was derived."""
        nested = isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value)
        if isinstance(value, Mapping) or nested:
            self.lacks(pointer, f"the source gives a structure, {shown(value)}, where a plain value belongs")
        elif isinstance(value, float) and not math.isfinite(value):
            self.lacks(pointer, f"the source says {value}, which is no number of a document")
        elif value is not None:
            self._set(pointer, list(value) if isinstance(value, tuple) else value, how)

    def put_records(self, pointer: Pointer, records: Sequence[Mapping[str, Any]], how: str = "") -> None:
        """Set a fact to records that the reader itself made."""
        self._set(pointer, [dict(record) for record in records], how)

    def _set(self, pointer: Pointer, value: Any, how: str) -> None:
        inner = self.facts
        for key in pointer[:-1]:
            inner = inner.setdefault(str(key), {})
        inner[str(pointer[-1])] = value
        self.derived.pop(pointer, None)
        self.inputs.pop(pointer, None)
        if how:
            self.derived[pointer] = how

    def default(self, pointer: Pointer, value: Any, how: str, *inputs: Pointer) -> None:
        """Set a fact that the source leaves to a default; what is known to be unknown stays so."""
        if self.get(*map(str, pointer)) is None and pointer not in self.unknown:
            self.follow(pointer, value, Default(how), *inputs)

    def follow(self, pointer: Pointer, value: Any, how: str, *inputs: Pointer) -> None:
        """Set a fact that is computed from others; it rests on a default where one of them does."""
        weak = any(isinstance(reason, Default) for reason in (how, *map(self.derived.get, inputs)))
        self.put(pointer, value, Default(how) if weak else how)
        if inputs:
            self.inputs[pointer] = inputs

    def drop_defaults(self, why: str, kept: Collection[Pointer] = ()) -> None:
        """Leave open each fact that follows from a default, where the program has others; those `kept` are sure."""
        self.drop([at for at, how in self.derived.items() if isinstance(how, Default) and at not in kept], why)
        self.derived.update((at, str(self.derived[at])) for at in kept if at in self.derived)

    def drop(self, pointers: Iterable[Pointer], why: str) -> None:
        """Leave facts open that cannot be determined after all, with all that was computed from them."""
        for pointer in pointers:
            for above in [at for at, inputs in self.inputs.items() if pointer in inputs and at != pointer]:
                self.inputs.pop(above, None)  # what follows from it may have been dropped with another one
                if self.get(*map(str, above)) is not None:
                    self.drop([above], f"it follows from {'.'.join(map(str, pointer))}, which is open: {why}")
            inner: Any = self.facts
            for key in pointer[:-1]:
                inner = inner.get(str(key), {})
            if inner.pop(str(pointer[-1]), None) is not None or pointer not in self.unknown:
                self.unknown[pointer] = why
            self.derived.pop(pointer, None)
        self.facts = without_empty(self.facts)

    def get(self, *pointer: str) -> Any:
        """A fact, or None."""
        inner: Any = self.facts
        for key in pointer:
            inner = inner.get(key) if isinstance(inner, dict) else None
        return inner

    def counted(self, *pointer: str) -> int | None:
        """A fact that can be computed with, or None."""
        value = self.get(*pointer)
        return value if is_count(value) else None

    def divide(self, pointer: Pointer, whole: int, part: int, how: str) -> int | None:
        """Set a fact to one count over another where it goes in evenly; otherwise it stays open, and that is said."""
        if part > 0 and whole > 0 and whole % part == 0:
            self.put(pointer, whole // part, how)
            return whole // part
        uneven = f"{how}: {whole} is no multiple of {part}"
        self.lacks(pointer, uneven)
        self.remark(uneven)
        return None

    def lacks(self, pointer: Pointer, reason: str) -> None:
        """Note a key that the source cannot state; the first reason stays."""
        self.unknown.setdefault(pointer, reason)

    def remark(self, message: str, place: str | int | None = None) -> None:
        """Note something odd, at a line or at the line of a setting."""
        self.told.append((message, place))

    def _leave_unread_open(self, names: Sequence[str]) -> None:
        """A default is no answer where the source states the fact in a setting that this importer does not read."""
        for name in names:
            place = tuple((place_of(name) or "").split("."))
            if place[0] in _STATED_ELSEWHERE:
                weak = [at for at, how in self.derived.items() if isinstance(how, Default)]
                why = f"{name[:_MAX_SHOWN]} states it, which this importer does not read"
                self.drop([at for at in weak if tuple(map(str, at))[: len(place)] == place], why)

    def leaves_decided(self, pointer: Pointer) -> bool:
        """Whether no setting that is not read so far decides a fact by its name; one that does leaves it open."""
        unread = ((name, value) for name, value in self.values.items() if name not in self.used)
        found = next((name for name, value in unread if pointer in decides(name, value)), None)
        if found is not None:
            self.lacks(pointer, _decider(self.origins.get(found, found)))
        return found is None

    def _leave_decided_open(self, settings: Mapping[str, Any]) -> None:
        """A default is no answer where a setting that nobody knows decides the fact, by the words in its name."""
        for name, value in settings.items():
            for pointer in decides(name, value):
                self._drop_weak(pointer, _decider(name))

    def _leave_eight_bit_open(self, settings: Mapping[str, Any]) -> None:
        """Leave the format of products open where a switch that nobody knows names fp8, and no recipe is known."""
        asked = [name for name, value in settings.items() if value is True and asks_for_eight_bit(name)]
        if asked and self.get("precision", "recipe") is None and self.get("precision", "compute") is not None:
            why = f"{asked[0][:_MAX_SHOWN]}, which this reader does not know, may run products in fp8"
            gathers = any(value is True and _NARROW_GATHER.search(name) for name, value in settings.items())
            gathered = gathers and self.get("precision", "parameters") is not None
            places = ["compute", "recipe", *(["parameters"] if gathered else [])]
            self.drop([("precision", key) for key in places], why)

    def _drop_weak(self, pointer: Pointer, why: str) -> None:
        """Leave a default or a habit of the program open, with everything that was computed from it."""
        weak = (at for at, how in self.derived.items() if isinstance(how, Default | Habit))
        waiting = [at for at in weak if at[: len(pointer)] == pointer]
        gone: set[Pointer] = set()
        while waiting:
            at = waiting.pop()
            gone.add(at)
            waiting.extend(up for up, inputs in self.inputs.items() if at in inputs and up not in gone)
        self.drop([at for at in gone if self.get(*map(str, at)) is not None], why)

    def _kept(self) -> dict[Pointer, str]:
        return {place: how for place, how in self.derived.items() if self.get(*map(str, place)) is not None}

    def fragment(self, format: str, text: ForeignText) -> Fragment:  # noqa: A002
        """Everything that was collected; settings that no one read are listed in remarks."""
        lines = self.lines(sorted({place for _, place in self.told if isinstance(place, str)}))
        once: dict[str, str | int | None] = {}
        for message, place in self.told:
            once.setdefault(message, place)
        remarks = [
            Remark(message, lines.get(place) if isinstance(place, str) else place) for message, place in once.items()
        ]
        unread = [name for name, value in self.values.items() if name not in self.used and value not in (None, {}, [])]
        rest = [self.origins.get(name, name) for name in (*unread, *self.elsewhere)]
        self._leave_unread_open(rest)
        self._leave_decided_open({self.origins.get(name, name): self.values[name] for name in unread})
        self._leave_eight_bit_open({self.origins.get(name, name): self.values[name] for name in unread})
        remarks.extend(unread_remarks(rest))
        if self.idle:
            idle = listed([self.origins.get(name, name) for name in self.idle])
            remarks.append(Remark(f"read, and no value of the plan follows from it: {idle}"))
        if unfit := sorted(self.unfit - {*self.idle}):
            unfit = [f"{self.origins.get(name, name)} is {shown(self.values[name])}" for name in unfit]
            remarks.append(Remark(f"not read, because the value is of another kind: {listed(unfit)}"))
        if behind := sorted(self.passed - self.taken - {*self.idle}):
            behind = [self.origins.get(name, name) for name in behind]
            remarks.append(Remark(f"another setting of the same meaning goes before it: {listed(behind)}"))
        if left := [name for name in variables(text.text) if name not in self.carried]:
            remarks.append(Remark(f"environment variables that are not carried over: {listed(left)}"))
        left_open = ((at, why) for at, why in self.unknown.items() if self.get(*map(str, at)) is None)
        return Fragment(
            kind="TrainingPlan",
            format=format,
            name=text.name,
            facts=without_empty({key: self.facts[key] for key in (*SECTIONS, *self.facts) if key in self.facts}),
            unknown=tuple(Unknown(at, why) for at, why in left_open),
            remarks=tuple(remarks),
            derived={place: str(how) for place, how in self._kept().items()},
            defaults=frozenset(place for place, how in self._kept().items() if isinstance(how, Default)),
            inputs={place: self.inputs[place] for place in self._kept() if place in self.inputs},
        )


def leave_offload_open(draft: Draft, *names: str) -> None:
    """Leave the offload open where a setting moves activations or layers away: the program decides how many."""
    for name in names:
        value = draft.look(name)
        reason = next(iter(draft.reasons(name)), "")
        if reason or (value not in (None, False, 0) and str(value).lower() not in {"false", "none", "no", ""}):
            why = reason or "the program decides how many activations or layers it moves"
            known = draft.get("memory", "offload") or []
            places = ", ".join(f"{entry['what']} on the {entry['target']}" for entry in known if entry.get("what"))
            stated = f"; the source states {places}" if places else ""
            draft.drop([("memory", "offload")], f"{draft.origins.get(name, name)}: {why}{stated}")
