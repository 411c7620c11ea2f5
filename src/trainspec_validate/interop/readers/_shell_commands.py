"""The only place that finds the commands of a shell script, with the variables that the script itself assigns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._shell_words import Piece, Token, tokens

MAX_VALUE = 64 * 1024
MAX_SUBSTITUTED = 8 * 1024 * 1024
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_ASSIGNS = re.compile(rf"({_NAME})(\+?)=")
_SUBSTITUTION = re.compile(
    rf"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)"
    rf"|\$(?P<bare>{_NAME})"
    rf"|\$\{{(?P<name>{_NAME}|[0-9])(?P<all>\[[@*]\])?(?::?-(?P<default>[^{{}}]*))?\}}"
)
_DECLARES = frozenset({"export", "local", "readonly", "declare", "typeset", "set"})
_CONDITIONS = frozenset({"if", "elif", "else", "case", "for", "while"})
_SUM_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Word:
    """A word after substitution."""

    text: str
    line: int


@dataclass(slots=True)
class Script:
    """What a script says: variables with their last value, and its commands."""

    variables: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """Lines on which variables get their last value."""
    commands: list[list[Word]] = field(default_factory=list)
    conditions: list[int] = field(default_factory=list)
    """Lines of branches and loops, which are all read once, in order."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Values that were taken from `${NAME:-value}`."""
    substituted: int = 0

    def value(self, pieces: tuple[Piece, ...]) -> str:
        """A word with variables of this script replaced by their values; others stay as they are written.

        Raises:
            ForeignFormatError: the values grow beyond bounds.
        """
        parts = []
        for piece in pieces:
            text = piece.text
            if not piece.plain and "$" in text:
                text = _SUBSTITUTION.sub(self._replace, text)
            self.substituted += len(text)
            if len(text) > MAX_VALUE or self.substituted > MAX_SUBSTITUTED:
                raise ForeignFormatError("the variables of the script grow beyond bounds", help="write the values out")
            parts.append(text)
        return "".join(parts)

    def _replace(self, found: re.Match[str]) -> str:
        if found["sum"] is not None:
            result = evaluate(_SUBSTITUTION.sub(self._replace, self._names(found["sum"])))
            return found[0] if result is None else str(result)
        name = found["bare"] or found["name"]
        known = self.variables.get(name)
        if known:
            return known
        default = found["default"]
        if default is None:
            return known if known is not None else found[0]
        default = default.strip("\"'")
        if "$" in default:
            return found[0]
        self.defaults[name] = default
        return default

    def _names(self, text: str) -> str:
        """Inside `$(( ))` a variable needs no dollar sign."""
        return re.sub(rf"(?<![$A-Za-z0-9_{{]){_NAME}", lambda found: self.variables.get(found[0], found[0]), text)


def evaluate(text: str) -> int | None:
    """A sum or product of whole numbers as the shell counts it; None for anything else.

    >>> evaluate("8 * 16"), evaluate("(1 + 2) / 2"), evaluate("2 ** 99999"), evaluate("1 / 0")
    (128, 1, None, None)
    """
    if len(text) > _SUM_LENGTH or not re.fullmatch(r"[0-9+\-*/%() \t]+", text):
        return None
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left), _evaluate(node.right)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return int(left / right) if abs(left) < 2**53 else left // right
            case ast.Mod():
                return left % right
    raise ValueError


class _Stream:
    """Tokens, of which the next one can be seen before it is taken."""

    def __init__(self, found: Iterator[Token]) -> None:
        self._rest = found
        self.next = next(self._rest, None)

    def take(self) -> Token | None:
        """The next token; None after the last."""
        taken, self.next = self.next, next(self._rest, None)
        return taken


def read_script(text: str) -> Script:
    r"""Assignments and commands of a script, every branch taken once and in order.

    >>> script = read_script('N=4\nARGS="--num-layers $N"\npython pretrain_gpt.py $ARGS\n')
    >>> [word.text for word in script.commands[0]]
    ['python', 'pretrain_gpt.py', '--num-layers', '4']

    Raises:
        ForeignFormatError: the script is cut off in a quote or bracket, or grows beyond bounds.
    """
    script = Script()
    command: list[Word] = []
    stream = _Stream(tokens(text))
    while (token := stream.take()) is not None:
        if token.kind == "end":
            if command:
                script.commands.append(command)
            command = []
        elif token.kind == "word":
            _take(script, command, token, stream)
    return script


def _take(script: Script, command: list[Word], token: Token, stream: _Stream) -> None:
    """One word: an assignment where a command may begin, otherwise a part of the command."""
    first = token.pieces[0]
    assigns = _ASSIGNS.match(first.text) if not first.quoted else None
    starts = not command or command[0].text in _DECLARES
    if starts and assigns and not first.plain:
        rest = (Piece(first.text[assigns.end() :], plain=False, quoted=False), *token.pieces[1:])
        value = script.value(rest)
        if not value and len(token.pieces) == 1:
            value = _array(script, token, stream)
        if assigns[2]:
            value = f"{script.variables.get(assigns[1], '')} {value}"
        if len(value) > MAX_VALUE:
            raise ForeignFormatError("a variable grows beyond bounds", token.line, "write the values out")
        script.variables[assigns[1]] = value.strip()
        script.places[assigns[1]] = token.line
        return
    if token.text in _CONDITIONS and not command:
        script.conditions.append(token.line)
    command.extend(_words(script, token))


def _words(script: Script, token: Token) -> Iterator[Word]:
    """The words that one becomes: substituted values and quoted option lists are cut at blanks."""
    value = script.value(token.pieces)
    cut = "$" in token.text or value.lstrip().startswith("--") or ".py " in value
    for text in value.split() if cut else [value]:
        whole = cut and len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        yield Word(text[1:-1] if whole else text, token.line)


def _array(script: Script, token: Token, stream: _Stream) -> str:
    """The items of `NAME=( ... )`, in one text; empty where no parenthesis follows at once."""
    if stream.next is None or stream.next.kind != "open":
        return ""
    stream.take()
    items, size = [], 0
    while (item := stream.take()) is not None and item.kind != "close":
        if item.kind == "word":
            items.append(script.value(item.pieces))
            size += len(items[-1]) + 1
            if size > MAX_VALUE:
                raise ForeignFormatError("an array grows beyond bounds", token.line, "write the values out")
    return " ".join(items)
