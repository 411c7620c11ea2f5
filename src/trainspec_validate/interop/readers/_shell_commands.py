"""Follows a shell script from assignment to command; nothing of it is ever run.

What a branch, a loop or the caller decides becomes a choice between every value that it may have (`_shell_choices`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers import _shell_tree as tree
from trainspec_validate.interop.readers._shell_choices import OUTSIDE, Choices, Value, has_marks
from trainspec_validate.interop.readers._shell_conditions import decide, evaluate, matches
from trainspec_validate.interop.readers._shell_words import Piece, Token, cut_words

MAX_VALUE = 64 * 1024
MAX_SUBSTITUTED = 8 * 1024 * 1024
MAX_STEPS = 200_000
MAX_ITEMS = 256
"""Items of a loop that are followed one by one."""
_MAX_CALLS = 16
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNS = re.compile(rf"({_NAME})(\+?)=")
_IN_BRACES = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
_IN_BRACKETS = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
_SUBSTITUTION = re.compile(
    rf"\$\(\((?P<sum>{_IN_BRACKETS})\)\)"
    rf"|\$(?P<bare>{_NAME}|[0-9])"
    rf"|\$\{{(?P<name>{_NAME}|[0-9])(?P<all>\[[@*]\])?(?:(?P<empty>:)?(?P<kind>[-=+])(?P<default>{_IN_BRACES}))?\}}"
)
_IN_SUM = re.compile(rf"{_SUBSTITUTION.pattern}|(?<![$A-Za-z0-9_{{#])(?P<plain>{_NAME})")
"""Inside `$(( ))` a variable needs no dollar sign."""
_MAY_BE_EMPTY = re.compile(rf"(?:\$(?:{_NAME}|[0-9])|\$\{{(?:{_NAME}|[0-9])\}}|\$\([^()]*\))+")
"""A text that something outside of the script decides, alone."""
_DECLARES = frozenset({"export", "local", "readonly", "declare", "typeset", "set"})
_LOCAL = frozenset({"local", "declare", "typeset"})
"""Inside of a function what they declare ends with it."""
_LEAVES = frozenset({"exit", "return"})
_READS = frozenset({"source", "."})
_ENVIRONMENT = re.compile(r"(?:^|/)(?:activate|conda\.sh|mamba\.sh|setvars\.sh|lmod\.sh|modules\.sh|init/(?:ba|z)?sh)$")
"""Files that package managers generate: they prepare paths and set no size of a job."""
_ECHOED = re.compile(r"\$\([ \t]*echo[ \t]+\"?(\$\{?[A-Za-z_]\w{0,99}\}?)\"?[ \t]*\)")
"""A word that is the value of a variable, which `echo` prints."""
_TAKES = frozenset({"read", "mapfile", "readarray", "getopts"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word after substitution, in which marks stand for choices."""

    text: str
    line: int


_Scope = dict[str, Value]


