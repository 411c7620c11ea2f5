"""Finds the branches, loops and functions in the words of a shell script."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._shell_words import Token, tokens

_MAX_DEPTH = 60
_CLOSERS = {"if": "then", "case": "esac", "for": "done", "select": "done", "while": "done", "until": "done"}
"""What has to follow a keyword somewhere; without it the word is no keyword."""


@dataclass(frozen=True, slots=True)
class Simple:
    """One command or assignment: its words, and the parentheses of its arrays."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Commands in braces."""

    body: Body


@dataclass(frozen=True, slots=True)
class Subshell:
    """Commands whose variables end with them: in parentheses, in the background or in a part of a pipeline."""

    body: Body
    coprocess: str = ""
    """The variable that a coprocess sets."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands that are joined by `|`."""

    parts: Body


@dataclass(frozen=True, slots=True)
class Negated:
    """`! command`."""

    node: Node


@dataclass(frozen=True, slots=True)
class Joined:
    """A command that only runs when the one before went well (`&&`) or did not (`||`)."""

    left: Node
    right: Node
    on_success: bool


@dataclass(frozen=True, slots=True)
class If:
    """Conditions with the commands behind them, and those behind `else`."""

    branches: tuple[tuple[Body, Body], ...]
    otherwise: Body
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """A word, and the patterns with the commands behind them."""

    subject: Token
    branches: tuple[tuple[tuple[Token, ...], Body], ...]
    falls: bool
    """Whether more than one branch may run."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Commands that run for each item, or as long as a condition holds."""

    variable: str
    items: tuple[Token, ...]
    condition: Body
    body: Body


@dataclass(frozen=True, slots=True)
class Function:
    """Commands that run where their name is called."""

    name: str
    body: Body


Node = Simple | Group | Subshell | Pipeline | Negated | Joined | If | Case | Loop | Function
Body = tuple[Node, ...]
_Stop = frozenset[str]
_ENDS_BRANCH = frozenset({";;", ";&", ";;&"})


def tree_of(text: str) -> Body:
    r"""The commands of a script in order; a construct that is not finished ends with the script.

    >>> [type(node).__name__ for node in tree_of("A=1\nif [ $A = 1 ]; then B=2; else B=3; fi\nf() { C=1; }")]
    ['Simple', 'If', 'Function']

    Raises:
        ForeignFormatError: the script is cut off in a quote or bracket, or nests too deep.
    """
    parser = _Parser(list(tokens(text)))
    nodes: list[Node] = []
    while parser.at < len(parser.tokens):
        ends: list[int] = []
        found = parser.body(frozenset(), ends)
        lines = (found[start:end] for start, end in pairwise([0, *ends, len(found)]) if end > start)
        nodes.extend(line[0] if len(line) == 1 else Group(line) for line in lines)
        parser.at += 1  # a closing word that nothing opened
    return tuple(nodes)


