"""Turns words of a command into options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._launched_ranks import LAUNCHER, LAUNCHER_OPTIONS, LAUNCHER_SIZE, launcher_of
from trainspec_validate.interop.readers._plan_parts import Draft, word_value
from trainspec_validate.interop.readers._quoted_commands import commands_in
from trainspec_validate.interop.readers._setting_places import MAX_LISTED
from trainspec_validate.interop.readers._shell_choices import (
    ABSENT,
    Alternatives,
    Value,
    has_marks,
    only_marks,
    split_marks,
    without_marks,
)
from trainspec_validate.interop.readers._shell_found import (
    COMMAND,
    MORE,
    PROGRAM,
    UNRESOLVED,
    Found,
    Option,
    Options,
    Possible,
    cut,
    distinct,
    either,
)
from trainspec_validate.interop.readers._shell_shown import SHOWS, is_only_shown
from trainspec_validate.interop.readers._shell_variables import Script, Word
from trainspec_validate.interop.readers._shell_words import cut_words
from trainspec_validate.interop.readers._slurm_script import script_of
from trainspec_validate.interop.readers._switches import (
    CHANGED_NAME,
    FURTHER,
    NUMBERED,
    ONE_OF_THEM,
    SEVERAL,
    holds_further,
    holds_option,
    in_list,
    may_override,
)
from trainspec_validate.interop.readers._training_programs import command_of

_LISTED_WORDS = re.compile(r"""[\[,]\s*(["']?)--[A-Za-z][\w-]*\1\s*,""")
"""An option in a list of words, whose commas a shell would take for parts of them."""
_NAMED = re.compile(r"(?<![\w-])--([A-Za-z][\w-]{0,100})")
_SIZED = re.compile(r"--(?:nproc[_-]per[_-]node|nnodes|num_gpus|num_nodes)\b")
_EXPORTED = re.compile(r"\bexport[ \t]+([A-Za-z_]\w{0,100})")
_USED = re.compile(r"\$\{?([A-Za-z_]\w{0,100})")
_ALLOCATORS = {"expandable_segments:true": "expandable-segments", "backend:cudamallocasync": "asynchronous"}
_END = "\n"
"""A word between two texts: an option before it has no value behind it."""
_NO_OPTIONS = re.compile(r"\$\(\(|\$(?:\w{1,80}|\{\w{1,80}\})/")
"""A number that the shell computes, and a path below a directory from outside."""


class Reader:
    """Reads words with the choices of their script."""

    def __init__(self, script: Script, pairs: Callable[[str], tuple[str, str] | None] | None = None) -> None:
        self.script, self._pairs = script, pairs
        self._inner: dict[str, Found] = {}
        self._listing: dict[str, bool] = {}

    def read(self, words: Iterable[Word]) -> Found:
        """Options of words: `--name value`, or what `pairs` takes for a name and a value."""
        found, words = Found(), list(words)
        programs = [word for word in words if word.text.endswith(".py") and not has_marks(word.text)]
        if programs:
            # Launchers stand before the program that they start.
            found.options[PROGRAM] = [Option(programs[-1].text.rpartition("/")[2], programs[-1].line)]
            found.options[LAUNCHER] = self._launchers(words)
        elif command := command_of([word.text for word in words]):
            found.options[COMMAND] = [Option(command, words[0].line)]
        for name, line, values in self._grouped(words, found):
            found.set(name, self._possible(name, values, line), self._ways(name, values))
            for value in filter(self._holds_options, values):
                found.outside.setdefault(cut(value), line)
                found.override(line)
        return found

    def _holds_options(self, value: str) -> bool:
        """Whether one of the texts of a choice has options after its first word."""
        texts = self.script.choices.flat(value)[0] if has_marks(value) else ()
        return any(word.startswith("--") for text in texts for word in cut_words(text.text)[1:])

    def _launchers(self, words: list[Word]) -> Possible:
        """What may start the program, in every branch."""
        end = next(k for k, word in enumerate(words) if word.text.endswith(".py"))
        texts, more = self.script.choices.flat(" ".join(word.text for word in words[:end]))
        found = [Option(launcher_of(text.text), words[0].line) for text in texts]
        return distinct([*found, Option(MORE, words[0].line)] if more else found)

    def _ways(self, name: str, values: list[str]) -> tuple[int, tuple[object, ...]] | None:
        """The branch that decides the value of an option, with the value for each way."""
        found = self.script.choices.ways(values[0]) if len(values) == 1 else None
        if found is None or any(has_marks(value.text) for value in found[1]):
            return None
        return found[0], tuple(_value(name, cut_words(value.text) or [""]) for value in found[1])

    def lists(self, mark: str) -> bool:
        """Whether a mark is replaced by options rather than by a value."""
        if mark not in self._listing:
            self._listing[mark] = False
            texts = [value.text for value in self.script.choices.parts(mark)]
            self._listing[mark] = any(self._is_list(text) for text in texts)
        return self._listing[mark]

    def _is_list(self, text: str) -> bool:
        words = cut_words(text)
        if any(only_marks(word) and any(map(self.lists, split_marks(word))) for word in words):
            return True
        if any(may_override(word, "none") for word in words):
            return True
        return any(self._pairs(word) if self._pairs else word.startswith("--") for word in words)

    def _grouped(self, words: Iterable[Word], found: Found) -> Iterator[tuple[str, int, list[str]]]:
        """Every option with the words up to the next one; lists that a choice holds are laid over what was found."""
        name, line, before = "", 0, ""
        values, words = list[str](), list(words)
        texts = [word.text for word in words]
        for word in words:
            program, before = before.endswith(".py"), word.text
            if program and not self._pairs and word.text.endswith((".yaml", ".yml")) and word.text[0] not in "-<":
                found.set("config", [Option(word.text, word.line)])  # a file of settings, right after the program
                continue
            laid = self._laid_over(word)
            if laid is not None:
                yield from _ended(name, line, values or self._leading(word))
                name, values = "", []
                laid(found)
                continue
            if self._is_further(word.text) and not (name and not values and ONE_OF_THEM.fullmatch(word.text)):
                found.outside.setdefault(cut(word.text), word.line)
                continue
            pair = self._pair(word.text)
            if pair is not None:
                yield from _ended(name, line, values)
                name, line, values = pair[0], word.line, [pair[1]] if pair[1] else []
                if word.text.endswith("=") and not values:  # empty, and the next word is not its value
                    yield from _ended(name, line, values)
                    name = ""
            elif self._may_override(word.text, name, values) or self._holds_further(word.text, name, values, texts):
                is_value = not values and not self._holds_further(word.text, name, values, texts)
                yield from _ended(name, line, [word.text] if is_value else values)
                if self._may_override(word.text, name if in_list(values) else "", values):
                    found.override(word.line)
                name, values = "", []
                self._note(word, found, is_further=not self._pairs)
            elif not name or self._pairs:
                self._note(word, found, is_further=False)
            elif not (word.text.endswith(".py") and name in LAUNCHER_OPTIONS):
                values.append(word.text)
        yield from _ended(name, line, values)

    def _may_override(self, text: str, name: str = "", values: Sequence[str] = ()) -> bool:
        """Whether a word may give options again, in one of the ways that it may be."""
        own = self.script.renumbered and (not name or len(values) == 1)
        ways = [one.text for one in self.script.choices.flat(text)[0]]
        return any((own and NUMBERED.fullmatch(way)) or may_override(way, name, values) for way in ways)

    def _words_of(self, text: str) -> list[str]:
        """The words of every text that a word may be; a word without a choice is one, be it in quotes."""
        ways = [way.text for way in self.script.choices.flat(text)[0]]
        return [word for way in ways for word in (cut_words(way) if has_marks(text) else [way])]

    def _holds_further(self, text: str, name: str, values: Sequence[str], texts: Sequence[str]) -> bool:
        """Whether a word can be nothing else than further options, or nothing at all."""
        words = self._words_of(text)
        return bool(words) and all(holds_further(word, name, values, texts) for word in words)

    def _note(self, word: Word, found: Found, *, is_further: bool) -> None:
        """Keep a word that is not known among those that may hold further options."""
        for text in self._words_of(word.text):
            if UNRESOLVED.match(text) and not text.endswith(".py") and not _NO_OPTIONS.match(text):
                found.outside.setdefault(cut(text), word.line)
                found.further += [cut(text)] if is_further else []

    def _pair(self, text: str) -> tuple[str, str] | None:
        if self._pairs:
            return self._pairs(text)
        if not text.startswith("--") or len(text) < 3:
            return None
        stem, _, value = text[2:].rstrip(":").partition("=")
        return (stem.replace("-", "_"), value) if not has_marks(stem) else None

    def _is_further(self, text: str) -> bool:
        """Whether a word stands for further options from outside, or for none, by what it is called."""
        texts = [value.text for value in self.script.choices.flat(text)[0]] if only_marks(text) else [text]
        return any(map(FURTHER.fullmatch, texts)) and all(not each or FURTHER.fullmatch(each) for each in texts)

    def _names_are_open(self, text: str) -> bool:
        """Whether a word is an option whose name a choice or the outside decides, as in `--${PRECISION}`."""
        stem = text[2:].partition("=")[0]
        return not self._pairs and text.startswith("--") and (has_marks(stem) or bool(UNRESOLVED.search(stem)))

    def _leading(self, word: Word) -> list[str]:
        """The value of the option before a choice of options, where that begins with one in some way."""
        texts, more = self.script.choices.flat(word.text)
        firsts = [(cut_words(one.text) or ["--"])[0] for one in texts]
        known = [first for first in firsts if not first.startswith(("--", "$", "`"))]
        rest = [MORE] if more or len(known) < len(firsts) else []
        values = [Value(text, word.line) for text in [*known, *rest]]
        return [self.script.choices.mark(values, MORE)] if known and not self._pairs else []

    def _laid_over(self, word: Word) -> Callable[[Found], None] | None:
        """What lays the options that a word holds over those before it; None for a word that is one option or value.

        The end of a text lays nothing over them, and ends the option before it.
        """
        if word.text == _END:
            return lambda _: None
        if only_marks(word.text) and any(map(self.lists, split_marks(word.text))):
            return lambda found: self._overlay(word, found)
        if self._names_are_open(word.text):
            return lambda found: self._lay_over_names(word, found)
        return None

    def _lay_over_names(self, word: Word, found: Found) -> None:
        """Every option that such a word may be, given or not; one from outside may be any."""
        texts, more = self.script.choices.flat(word.text)
        for text in texts:
            pair = self._pair(text.text)
            if pair is None or UNRESOLVED.search(pair[0]):
                more = True
            else:
                given = Option(_value(pair[0], [pair[1]] if pair[1] else []), text.line or word.line)
                found.set(pair[0], [given, Option(ABSENT, 0)] if len(texts) > 1 or more else [given])
        if more:
            found.outside.setdefault(cut(word.text), word.line)
        if CHANGED_NAME.match(word.text):
            found.override(word.line)

    def _overlay(self, word: Word, found: Found) -> None:
        """Options that choices may hold: each with the values of every alternative, or not given."""
        for mark in split_marks(word.text):
            if mark not in self._inner:
                self._inner[mark] = Found()
                self._inner[mark] = self._joined(mark, word.line)
            inner = self._inner[mark]
            found.outside.update(inner.outside)
            if inner.overriding:
                found.override(word.line)
                found.further += filter(self._may_override, inner.further)
            for name, possible in inner.options.items():
                found.set(name, possible, inner.ways.get(name))

    def _joined(self, mark: str, line: int) -> Found:
        decided = self.script.choices.ways(mark)
        values = decided[1] if decided else self.script.choices.parts(mark)
        read = [self.read(Word(text, value.line or line) for text in cut_words(value.text)) for value in values]
        return either(read, decided[0] if decided else None)

    def _possible(self, name: str, values: list[str], line: int) -> Possible:
        several = name in SEVERAL
        if not any(map(has_marks, values if several else values[:1])):
            return [Option(_value(name, values), line)]
        texts, more = self.script.choices.flat(" ".join(values) if several else values[0])
        is_one = not several and " " in without_marks(values[0])
        words = [[text.text] if is_one else cut_words(text.text) or [""] for text in texts]
        found = [Option(_value(name, each), text.line or line) for each, text in zip(words, texts, strict=True)]
        return distinct([*found, Option(MORE, line)] if more else found)


def _ended(name: str, line: int, values: list[str]) -> Iterator[tuple[str, int, list[str]]]:
    """An option with its words, where one was begun."""
    if name:
        yield name, line, values


def _value(name: str, values: list[str]) -> object:
    if not values:
        return True
    several = name in SEVERAL and len(values) > 1
    return [word_value(item) for item in values] if several else word_value(values[0])


def draft_of(found: Options) -> Draft:
    """A draft of options, by name with underscores."""
    values = {name: option.value for name, option in found.items()}
    return Draft(values, lambda names: {name: found[name].line for name in names if name in found})


@dataclass(slots=True)
class Started:
    """The options of a script's commands, some of them with alternatives, and what is not certain in it."""

    options: dict[str, Option]
    script: Script
    found: Found

    @property
    def values(self) -> dict[str, Any]:
        """Every option with its value."""
        return {name: option.value for name, option in self.options.items()}

    def draft(self, values: Mapping[str, Any]) -> Draft:
        """A draft of values of these options."""
        options = self.options
        draft = Draft(values, lambda names: {name: options[name].line for name in names if name in options}, typed=True)
        draft.used.update({PROGRAM, COMMAND, LAUNCHER})
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            settings = self.script.variables.get(name, "").lower().strip("\"'").split(",")
            for kind in {_ALLOCATORS[setting] for setting in settings if setting in _ALLOCATORS}:
                draft.put(("memory", "allocator"), kind, f"{name} of the script")
                draft.carried.update([name] if len(settings) == 1 else [])
        return draft

    def tell(self, draft: Draft) -> None:
        """Remarks on what is not certain."""
        for name, line in self.found.doubled:
            draft.remark(f"--{name} is given several times with different values; the last one counts", line)
        tell_outside(draft, self.script, self.found)


def options_of_script(text: str, pattern: re.Pattern[str], fewest: int) -> Started | None:
    """The options of a script's commands, or of those that a YAML file quotes; None where none has options that match.

    Raises:
        ForeignFormatError: the script is cut off in a quote, or grows beyond bounds.
    """
    quoted = commands_in(text)
    inside = _options_of(quoted, pattern, fewest) if quoted else None
    if inside is not None and _LISTED_WORDS.search(text):
        return inside
    plain = _options_of(text, pattern, fewest)
    if inside is None is plain and (unread := script_of(text).unread):
        line, words = unread[0]
        raise ForeignFormatError(words, line, help="give the script that runs it")
    return max((inside, plain), key=lambda started: _num_fitting(started, pattern))


def _num_fitting(started: Started | None, pattern: re.Pattern[str]) -> int:
    return 0 if started is None else sum(_fits(pattern, name) for name in started.options) + 1


def _options_of(text: str, pattern: re.Pattern[str], fewest: int) -> Started | None:
    """The options of the commands of a script."""
    script = script_of(text)
    _leave_out_shown(script, text, pattern)
    reader = Reader(script)
    found = _found(script, reader, pattern, fewest)
    if found is None:
        return None
    if not LAUNCHER_SIZE & found.options.keys():
        _take_launcher(script, reader, found)
    return Started(_placed(found.settings(script.outside), text), script, found)


def _leave_out_shown(script: Script, text: str, pattern: re.Pattern[str]) -> None:
    """Take away commands that a script only prints; one in a variable that is used elsewhere may be started there.

    Raises:
        ForeignFormatError: they are all that could be read.
    """
    lines = text.split("\n")
    shown = [command for command in script.commands if is_only_shown(script, command, lines)]
    taken = {id(command) for command in shown}
    script.commands[:] = [command for command in script.commands if id(command) not in taken]
    reader = Reader(script)
    printed = {line for command in shown for line in range(command[0].line, max(word.line for word in command) + 1)}
    rest = "\n".join(line for number, line in enumerate(lines, 1) if number not in printed)
    named = {*_EXPORTED.findall(text), *_USED.findall(rest)}
    values = [script.choices.shown(script.variables[name]) for name in named & script.variables.keys()]
    for command in () if any(".py" in value for value in values) else shown:
        options = reader.read(command).options
        is_launch = {PROGRAM, COMMAND}.intersection(options) and any(_fits(pattern, name) for name in options)
        if is_launch and not any(_fits(pattern, name) for one in script.commands for name in reader.read(one).options):
            help_text = "give the script that starts it"
            raise ForeignFormatError("the command is only printed, and nothing starts it", command[0].line, help_text)


def _placed(options: dict[str, Option], text: str) -> dict[str, Option]:
    """Options with the line on which the text names them, where that is one line alone.

    A variable or an array hands its words on without their lines.
    """
    named: dict[str, set[int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.lstrip().startswith("#"):
            for name in _NAMED.findall(line):
                named.setdefault(name.replace("-", "_"), set()).add(number)
    alone = {name: min(lines) for name, lines in named.items() if len(lines) == 1}
    return {
        name: replace(option, line=alone[name])
        if name in alone and not isinstance(option.value, Alternatives)
        else option
        for name, option in options.items()
    }


def _take_launcher(script: Script, reader: Reader, found: Found) -> None:
    """How many processes a launcher starts that the script keeps in a variable or in another command."""
    texts = [(value, script.places[name]) for name, value in script.variables.items() if _SIZED.search(value)]
    lists = [[Word(text, line) for text in cut_words(value)] for value, line in texts]
    lists += [command for command in script.commands if any(_SIZED.search(word.text) for word in command)]
    for words in lists:
        for name, possible in reader.read(words).options.items():
            if name in LAUNCHER_SIZE:
                found.options[name] = distinct([*found.options.get(name, []), *possible])


def tell_outside(draft: Draft, script: Script, found: Found) -> None:
    """Remarks on files and words from outside that may change what the script says."""
    if script.sourced:
        names = ", ".join(name[:60] for name, _ in script.sourced[:MAX_LISTED])
        draft.remark(f"the script reads in {names}, which is not read", script.sourced[0][1])
    for line in sorted({command[0].line for command in _ended_above(script)})[:MAX_LISTED]:
        message = (
            "the line begins with an option and is of no command: a comment or a missing \\ ended the one above it"
        )
        draft.remark(message, line)
    for line, words in script.unread:
        draft.remark(words, line)
    if found.outside:
        words = ", ".join(script.choices.shown(word) for word in sorted(found.outside)[:MAX_LISTED])
        draft.remark(f"further options may come from outside the script: {words}", min(found.outside.values()))


def _found(script: Script, reader: Reader, pattern: re.Pattern[str], fewest: int) -> Found | None:
    """Options of the commands with the most different ones that match; of all words where none has enough of them.

    Several commands with about as many are alternatives: nothing tells which one is meant.
    """
    apart = {id(command) for command in _ended_above(script)}
    read = [reader.read(command) for command in script.commands]
    scores = [
        len({name for name in found.options if _fits(pattern, name)}) if id(command) not in apart else 0
        for command, found in zip(script.commands, read, strict=True)
    ]
    best = max(scores, default=0)
    if best == 0:
        # A file of arguments that another script reads in.
        words = [
            Word(text, script.places[name])
            for name, value in script.variables.items()
            if any(holds_option(one.text) for one in script.choices.flat(value)[0])
            for text in [*cut_words(value), _END]
        ]
        found = reader.read(words)
        found.is_list = True
        return found if not script.failed and any(_fits(pattern, name) for name in found.options) else None
    first = script.commands[scores.index(best)][0].text
    if first.startswith("--"):
        return reader.read(word for command in script.commands if command[0].text.startswith("--") for word in command)
    if best < fewest:
        kept = [command for command in script.commands if id(command) not in apart]
        return reader.read(word for command in kept for word in [*command, Word(_END, command[-1].line)])
    near = [k for k, score in enumerate(scores) if score >= max(fewest, (best + 1) // 2)]
    # A command that is only shown lacks its launcher.
    picked = [read[k] for k in near if script.commands[k][0].text not in SHOWS] or [read[k] for k in near]
    return picked[0] if len(picked) == 1 else either(picked, script.choices.event())


def _ended_above(script: Script) -> Iterator[list[Word]]:
    """Lines of options below a command with options, which the shell takes for commands; other files list arguments."""
    follows = False
    for command in script.commands:
        if not command[0].text.startswith("--"):
            follows = any(word.text.startswith("--") for word in command)
        elif follows:
            yield command


def _fits(pattern: re.Pattern[str], name: str) -> bool:
    return any(pattern.match(f"--{word} ") for word in (name, name.replace("_", "-")))
