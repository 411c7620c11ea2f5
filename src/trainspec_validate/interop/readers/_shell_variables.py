"""Holds the variables of a shell script with their values, and replaces them in words.

A value is that of bash, or it stays open: an expansion that is not understood exactly stays as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers import _shell_tree as tree
from trainspec_validate.interop.readers._shell_choices import OUTSIDE, Choices, Unset, Value, has_marks
from trainspec_validate.interop.readers._shell_conditions import evaluate
from trainspec_validate.interop.readers._shell_words import Piece, cut_words, has_joints, without_joints
from trainspec_validate.system.digits import is_digits

MAX_VALUE = 64 * 1024
MAX_SUBSTITUTED = 8 * 1024 * 1024
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_IN_BRACES = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
_IN_BRACKETS = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_SUBSTITUTION = re.compile(
    rf"\$\(\((?P<sum>{_IN_BRACKETS})\)\)"
    rf"|\$(?P<bare>{NAME}|[0-9])"
    rf"|\$(?:(?P<words>[@*])|\{{(?P<braced>[@*])(?P<part>[^{{}}]*)\}})"
    rf"|\$\{{(?P<name>{NAME}|[0-9])(?P<all>\[[@*]\])?(?:(?P<empty>:)?(?P<kind>[-=+?])(?P<default>{_IN_BRACES}))?\}}"
    rf"|\$\{{!(?P<reference>{NAME}|[0-9])(?:[:/#%^,@+=?-]{_IN_BRACES})?\}}"
    rf"|\$\{{[#!]?{NAME}\[(?P<entry>[^\]@*]+)\][^{{}}]*\}}"
    rf"|\$\{{(?P<list>{NAME})(?:\[[@*]\])?[:/#%^,@][^{{}}]*\}}"
)
_IN_SUM = re.compile(rf"{_SUBSTITUTION.pattern}|(?<![$A-Za-z0-9_{{#])(?P<plain>{NAME})")
"""Inside `$(( ))` a variable needs no dollar sign."""
_MAY_BE_EMPTY = re.compile(rf"(?:\$(?:{NAME}|[0-9])|\$\{{(?:{NAME}|[0-9])\}}|\$\([^()]*\))+")
"""A text that something outside of the script decides, alone."""
_SET_IN_SUM = re.compile(
    rf"(?:\+\+|--)[ \t]*(?P<after>{NAME})"
    rf"|(?P<before>{NAME})[ \t]*(?:\[[^\]]*\])?[ \t]*(?:\+\+|--|(?:<<|>>|[-+*/%&|^])?=(?!=))"
)
_SETS_SOMETHING = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)|<<=|>>=")
_ENVIRONMENT = re.compile(r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|setvars\.sh|lmod\.sh|modules\.sh|init/(?:ba|z)?sh)$")
"""Files that package managers generate: they prepare paths and set no size of a job."""
_OF_THE_SHELL = frozenset(
    {
        *("RANDOM", "SRANDOM", "SECONDS", "LINENO", "EPOCHSECONDS", "EPOCHREALTIME", "UID", "EUID", "PPID"),
        *("GROUPS", "DIRSTACK", "FUNCNAME", "BASHPID", "BASHOPTS", "BASH_ARGC", "BASH_ARGV", "BASH_COMMAND"),
        *("BASH_LINENO", "BASH_REMATCH", "BASH_SOURCE", "BASH_SUBSHELL", "SHELLOPTS", "PIPESTATUS", "OPTIND"),
        *("OPTARG", "COMP_WORDBREAKS", "HISTCMD", "PWD", "OLDPWD", "REPLY", "MAPFILE", "COPROC", "_"),
    }
)
"""Variables that the shell itself sets at any time."""
_PART = re.compile(r":([1-9][0-9]{0,2})(?::([0-9]{1,3}))?")
_CASE = re.compile(rf"\$\{{(?P<name>{NAME})(?P<all>\[[@*]\])?(?P<case>,,|\^\^|@[LU])\}}")
_TARGET = re.compile(rf"(?:{NAME}|[0-9]|[@*])(?:\[[^\]]+\])?")
_STRICT = re.compile(r"-[A-Za-z]*u[A-Za-z]*|nounset")
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DEFAULT_SPLITTING = frozenset({" \t\n", "$ \\t\\n", "$IFS", "${IFS}"})
_BLANKS = re.compile(r"\$?(?:[ \t\n]|\\[tn])*")
ALL_WORDS = "@"
"""Under which the words of the script or of a function are kept."""
POSITIONAL = (*map(str, range(1, 10)), ALL_WORDS)


@dataclass(frozen=True, slots=True)
class Word:
    """A word after substitution, in which marks represent choices."""

    text: str
    line: int


Scope = dict[str, Value | None]
"""Values by name; under `NAME[0]` the first entry of an array, None where the variable is none."""


@dataclass(slots=True)
class Frame:
    """A line, a loop, a function or a subshell that is followed, and what was assigned where it was left early."""

    kind: Literal["line", "loop", "function", "shell"]
    depth: int
    left: list[Scope] = field(default_factory=list)


def first_of(name: str) -> str:
    """Under which the first entry of an array is kept."""
    return f"{name}[0]"


def unknown_words(of: str = "") -> str:
    """A word that is any number of words which nothing is known of.

    >>> unknown_words("launch")
    '$(arguments-of-launch)'
    """
    return f"$(arguments-of-{of})" if of else "$(arguments)"


def is_settled(text: str) -> bool:
    """Whether a text is known: nothing in it depends on a choice or on the outside."""
    return not has_marks(text) and "$" not in text and "`" not in text


@dataclass(slots=True)
class Script:
    """Content of a script: variables with their last value, and its commands."""

    commands: list[list[Word]] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    sourced: list[tuple[str, int]] = field(default_factory=list)
    """Files that the script reads in, with the line."""
    unread: list[tuple[int, str]] = field(default_factory=list)
    """Lines of documents that start a program and are not read, each with the reason."""
    scopes: list[Scope] = field(default_factory=lambda: [{}])
    functions: dict[str, tuple[tree.Body | None, ...]] = field(default_factory=dict)
    """Definitions that each function may have; None where it may not be defined."""
    called: list[str] = field(default_factory=list)
    outer: list[Scope] = field(default_factory=list)
    """For every function that is being followed what its own variables hide."""
    prefixed: Scope = field(default_factory=dict)
    """Variables that were assigned before a command, for that command alone."""
    frames: list[Frame] = field(default_factory=list)
    opaque: set[str] = field(default_factory=set)
    """Variables whose value is never known, such as associative arrays and references."""
    references: set[str] = field(default_factory=set)
    """References to variables that are not known: an assignment to one may change any."""
    fixed: set[str] = field(default_factory=set)
    """Variables that may be read-only."""
    shaped: set[str] = field(default_factory=set)
    """Variables that may be integers, or of upper or lower case: a value may change when it is assigned."""
    spaced: set[str] = field(default_factory=set)
    """Arrays that may have entries with blanks in them."""
    options: set[str] = field(default_factory=set)
    """Options of the shell that it turns on."""
    defined: dict[str, tree.Body] = field(default_factory=dict)
    """Every function of the script, also where it is defined later."""
    declared: list[Callable[[], None]] = field(default_factory=list)
    """Variables that the command that is being read declares, once all of its words are read."""
    loops: dict[int, set[str]] = field(default_factory=dict)
    """Values that each loop assigns, as far as they were seen."""
    renumbered: bool = False
    """Whether `$1` and its like are others than those of the caller of the script."""
    failed: bool = False
    """Whether the script ends with an error in the way that is being followed."""
    substituted: int = 0
    steps: int = 0

    @property
    def outside(self) -> str:
        """Files that may set variables besides the script; a file that only prepares an environment does not."""
        names = [name[:60] for name, _ in self.sourced if not prepares_alone(name)]
        return f"the caller, the environment or {names[0]}, which is not read," if names else OUTSIDE

    @property
    def is_inside(self) -> bool:
        """Whether what is being followed is part of a branch, a loop, a function or a subshell."""
        return len(self.scopes) > 1 + any(frame.kind == "line" for frame in self.frames)

    @property
    def _last(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for scope in (self.prefixed, *self.scopes):
            found.update({name: value for name, value in scope.items() if value is not None and "[" not in name})
        found.pop(ALL_WORDS, None)
        return found

    @property
    def variables(self) -> dict[str, str]:
        """Every variable with its last value."""
        return {name: value.text for name, value in self._last.items()}

    @property
    def places(self) -> dict[str, int]:
        """The line on which every variable gets its last value."""
        return {name: value.line for name, value in self._last.items()}

    def get(self, name: str) -> Value | None:
        """The value of a variable, all entries of an array; None where the script does not set it."""
        if name in self.opaque or name in _OF_THE_SHELL:
            return Value(f"${name}", 0)
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def scalar(self, name: str) -> Value | None:
        """Value of `$NAME`: of an array the first entry."""
        return self.get(name) if name in self.opaque else self.get(first_of(name)) or self.get(name)

    def assign(self, name: str, value: Value) -> None:
        """`NAME=value`."""
        shaped = name in self.shaped and not _NUMBER.fullmatch(value.text)
        if name in self.references:
            self.unsettle()
        if name in self.fixed or shaped:
            value = Value(f"${name}", value.line)
        first, whole = self.get(first_of(name)), self.get(name)
        if first is not None:
            self.scopes[-1][first_of(name)] = value
            if whole is None or whole.text != first.text:
                value = Value(f"${{{name}[@]}}", value.line)
        self.scopes[-1][name] = value

    def assign_list(self, name: str, value: Value, first: str) -> None:
        """`NAME=( ... )` with its first entry."""
        is_open = name in self.shaped or name in self.fixed
        if name in self.references:
            self.unsettle()
        self.scopes[-1][name] = Value(f"${{{name}[@]}}", value.line) if is_open else value
        self.scopes[-1][first_of(name)] = Value(f"${name}" if is_open else first, value.line)

    def open(self, name: str, line: int = 0) -> None:
        """A variable gets a value that is not known."""
        if name in self.references:
            self.unsettle()
        self.scopes[-1][name] = Value(f"${name}", line)
        if self.get(first_of(name)) is not None:
            self.scopes[-1][first_of(name)] = Value(f"${name}", line)
        self.spaced.add(name)

    def unset(self, name: str, line: int) -> None:
        """`unset NAME`."""
        self.assign(name, Value("", line))
        if name not in self.fixed:
            self.scopes[-1][name] = Unset("", line)
            self.scopes[-1][first_of(name)] = None

    def keep(self, name: str) -> None:
        """A variable becomes one of the function that is being followed, where one is."""
        if self.outer:
            for key in (name, first_of(name)):
                self.outer[-1].setdefault(key, next((s[key] for s in reversed(self.scopes) if key in s), None))

    def splits(self, text: str) -> bool:
        """Whether the shell cuts a text at its blanks, and nowhere else."""
        value = self.get("IFS")
        if value is None or value.text in _DEFAULT_SPLITTING:
            return True
        signs = "" if _BLANKS.fullmatch(value.text) else value.text
        return is_settled(signs) and not any(sign.isspace() or sign in signs for sign in text)

    def value(self, pieces: tuple[Piece, ...], line: int = 0, *, keep_items: bool = False) -> str:
        """A word with variables of this script replaced by their values; others stay as they are written.

        With `keep_items` an item of an array with blanks inside is distinguished from several items (`cut_words`).

        Raises:
            ForeignFormatError: the values grow beyond bounds.
        """
        parts = []
        for piece in pieces:
            text = piece.text
            if not piece.plain:
                text = self._replaced(text, line)
            self.substituted += len(text)
            if len(text) > MAX_VALUE or self.substituted > MAX_SUBSTITUTED:
                raise ForeignFormatError("the variables of the script grow beyond bounds", help="write the values out")
            parts.append(text)
        value = "".join(parts)
        return value if keep_items or not self.spaced else self._without_joints(value)

    def _without_joints(self, text: str) -> str:
        """A text in which the blanks inside of items are like any other."""
        if has_marks(text):
            texts, _ = self.choices.flat(text)
            if any(has_joints(one.text) for one in texts):
                known = [Value(without_joints(one.text), one.line) for one in texts]
                return self.choices.mark([*known, Value(unknown_words(), 0)], unknown_words())
        return without_joints(text)

    def _replaced(self, text: str, line: int) -> str:
        """A text after one pass: what a value holds that stayed open was open when it was assigned, and stays so."""
        return _SUBSTITUTION.sub(lambda found: self._replace(found, line), text) if "$" in text else text

    def _replace(self, found: re.Match[str], line: int) -> str:
        if found["sum"] is not None:
            return self._sum(found[0], found["sum"], line)
        if found["reference"]:
            self._refer(found["reference"])
            return found[0]
        if found["entry"]:
            self.open_in_sum(found["entry"])
            return found[0]
        if found["words"] or found["braced"]:
            return self._all_words(found)
        if found["list"]:
            return self._cut_list(found, line)
        name = found["bare"] or found["name"]
        value = self.get(name) if found["all"] else self.scalar(name)
        if value is not None and found["all"] == "[*]" and not self.splits(" "):
            value = Value(found[0], line)  # joined with another character
        self._fails(found["kind"], found["empty"], None if found["all"] else value)
        if found["kind"] is None:
            return found[0] if value is None else value.text
        text = f"${name}" if value is None else value.text
        if found["kind"] == "?":
            return text
        default = self._replaced(found["default"], line).strip("\"'")
        alternatives, more = self.choices.flat(text)
        texts = [way for one in alternatives for way in _ways(found, one.text, default)]
        result = self._either([*texts, f"${name}"] if more else texts, line, found[0])
        if found["kind"] == "=":
            self.assign(name, Value(result, line))
            return result if name not in self.fixed | self.shaped else f"${name}"
        return result

    def _fails(self, kind: str | None, empty: str | None, value: Value | None) -> None:
        """End the script where it certainly asks for a variable that is not set (`set -u`, `${NAME:?}`)."""
        is_unset = isinstance(value, Unset)
        strict = any(map(_STRICT.fullmatch, self.options)) and not any(option[:1] == "+" for option in self.options)
        asked = kind == "?" and (is_unset or (bool(empty) and value is not None and not value.text))
        self.failed = self.failed or asked or (kind is None and is_unset and strict)

    def _refer(self, name: str) -> None:
        """`${!NAME}`, an error where the variable holds no name: bash goes on behind the line."""
        value = self.scalar(name)
        if value is None or not _TARGET.fullmatch(value.text):
            self.leave("line")

    def _all_words(self, found: re.Match[str]) -> str:
        """`$@`, `$*` or a part of them: the words that the script or the function that is followed is called with."""
        value, part = self.get(ALL_WORDS), found["part"] or ""
        joined = (found["words"] or found["braced"]) == "*"
        if value is None:
            return found[0]
        if joined and not self.splits(" "):
            return unknown_words()  # joined with another character
        if not part:
            return value.text
        exact = is_settled(value.text) and ALL_WORDS not in self.spaced
        if exact and (cut := _PART.fullmatch(part)):
            first = int(cut[1]) - 1
            return " ".join(value.text.split()[first : first + int(cut[2]) if cut[2] else None])
        return found[0] if value.text == "$@" else unknown_words()

    def _cut_list(self, found: re.Match[str], line: int) -> str:
        """A part of a list of options, or the list after a replacement: its options with open values, or none."""
        value = self.get(found["list"])
        if value is None:
            return found[0]
        if (case := _CASE.fullmatch(found[0])) and (cased := self._cased(value, case, line)) is not None:
            return cased
        if "--" not in value.text and not has_marks(value.text):
            return found[0]
        texts, _ = self.choices.flat(value.text)
        words = [word for text in texts for word in cut_words(text.text)]
        if not any(word.startswith("--") for word in words):
            return found[0]
        kept = [word if word.startswith("--") and "=" not in word else found[0] for word in words]
        others = [" ".join(kept)] if any(word.startswith("--") for word in kept) else []
        return self._either([*others, unknown_words(f"{found['list']}-changed")], value.line, found[0])

    def _cased(self, value: Value, found: re.Match[str], line: int) -> str | None:
        """A text in lower or upper case, for each of the values that it may have; None where one is open."""
        value = value if found["all"] else self.scalar(found["name"]) or value
        texts, more = self.choices.flat(value.text)
        if more or not all(is_settled(one.text) and one.text.isascii() for one in texts):
            return None
        change = str.lower if found["case"] in {",,", "@L"} else str.upper
        return self._either([change(one.text) for one in texts], line, found[0])

    def _either(self, texts: list[str], line: int, fallback: str) -> str:
        return self.choices.mark([Value(text, line) for text in texts], fallback)

    def _sum(self, whole: str, text: str, line: int) -> str:
        """A sum for each of the values that its variables may have."""
        inner = _IN_SUM.sub(lambda found: self._term(found, line), text)
        if self.open_in_sum(text, inner):
            return whole
        values, more = self.choices.flat(inner)
        results = [(evaluate(value.text), value.line or line) for value in values]
        if more or any(result is None for result, _ in results):
            return self.choices.mark(
                [Value(str(r), at) for r, at in results if r is not None] + [Value(whole, 0)], whole
            )
        return self.choices.mark([Value(str(result), at) for result, at in results], whole)

    def open_in_sum(self, text: str, inner: str | None = None) -> bool:
        """Open what a sum assigns; whether it assigns anything."""
        if inner is None:
            inner = self._replaced(text, 0)
        if not _SETS_SOMETHING.search(text) and not (is_settled(inner) and _SETS_SOMETHING.search(inner)):
            return False
        names = {found["after"] or found["before"] for found in _SET_IN_SUM.finditer(text)}
        for name in sorted(names):
            self.open(name)
        if (re.search(r"\$(?!\(\()", text) and not names) or _SETS_SOMETHING.search(_SET_IN_SUM.sub("", text)):
            self.unsettle()
        return True

    def _term(self, found: re.Match[str], line: int) -> str:
        """A part of a sum: the value of a bare name is a sum of its own, that of `$name` a piece of the text."""
        if found["plain"] is None:
            return self._replace(found, line)
        value = self.scalar(found["plain"])
        return found[0] if value is None else value.text if is_digits(value.text) else f"({value.text})"

    def unsettle(self) -> None:
        """State after an unknown file: every variable may have another value from here on."""
        names = {name for scope in self.scopes for name in scope}
        for name in sorted(names - {"0", *POSITIONAL}):
            before = self.get(name)
            if before is None or name.startswith("SLURM_"):
                continue
            text = self.choices.mark([before, Value(f"${name}", 0)], f"${{{name}}}")
            self.scopes[-1][name] = Value(text, before.line)

    def follow(self, kind: Literal["line", "loop", "function", "shell"], run: Callable[[], bool]) -> bool:
        """Follow a loop, a function or a subshell to its end; whether the script ends in it on every way."""
        frame = Frame(kind, len(self.scopes))
        self.frames.append(frame)
        self.scopes.append({})
        functions = dict(self.functions)
        stopped = run()
        scope = self.scopes.pop()
        self.frames.pop()
        if kind == "shell":
            self.functions = functions
            self.failed = False
            return False
        changes = frame.left if stopped else [*frame.left, scope]
        self.join(changes)
        self.failed = self.failed and not changes
        return not changes

    def leave(self, kind: Literal["line", "loop", "function"], every: bool = False) -> bool:
        """`break`, `continue` or `return`: what was assigned counts where the loop or the function ends."""
        found = False
        for frame in reversed(self.frames):
            if frame.kind == kind:
                merged: Scope = {}
                for scope in self.scopes[frame.depth :]:
                    merged.update(scope)
                frame.left.append(merged)
                found = True
                if not every:
                    break
            elif frame.kind == "shell" or (frame.kind == "function" and kind != "line"):
                return found or frame.kind == "shell"
        return found

    def branch(self, ways: Sequence[Callable[[], bool]]) -> bool:
        """Follow each of several ways on its own, and join what they assign; whether none of them continues."""
        if len(ways) == 1:
            return ways[0]()
        changes, ended = [], True
        for way in ways:
            self.scopes.append({})
            stopped = way()
            scope = self.scopes.pop()
            if not stopped:
                changes.append(scope)
            ended, self.failed = ended and self.failed, False
        self.join(changes)
        self.failed = ended and bool(ways) and not changes
        return bool(ways) and not changes

    def join(self, changes: Sequence[Scope]) -> None:
        """Values that several ways assign become a choice between them."""
        if len(changes) == 1:
            self.scopes[-1].update(changes[0])
            return
        event = self.choices.event()
        for name in sorted({name for scope in changes for name in scope}):
            found = [self._after(scope, name) for scope in changes]
            if all(value is None for value in found):
                self.scopes[-1][name] = None
                continue
            scalar = name.removesuffix("[0]")
            values = [
                value or self._after(scope, scalar) or Value(f"${scalar}", 0)
                for value, scope in zip(found, changes, strict=True)
            ]
            text = self.choices.mark(values, f"${{{scalar}}}", event)
            self.scopes[-1][name] = Value(text, max(value.line for value in values))

    def _after(self, scope: Scope, name: str) -> Value | None:
        return scope[name] if name in scope else self.get(name)


def prepares_alone(name: str) -> bool:
    """Whether a file that is read in only prepares paths, as those of package managers do."""
    return bool(_ENVIRONMENT.search(name))


def changed_names(scopes: Iterable[Scope]) -> set[str]:
    """Names of variables that were assigned."""
    return {name.removesuffix("[0]") for scope in scopes for name in scope}


def _ways(found: re.Match[str], text: str, default: str) -> list[str]:
    """What `${NAME-default}` and its like may become where the variable holds a text."""
    other = "" if found["kind"] == "+" else text
    if _MAY_BE_EMPTY.fullmatch(text) or (not text and not found["empty"]):  # an empty one may be unset
        return [default, other]
    is_default = (bool(text) or not found["empty"]) == (found["kind"] == "+")
    return [default if is_default else other]