class _Parser:
    """Walks over the words once; constructs without their closing word are plain commands."""

    def __init__(self, found: list[Token]) -> None:
        self.tokens, self.at, self.depth = found, 0, 0
        self._places: dict[str, list[int]] = {word: [] for word in {*_CLOSERS.values(), "{", "}"}}
        for place, token in enumerate(found):
            if token.bare and token.text in self._places:
                self._places[token.text].append(place)

    def body(self, stop: _Stop, ends: list[int] | None = None) -> Body:
        """Commands up to one of the closing words, which stays; `ends` gets their number at the end of each line."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ForeignFormatError("the script nests too deep", self._line(), "give the launch script alone")
        nodes: list[Node] = []
        signs, chain = "\n", 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind == "end":
                if token.text in _ENDS_BRANCH and ";;" in stop:
                    break
                self.at += 1
                if token.text == "&" and nodes:
                    nodes[-1] = Subshell((nodes[-1],))
                if ends is not None and token.text == "\n" and signs not in {"&&", "||"}:
                    ends.append(len(nodes))
                # A line feed after && or || does not end the chain.
                signs = signs if token.text == "\n" and signs in {"&&", "||"} else token.text
                continue
            if token.kind == "close" or (token.bare and token.text in stop):
                break
            node = self._pipeline()
            chain = chain + 1 if signs in {"&&", "||"} and nodes else 0
            if 0 < chain <= _MAX_DEPTH:
                node = Joined(nodes.pop(), node, signs == "&&")
            nodes.append(node)
            signs = "\n"
        self.depth -= 1
        return tuple(nodes)

    def _pipeline(self) -> Node:
        parts = [self._node()]
        while self._kind(0) == "end" and self.tokens[self.at].text in {"|", "|&"}:
            self.at += 1
            while self._kind(0) == "end" and self.tokens[self.at].text == "\n":
                self.at += 1
            if self._kind(0) in {"", "end", "close"}:
                break
            parts.append(self._node())
        return parts[0] if len(parts) == 1 else Pipeline(tuple(parts))

    def _line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line

    def _follows(self, word: str) -> bool:
        places = self._places[word]
        return bisect_right(places, self.at) < len(places)

    def _node(self) -> Node:
        token = self.tokens[self.at]
        if token.kind == "open":
            return self._parentheses()
        if token.kind == "target":
            self.at += 1
            return Simple((token,))
        word = token.text if token.bare else ""
        if word in {"!", "time"} and self._kind(1) not in {"", "end", "close"}:
            self.at += 2 if word == "time" and self.tokens[self.at + 1].text == "-p" else 1
            node = self._nested()
            return Negated(node) if word == "!" else node
        if word == "coproc" and self._kind(1) in {"open", "word"}:
            return self._coprocess()
        if word in _CLOSERS and self._follows(_CLOSERS[word]):
            if word == "if":
                return self._if()
            return self._case() if word == "case" else self._loop(word)
        if word == "{" and self._follows("}"):
            return Group(self._closed(frozenset({"}"})))
        if word == "function" and self._kind(1) == "word":
            self.at += 1
        named = self._kind(0) == "word" and "=" not in self.tokens[self.at].text
        if named and self._kind(1) == "open" and self._kind(2) == "close":
            return self._function()
        if word == "function" and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].text == "{":
            return self._function()
        return self._simple()

    def _kind(self, ahead: int) -> str:
        place = self.at + ahead
        return self.tokens[place].kind if place < len(self.tokens) else ""

    def _closed(self, stop: _Stop) -> Body:
        """The word here, commands up to a closing word, and that word."""
        self.at += 1
        found = self.body(stop)
        self.at += 1
        return found

    def _nested(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ForeignFormatError("the script nests too deep", self._line(), "give the launch script alone")
        node = self._node() if self._kind(0) not in {"", "end", "close"} else Simple(())
        self.depth -= 1
        return node

    def _parentheses(self) -> Node:
        self.at += 1
        found = self.body(frozenset())
        self.at += 1
        return Subshell(found)

    def _coprocess(self) -> Node:
        self.at += 1
        name = "COPROC"
        compound = {"{", *_CLOSERS}
        if self._kind(1) == "open" or (self._kind(1) == "word" and self.tokens[self.at + 1].text in compound):
            name = self.tokens[self.at].text
            self.at += 1
        return Subshell((self._nested(),), name)

    def _simple(self) -> Simple:
        first, depth = self.at, 0
        while self.at < len(self.tokens):
            kind = self._kind(0)
            if depth == 0 and (kind == "end" or (kind == "close" and self.at > first)):
                break
            depth += (kind == "open") - (kind == "close")
            self.at += 1
        return Simple(tuple(token for token in self.tokens[first : self.at] if token.kind != "end"))

    def _if(self) -> If:
        line, branches = self._line(), []
        while True:
            condition = self._closed(frozenset({"then"}))
            self.at -= 1
            body = self._closed(frozenset({"elif", "else", "fi"}))
            branches.append((condition, body))
            word = self.tokens[self.at - 1].text if self.at <= len(self.tokens) else ""
            if word == "elif":
                self.at -= 1
                continue
            otherwise: Body = ()
            if word == "else":
                self.at -= 1
                otherwise = self._closed(frozenset({"fi"}))
            return If(tuple(branches), otherwise, line)

    def _case(self) -> Node:
        first = self.at
        subject = self.tokens[self.at + 1]
        self.at += 2
        self._skip_ends()
        if subject.kind != "word" or self.at >= len(self.tokens) or self.tokens[self.at].text != "in":
            self.at = first
            return self._simple()
        self.at += 1
        branches, falls = [], False
        while self.at < len(self.tokens):
            self._skip_ends()
            if self.at >= len(self.tokens) or self.tokens[self.at].text == "esac":
                break
            patterns = []
            while self.at < len(self.tokens) and self._kind(0) != "close":
                if self._kind(0) == "word":
                    patterns.append(self.tokens[self.at])
                self.at += 1
            self.at += 1
            branches.append((tuple(patterns), self.body(frozenset({";;", "esac"}))))
            falls = falls or (self._kind(0) == "end" and self.tokens[self.at].text in {";&", ";;&"})
            if self._kind(0) == "close":
                self.at += 1
        self.at += 1
        return Case(subject, tuple(branches), falls)

    def _skip_ends(self) -> None:
        while self._kind(0) == "end":
            self.at += 1

    def _loop(self, word: str) -> Loop:
        variable, items = "", list[Token]()
        condition: Body = ()
        if word in {"for", "select"}:
            self.at += 1
            while self.at < len(self.tokens) and self._kind(0) != "end" and self.tokens[self.at].text != "do":
                items.append(self.tokens[self.at])
                self.at += 1
            variable = items[0].text if items and items[0].kind == "word" else ""
            condition = tuple(Simple((item,)) for item in items if item.kind == "sum")
            items = [item for item in items[2:] if item.kind == "word"] if word == "for" else []
            while self.at < len(self.tokens) and self.tokens[self.at].text != "do":
                self.at += 1
        else:
            condition = self._closed(frozenset({"do"}))
            self.at -= 1
        return Loop(variable, tuple(items), condition, self._closed(frozenset({"done"})))

    def _function(self) -> Function:
        name = self.tokens[self.at].text
        self.at += 1
        if self._kind(0) == "open" and self._kind(1) == "close":
            self.at += 2
        self._skip_ends()
        brace = self.at < len(self.tokens) and self.tokens[self.at].text == "{"
        return Function(name, self._closed(frozenset({"}"})) if brace else (self._nested(),))


def functions_in(body: Iterable[Node]) -> dict[str, Body]:
    """Functions that commands define, also inside branches, by name; the last one of a name."""
    found: dict[str, Body] = {}
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case Function():
                found.setdefault(node.name, node.body)
                waiting.extend(node.body)
            case Group() | Subshell() | Loop():
                waiting.extend(node.body)
            case If():
                waiting.extend(inner for _, part in node.branches for inner in part)
                waiting.extend(node.otherwise)
            case Joined():
                waiting.extend((node.left, node.right))
    return found


def assigned(body: Iterable[Node]) -> set[str]:
    """Names that commands assign as `NAME=` or `NAME+=`, also inside branches."""
    return {token.text.partition("=")[0].rstrip("+") for token, _ in _words_of(body) if "=" in token.text}


def appended(body: Iterable[Node]) -> dict[str, bool]:
    """Names that commands only append to (`NAME+=`), and whether each time a blank or an array comes first."""
    found: dict[str, bool] = {}
    others: set[str] = set()
    for token, after in _words_of(body):
        name, sign, text = token.text.partition("=")
        if sign and name.endswith("+"):
            found[name[:-1]] = found.get(name[:-1], True) and (text[:1] == " " or (not text and after == "open"))
        elif sign:
            others.add(name)
    return {name: spaced for name, spaced in found.items() if name not in others}


def _words_of(body: Iterable[Node]) -> Iterator[tuple[Token, str]]:
    """Words of commands, also inside branches, with the kind of what follows."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        match node:
            case Simple():
                kinds = [*(token.kind for token in node.tokens[1:]), "end"]
                yield from (
                    (token, kind) for token, kind in zip(node.tokens, kinds, strict=True) if token.kind == "word"
                )
            case Group() | Function() | Subshell():
                waiting.extend(node.body)
            case Pipeline():
                waiting.extend(node.parts)
            case Negated():
                waiting.append(node.node)
            case Joined():
                waiting.extend((node.left, node.right))
            case If():
                waiting.extend(inner for branch in node.branches for part in branch for inner in part)
                waiting.extend(node.otherwise)
            case Case():
                waiting.extend(inner for _, part in node.branches for inner in part)
            case Loop():
                waiting.extend((*node.condition, *node.body))


def appends_alone(body: Body) -> bool:
    """Whether commands do nothing but append to variables."""
    return bool(body) and all(
        isinstance(node, Simple) and node.tokens[0].kind == "word" and "+=" in node.tokens[0].text for node in body
    )