@dataclass(slots=True)
class Script:
    """What a script says: variables with their last value, and its commands."""

    commands: list[list[Word]] = field(default_factory=list)
    choices: Choices = field(default_factory=Choices)
    sourced: list[tuple[str, int]] = field(default_factory=list)
    """Files that the script reads in, with the line."""
    scopes: list[_Scope] = field(default_factory=lambda: [{}])
    functions: dict[str, tree.Body] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)
    outer: list[dict[str, Value | None]] = field(default_factory=list)
    """For every function that is being followed what its own variables hide."""
    prefixed: _Scope = field(default_factory=dict)
    """Variables that were assigned before a command, for that command alone."""
    substituted: int = 0
    steps: int = 0

    @property
    def outside(self) -> str:
        """What may set variables besides the script; a file that only prepares an environment does not."""
        names = [name[:60] for name, _ in self.sourced if not _ENVIRONMENT.search(name)]
        return f"the caller, the environment or {names[0]}, which is not read," if names else OUTSIDE

    @property
    def variables(self) -> dict[str, str]:
        """Every variable with its last value."""
        return {name: value.text for scope in (self.prefixed, *self.scopes) for name, value in scope.items()}

    @property
    def places(self) -> dict[str, int]:
        """The line on which every variable gets its last value."""
        return {name: value.line for scope in (self.prefixed, *self.scopes) for name, value in scope.items()}

    def get(self, name: str) -> Value | None:
        """The value of a variable; None where the script does not set it."""
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def keep(self, name: str) -> None:
        """A variable becomes one of the function that is being followed, where one is."""
        if self.outer:
            self.outer[-1].setdefault(name, self.get(name))

    def value(self, pieces: tuple[Piece, ...], line: int = 0) -> str:
        """A word with variables of this script replaced by their values; others stay as they are written.

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
        return "".join(parts)

    def _replaced(self, text: str, line: int) -> str:
        """A text after one pass: what a value holds that stayed open was open when it was assigned, and stays so."""
        return _SUBSTITUTION.sub(lambda found: self._replace(found, line), text) if "$" in text else text

    def _replace(self, found: re.Match[str], line: int) -> str:
        if found["sum"] is not None:
            return self._sum(found[0], found["sum"], line)
        name = found["bare"] or found["name"]
        value = self.get(name)
        if found["kind"] is None:
            return found[0] if value is None else value.text
        text = f"${name}" if value is None else value.text
        default = self._replaced(found["default"], line).strip("\"'")
        alternatives, more = self.choices.flat(text)
        texts = [way for one in alternatives for way in _ways(found, one.text, default)]
        result = self._either([*texts, f"${name}"] if more else texts, line, found[0])
        if found["kind"] == "=":
            self.scopes[-1][name] = Value(result, line)
        return result

    def _either(self, texts: list[str], line: int, fallback: str) -> str:
        return self.choices.mark([Value(text, line) for text in texts], fallback)

    def _sum(self, whole: str, text: str, line: int) -> str:
        """A sum for each of the values that its variables may have."""
        inner = _IN_SUM.sub(lambda found: self._term(found, line), text)
        values, more = self.choices.flat(inner)
        results = [(evaluate(value.text), value.line or line) for value in values]
        if more or any(result is None for result, _ in results):
            return self.choices.mark(
                [Value(str(r), at) for r, at in results if r is not None] + [Value(whole, 0)], whole
            )
        return self.choices.mark([Value(str(result), at) for result, at in results], whole)

    def _term(self, found: re.Match[str], line: int) -> str:
        """A part of a sum: the value of a bare name is a sum of its own, that of `$name` a piece of the text."""
        if found["plain"] is None:
            return self._replace(found, line)
        value = self.get(found["plain"])
        return found[0] if value is None else value.text if value.text.isdigit() else f"({value.text})"

    def unsettle(self) -> None:
        """What an unknown file may have changed: every variable may have another value from here on."""
        names = {name for scope in self.scopes for name in scope}
        for name in sorted(names - {"0", *map(str, range(1, 10))}):
            before = self.get(name)
            if before is None or name.startswith("SLURM_"):
                continue
            text = self.choices.mark([before, Value(f"${name}", 0)], f"${{{name}}}")
            self.scopes[-1][name] = Value(text, before.line)

    def branch(self, ways: Sequence[Callable[[], bool]]) -> bool:
        """Follow each of several ways on its own, and join what they assign; whether none of them goes on."""
        if len(ways) == 1:
            return ways[0]()
        changes = []
        for way in ways:
            self.scopes.append({})
            stopped = way()
            scope = self.scopes.pop()
            if not stopped:
                changes.append(scope)
        event = self.choices.event()
        for name in sorted({name for scope in changes for name in scope}):
            before = self.get(name) or Value(f"${name}", 0)
            values = [scope.get(name, before) for scope in changes]
            text = self.choices.mark(values, f"${{{name}}}", event)
            self.scopes[-1][name] = Value(text, max(value.line for value in values))
        return bool(ways) and not changes


def _ways(found: re.Match[str], text: str, default: str) -> list[str]:
    """What `${NAME-default}` and its like may become where the variable holds a text."""
    other = "" if found["kind"] == "+" else text
    if _MAY_BE_EMPTY.fullmatch(text) or (not text and not found["empty"]):  # an empty one may be unset
        return [default, other]
    is_default = (bool(text) or not found["empty"]) == (found["kind"] == "+")
    return [default if is_default else other]


def read_script(text: str, slurm: dict[str, int] | None = None) -> Script:
    r"""Assignments and commands of a script; `slurm` are sizes that its lines for Slurm ask for.

    >>> script = read_script('N=4\nARGS="--num-layers $N"\npython pretrain_gpt.py $ARGS\n')
    >>> [word.text for word in script.commands[0]]
    ['python', 'pretrain_gpt.py', '--num-layers', '4']

    Raises:
        ForeignFormatError: the script is cut off in a quote or bracket, or grows beyond bounds.
    """
    script = Script()
    for name, size in (slurm or {}).items():
        script.scopes[0][name] = Value(str(size), 0)
    _run(script, tree.tree_of(text))
    for name in [name for name in script.functions if name not in script.called]:
        script.branch([lambda name=name: _call(script, name, []), lambda: False])  # type: ignore[misc]
    return script


def _run(script: Script, body: Sequence[tree.Node]) -> bool:
    """Follow commands in order; whether the script ends among them."""
    return any(_step(script, node) for node in body)


def _step(script: Script, node: tree.Node) -> bool:
    script.steps += 1
    if script.steps > MAX_STEPS:
        raise ForeignFormatError("the script takes too many steps", help="give the launch script alone")
    match node:
        case tree.Simple():
            return _simple(script, node.tokens)
        case tree.Group():
            return _run(script, node.body)
        case tree.Function():
            script.functions[node.name] = node.body
        case tree.If():
            return _if(script, node)
        case tree.Case():
            return _case(script, node)
        case tree.Loop():
            _loop(script, node)
        case tree.Joined():
            return _joined(script, node)
    return False


def _status(script: Script, node: tree.Node) -> bool | None:
    """Whether a condition holds; None where the script does not tell."""
    if isinstance(node, tree.Joined):
        left, right = _status(script, node.left), _status(script, node.right)
        if left is None or right is None:
            known = left if right is None else right
            return known if known is not None and known is not node.on_success else None
        return (left and right) if node.on_success else (left or right)
    if not isinstance(node, tree.Simple):
        return None
    if _assigns(node):
        return True
    words = [script.value(token.pieces, token.line) for token in node.tokens if token.kind == "word"]
    return decide(words, script.choices)


def _assigns(node: tree.Simple) -> bool:
    """Whether a command does nothing but assign, with no other command in it that could fail."""
    first, *others = (token.text for token in node.tokens if token.kind == "word")
    words = others if first in {"export", "declare", "readonly", "local", "typeset"} else [first, *others]
    return bool(words) and all(_ASSIGNS.match(word) and "`" not in word and "$(" not in word for word in words)


def _holds(script: Script, condition: tree.Body) -> bool | None:
    for node in condition:
        if not isinstance(node, tree.Simple) or node.tokens[0].text not in {"[", "[[", "test"}:
            _step(script, node)
    return _status(script, condition[-1]) if condition else None


def _joined(script: Script, node: tree.Joined) -> bool:
    status = _status(script, node.left)
    stopped = _step(script, node.left)
    if stopped or (status is not None and status is not node.on_success):
        return stopped
    if status is not None:
        return _step(script, node.right)
    return script.branch([lambda: _step(script, node.right), lambda: False])


def _if(script: Script, node: tree.If) -> bool:
    ways: list[Callable[[], bool]] = []
    for condition, body in node.branches:
        holds = _holds(script, condition)
        if holds is not False:
            ways.append(lambda body=body: _run(script, body))  # type: ignore[misc]
        if holds:
            break
    else:
        ways.append(lambda: _run(script, node.otherwise))
    return script.branch(ways)


def _case(script: Script, node: tree.Case) -> bool:
    subject = script.value(node.subject.pieces, node.subject.line)
    ways: list[Callable[[], bool]] = []
    for patterns, body in node.branches:
        found = [matches(subject, script.value(token.pieces, token.line), script.choices) for token in patterns]
        if True in found or None in found:
            ways.append(lambda body=body: _run(script, body))  # type: ignore[misc]
        if True in found:
            break
    else:
        ways.append(lambda: False)
    return script.branch(ways)


def _loop(script: Script, node: tree.Loop) -> None:
    items = [item for token in node.items for item in script.value(token.pieces, token.line).split()]
    line = node.items[0].line if node.items else 0
    names = {name for name in tree.assigned(node.body) if re.fullmatch(_NAME, name)}
    sure = bool(items) and not any("$" in item or has_marks(item) for item in items)
    kept = {node.variable, *tree.appended(node.body)}
    if sure and tree.appends_alone(node.body) and len(items) <= MAX_ITEMS:
        for item in items:
            script.scopes[-1][node.variable] = Value(item, line)
            _run(script, node.body)
        return

    def once() -> bool:
        if len(items) > 1 or not sure:
            for name in names - kept:
                before = script.get(name)
                if before is not None:
                    values = [before, Value(f"${name}", 0)]
                    script.scopes[-1][name] = Value(script.choices.mark(values, f"${{{name}}}"), before.line)
        if node.variable:
            text = script.choices.mark([Value(item, line) for item in items], f"${{{node.variable}}}")
            script.scopes[-1][node.variable] = Value(text if items else f"${node.variable}", line)
        _run(script, node.condition)
        _run(script, node.body)
        return False

    script.branch([once] if sure else [once, lambda: False])


def _call(script: Script, name: str, words: list[Word]) -> bool:
    """Follow a function with its own `$1` and so on."""
    script.called.append(name)
    if script.called.count(name) > _MAX_CALLS:
        return False
    script.outer.append({str(k): script.get(str(k)) for k in range(1, 10)})
    for k in range(1, 10):
        script.scopes[-1][str(k)] = Value(words[k].text if k < len(words) else f"${k}", words[0].line if words else 0)
    _run(script, script.functions[name])
    for key, value in script.outer.pop().items():
        script.scopes[-1][key] = value or Value(f"${key}", 0)
    return False


def _simple(script: Script, tokens: tuple[Token, ...]) -> bool:
    """One command; whether the script ends with it."""
    command: list[Word] = []
    position = 0
    script.scopes.append({})
    while position < len(tokens) and (tokens[position].kind != "word" or _assignment(tokens[position])):
        position = _take(script, command, tokens, position)
    assigned = script.scopes.pop()
    while position < len(tokens):
        position = _take(script, command, tokens, position)
    if not command:
        script.scopes[-1].update(assigned)
        return False
    script.prefixed.update(assigned)
    return _command(script, command, tokens, assigned)


def _command(script: Script, command: list[Word], tokens: tuple[Token, ...], assigned: _Scope) -> bool:
    """A command, for which alone some variables were assigned before its name; whether the script ends with it."""
    first = command[0].text
    if first in script.functions:
        before = {name: script.get(name) or Value(f"${name}", value.line) for name, value in assigned.items()}
        script.scopes[-1].update(assigned)
        _call(script, first, command)
        script.scopes[-1].update({name: value for name, value in before.items() if script.get(name) is assigned[name]})
        return False
    if first in _READS and len(command) > 1:
        script.sourced.append((_shown_file(script, command[1].text, tokens), command[0].line))
        if not _ENVIRONMENT.search(command[1].text):
            script.unsettle()
    else:
        _built_in(script, command)
    script.commands.append(command)
    return first in _LEAVES


def _built_in(script: Script, command: list[Word]) -> None:
    """What a command of the shell itself does to variables; nothing for any other."""
    first = command[0].text
    names = [word for word in command[1:] if re.fullmatch(_NAME, word.text)]
    if first in _LOCAL:
        for word in names:
            script.keep(word.text)
            script.scopes[-1][word.text] = Value("", word.line)
    elif first in _TAKES:
        script.scopes[-1].update({word.text: Value(f"${word.text}", word.line) for word in names})
    elif first == "shift":
        for k in range(1, 10):
            script.scopes[-1][str(k)] = Value(f"${k}", command[0].line)
    elif first == "unset":
        script.scopes[-1].update({word.text: Value("", word.line) for word in command[1:]})


def _shown_file(script: Script, value: str, tokens: tuple[Token, ...]) -> str:
    """The file that a command reads in, as the script writes it where a command of its own makes the name."""
    shown = script.choices.shown(value)
    written = [token.text for token in tokens if token.kind == "word"]
    place = next((k for k, word in enumerate(written[:-1]) if word in _READS), None)
    return shown if place is None or "$(" not in shown else written[place + 1]


def _assignment(token: Token) -> re.Match[str] | None:
    """The name of the variable that a word assigns, where it does."""
    first = token.pieces[0]
    return None if first.quoted or first.plain else _ASSIGNS.match(first.text)


def _take(script: Script, command: list[Word], tokens: tuple[Token, ...], position: int) -> int:
    """One word: an assignment where a command may begin, otherwise a part of the command; the next position."""
    token = tokens[position]
    if token.kind != "word":
        return position + 1
    first, assigns = token.pieces[0], _assignment(token)
    starts = not command or command[0].text in _DECLARES
    if not starts or not assigns:
        is_argument = bool(command) and command[0].text in script.functions
        command.extend(_words(script, token, keep_quoted=is_argument))
        return position + 1
    rest = (Piece(first.text[assigns.end() :], plain=False, quoted=False), *token.pieces[1:])
    value, after = script.value(rest, token.line), position + 1
    is_array = not value and len(token.pieces) == 1 and after < len(tokens) and tokens[after].kind == "open"
    if is_array:
        value, after = _array(script, tokens, after)
    if assigns[2]:
        before = script.get(assigns[1])
        kept = before.text if before else "" if is_array else f"${assigns[1]}"  # no caller hands over an array
        value = f"{kept} {value}" if is_array else f"{kept}{value}"
    if len(value) > MAX_VALUE:
        raise ForeignFormatError("a variable grows beyond bounds", token.line, "write the values out")
    if command and command[0].text in _LOCAL:
        script.keep(assigns[1])
    script.scopes[-1][assigns[1]] = Value(value, token.line)
    return after


def _words(script: Script, token: Token, keep_quoted: bool) -> Iterator[Word]:
    """The words that one becomes: substituted values and, but for arguments of functions, quoted ones are cut."""
    echoed = _ECHOED.fullmatch(token.text)
    pieces = (Piece(echoed[1], plain=False, quoted=False),) if echoed else token.pieces
    value = script.value(pieces, token.line)
    if keep_quoted and all(piece.quoted for piece in token.pieces):
        yield Word(value, token.line)
        return
    cut = "$" in token.text or value.lstrip().startswith("--") or ".py " in value
    for text in cut_words(value) if cut else [value]:
        whole = cut and len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        yield Word(text[1:-1] if whole else text, token.line)


def _array(script: Script, tokens: tuple[Token, ...], position: int) -> tuple[str, int]:
    """The items of `NAME=( ... )`, in one text, and the position after."""
    items, size = [], 0
    position += 1
    while position < len(tokens) and tokens[position].kind != "close":
        token = tokens[position]
        if token.kind == "word":
            items.append(script.value(token.pieces, token.line))
            size += len(items[-1]) + 1
            if size > MAX_VALUE:
                raise ForeignFormatError("an array grows beyond bounds", token.line, "write the values out")
        position += 1
    return " ".join(items), position + 1
