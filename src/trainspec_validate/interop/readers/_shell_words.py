"""Cuts a shell script into words with lines; nothing of it is ever run."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.model.values import cut_to
from trainspec_validate.system.digits import is_digits

MAX_CHARACTERS = 1024 * 1024
_CLOSING = {"(": ")", "{": "}"}
_ENDS_COMMAND = frozenset(";&|\n")
_SIGNS = (";;&", ";;", ";&", "&&", "||", "|&")
_BEFORE_COMMANDS = frozenset({"if", "elif", "while", "until", "then", "else", "do", "!", "{", "time"})
_LONGEST_SUM = 1024
_MAY_ASSIGN = re.compile(r"=|\+\+|--")
_BLANK_INSIDE = "\ue002"
"""A blank inside of an item of an array."""
_EMPTY_ITEM = "\ue003"
"""An item that is empty."""
_MARKS = {0xE000: 0xFFFD, 0xE001: 0xFFFD, 0xE002: 0xFFFD, 0xE003: 0xFFFD}
"""Characters that `_shell_choices` or this module has a meaning for."""
_CUTS = re.compile(r"\s+|\$[({]|`")
_INNER_BLANK = re.compile(r"\s")
_CLOSE = "close it here, or close an earlier quote that ends on this line"
_IN_COMMAND = re.compile(r"""\\.|'[^']*+'|"(?:[^"\\]|\\.)*+"|['"()]""", re.DOTALL)
_ESCAPING = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_REMARK = re.compile(r"`[ \t]*#[^\n]*`")
"""A comment between the words of a command, which becomes no word."""
_IN_NAME = re.compile(r"""\\.|"(?:[^"\\]|\\.)*+"|["{}]""", re.DOTALL)
"""What counts, and what is quoted, in `$( )` and in `${ }`."""
_LONGEST_SUBSTITUTION = 4096
_OLDER_SUM = re.compile(r"\[([^\[\]\n]{1,400})\]")
_ESCAPED_IN_QUOTES = frozenset('$`"\\\n')


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a word; `plain` where the shell would not substitute in it."""

    text: str
    plain: bool
    quoted: bool


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a parenthesis, what ends a command, with its signs, a `(( ))` or the target of a redirection."""

    kind: Literal["word", "open", "close", "end", "sum", "target"]
    line: int
    pieces: tuple[Piece, ...] = ()

    @property
    def text(self) -> str:
        """The word without quotes, before substitution."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def bare(self) -> bool:
        """Whether it is a word of which nothing is quoted, so that it may be a keyword."""
        return self.kind == "word" and not any(piece.quoted or piece.plain for piece in self.pieces)


class _Scanner:
    """Walks over a text once, from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self._lines: dict[str, list[tuple[int, int]]] | None = None
        self.pieces: list[Piece] = []
        self.buffer: list[str] = []

    def line_of(self, words: str) -> tuple[int, int] | None:
        """Start and end of the next line that holds these words alone."""
        if self._lines is None:  # found once for all documents: a search for each would take the square of the time
            self._lines, start = {}, 0
            for line in self.text.split("\n"):
                self._lines.setdefault(line.strip(" \t"), []).append((start, start + len(line)))
                start += len(line) + 1
        places = self._lines.get(words.strip(" \t"), [])
        number = bisect_left(places, (self.at, 0))
        return places[number] if number < len(places) else None

    def flush(self, *, plain: bool, quoted: bool, empty: bool = False) -> None:
        """End the current stretch of the word."""
        if self.buffer or empty:
            self.pieces.append(Piece("".join(self.buffer), plain, quoted))
            self.buffer = []

    def step(self, count: int = 1) -> str:
        """Take characters and count their lines."""
        taken = self.text[self.at : self.at + count]
        self.at += count
        self.line += taken.count("\n")
        return taken

    def substitution(self) -> None:
        """A `$...` or `<(...)`: parentheses and braces are taken whole, so that their blanks do not end the word."""
        self.step()
        self.buffer.append("$")
        opening = self.text[self.at : self.at + 1]
        if opening == "[" and (end := _OLDER_SUM.match(self.text, self.at)):
            self.step(end.end() - self.at)
            self.buffer.append(f"(({end[1]}))")  # the older form of a sum
        if opening not in _CLOSING:
            return
        depth, closing = 0, _CLOSING[opening]
        if close := _end_beyond_quotes(self.text, self.at, opening):
            self.buffer.append(self.step(close - self.at))
            return
        while self.at < len(self.text):
            character = self.step()
            self.buffer.append(character)
            depth += (character == opening) - (character == closing)
            if depth == 0:
                return
        raise ForeignFormatError(f"a ${opening} is never closed", self.line, f"close it with {closing}")

    def single_quoted(self) -> None:
        """What stands between single quotes means itself."""
        start = self.line
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise ForeignFormatError("a single quote is never closed", start, _CLOSE)
        self.flush(plain=False, quoted=False)
        self.step()
        self.buffer.append(self.step(end - self.at))
        self.flush(plain=True, quoted=True, empty=True)
        self.step()

    def dollar_quoted(self) -> None:
        """A `$'...'`, which is open where it has a backslash, or a `$"..."`, which is no more than `"..."`."""
        self.step()
        if self.text[self.at] == '"':
            self.double_quoted()
            return
        found = _ESCAPING.match(self.text, self.at)
        if found is None or "\\" not in found[0]:
            self.single_quoted()
            return
        self.flush(plain=False, quoted=False)
        text = self.step(found.end() - self.at)[1:-1].replace("\\t", "\t").replace("\\n", "\n")
        is_open = "\\" in text
        self.buffer.append("$(printf escapes)" if is_open else text)
        self.flush(plain=not is_open, quoted=True)

    def double_quoted(self) -> None:
        """Between double quotes the shell substitutes, but does not cut."""
        start = self.line
        self.flush(plain=False, quoted=False)
        self.step()
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == '"':
                self.step()
                self.flush(plain=False, quoted=True, empty=True)
                return
            if character == "\\" and self.text[self.at + 1 : self.at + 2] in _ESCAPED_IN_QUOTES:
                self.escape(quoted=True)
            elif character == "$":
                self.substitution()
            else:
                self.buffer.append(self.step())
        raise ForeignFormatError("a double quote is never closed", start, _CLOSE)

    def escape(self, *, quoted: bool) -> None:
        """A backslash: before a line feed it joins lines, otherwise it makes a character plain."""
        self.step()
        character = self.step()
        if character and character != "\n":
            self.flush(plain=False, quoted=quoted)
            self.buffer.append(character)
            self.flush(plain=True, quoted=quoted)

    def word(self) -> Token:
        """The word that begins here."""
        line = self.line
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t();&|<>\n":
                break
            if character == "'":
                self.single_quoted()
            elif character == '"':
                self.double_quoted()
            elif character == "\\":
                self.escape(quoted=False)
            elif character == "$" and self.text[self.at + 1 : self.at + 2] in {"'", '"'}:
                self.dollar_quoted()
            elif character == "$":
                self.substitution()
            elif character == "`":
                end = self.text.find("`", self.at + 1)
                text = self.step(max(end - self.at, 0) + 1)
                if not _REMARK.fullmatch(text):
                    self.buffer.append(text)
            else:
                self.buffer.append(self.step())
        self.flush(plain=False, quoted=False)
        pieces, self.pieces = tuple(self.pieces), []
        return Token("word", line, pieces)


def _end_beyond_quotes(text: str, start: int, opening: str) -> int | None:
    """Where a bracket ends whose text has quotes with brackets in them; None where those quotes do not close in it.

    A document such as `<<END` inside may have a lone apostrophe, and so may `${A:-it's}` between double quotes.

    >>> _end_beyond_quotes("('a (b') c", 0, "("), _end_beyond_quotes("(it's) c", 0, "(")
    (8, None)
    """
    depth = 0
    quoted = _IN_COMMAND if opening == "(" else _IN_NAME
    for found in quoted.finditer(text, start, start + _LONGEST_SUBSTITUTION):
        part = found[0]
        if part in {"'", '"'}:
            return None
        depth += (part == opening) - (part == _CLOSING[opening])
        if depth == 0 and part == _CLOSING[opening]:
            return found.end()
    return None


def tokens(text: str) -> Iterator[Token]:
    r"""The words of a script and what ends commands; comments and redirections are left out.

    >>> [token.text for token in tokens("A=1 # one\ntorchrun 'a b' \\\n  --x $A") if token.kind == "word"]
    ['A=1', 'torchrun', 'a b', '--x', '$A']

    Raises:
        ForeignFormatError: a quote, bracket or document is never closed, or the text is too long for a script.
    """
    if len(text) > MAX_CHARACTERS:
        raise ForeignFormatError(
            f"the script is longer than {MAX_CHARACTERS} characters", help="name the launch script"
        )
    lexer = _Lexer(_Scanner(text.translate(_MARKS)))
    while lexer.scanner.at < len(text):
        yield from lexer.step()
    yield Token("end", lexer.scanner.line)


class _Lexer:
    """Finds one token after another."""

    def __init__(self, scanner: _Scanner) -> None:
        self.scanner = scanner
        self._waiting: list[tuple[str, int]] = []
        """The last words of documents that begin after this line, with the line that names them."""
        self._in_test, self._starts = False, True

    def step(self) -> Iterator[Token]:
        """The token here, if there is one."""
        scanner = self.scanner
        character, following = scanner.text[scanner.at], scanner.text[scanner.at + 1 : scanner.at + 2]
        if self._in_test and character in "<>&|()\n":
            yield from self._sign_of_test()
        elif character in "<>" and following == "(":
            yield _substituted_process(scanner)
        elif character in "<>" or (character == "&" and following == ">"):
            scanner.step(character == "&")
            yield from self._redirection()
        elif character in _ENDS_COMMAND:
            yield self._end()
        elif character in " \t":
            scanner.step()
        elif character in "()":
            yield self._parenthesis(character)
        elif character == "#":
            end = scanner.text.find("\n", scanner.at)
            scanner.step((end if end >= 0 else len(scanner.text)) - scanner.at)
        else:
            yield from self._word()

    def _sign_of_test(self) -> Iterator[Token]:
        """Between `[[` and `]]` signs are words."""
        line = self.scanner.line
        signs = self.scanner.step(2 if self.scanner.text[self.scanner.at : self.scanner.at + 2] in _SIGNS else 1)
        if signs != "\n":
            yield Token("word", line, (Piece(signs, plain=False, quoted=False),))

    def _end(self) -> Token:
        scanner, line = self.scanner, self.scanner.line
        signs = scanner.step(next((len(each) for each in _SIGNS if scanner.text.startswith(each, scanner.at)), 1))
        self._starts = True
        if signs == "\n" and self._waiting:
            _skip_documents(scanner, self._waiting)
        return Token("end", line, (Piece(signs, plain=True, quoted=False),))

    def _parenthesis(self, character: str) -> Token:
        scanner, line = self.scanner, self.scanner.line
        self._starts = True
        end = _sum_end(scanner.text, scanner.at)
        if end is not None:
            return Token("sum", line, (Piece(scanner.step(end - scanner.at)[2:-2], plain=False, quoted=False),))
        scanner.step()
        return Token("open" if character == "(" else "close", line)

    def _word(self) -> Iterator[Token]:
        scanner = self.scanner
        token = scanner.word()
        redirected = scanner.text[scanner.at : scanner.at + 1] in {"<", ">"} and is_digits(token.text)
        if not token.pieces or redirected:
            return
        if token.bare and token.text in {"[[", "]]"}:
            ends = scanner.text.find("]]", scanner.at, scanner.at + _LONGEST_SUBSTITUTION) >= 0
            self._in_test = token.text == "[[" and self._starts and ends
        self._starts = token.bare and token.text in _BEFORE_COMMANDS
        yield token

    def _redirection(self) -> Iterator[Token]:
        """A `>`, `2>&1` or `<<END` with its target, which is a token where it may assign something."""
        scanner, signs = self.scanner, ""
        while scanner.text[scanner.at : scanner.at + 1] in {"<", ">", "&", "-"}:
            signs += scanner.step()
        while scanner.text[scanner.at : scanner.at + 1] in {" ", "\t"}:
            scanner.step()
        if scanner.text[scanner.at : scanner.at + 2] in {"<(", ">("}:
            _substituted_process(scanner)
            return
        if scanner.text[scanner.at : scanner.at + 1] in {"", "(", "\n", "#"}:
            return
        target = scanner.word()
        if signs.rstrip("-") == "<<" and target.text:
            self._waiting.append((target.text, target.line))
        elif "$" in target.text and _MAY_ASSIGN.search(target.text):
            yield Token("target", target.line, target.pieces)


def cut_words(text: str) -> list[str]:
    """A text cut at blanks; an expansion, a command in `$( )` or between backticks and a joined item stay one word.

    >>> cut_words("--data-path $(python3 make.py -p $(pwd) a) `date +%s` --bf16"), cut_words("$(open a")
    (['--data-path', '$(python3 make.py -p $(pwd) a)', '`date +%s`', '--bf16'], ['$(open', 'a'])
    >>> cut_words("--lr ${@: -1} " + as_item("a b") + " " + as_item(""))
    ['--lr', '${@: -1}', 'a b', '']
    """
    words, start, at = list[str](), 0, 0
    while found := _CUTS.search(text, at):
        at = found.end()
        if found[0].isspace():
            words.append(text[start : found.start()])
            start = at
            continue
        end = text.find("`", at) + 1 if found[0] == "`" else _end_of_expansion(text, at - 1)
        if not end:
            words = text.split()
            break
        at = end
    else:
        words.append(text[start:])
    return [without_joints(word) for word in words if word]


def as_item(text: str) -> str:
    """A text that stays one word where it is joined with others by blanks."""
    return _INNER_BLANK.sub(_BLANK_INSIDE, text) or _EMPTY_ITEM


def has_joints(text: str) -> bool:
    """Whether a text has items with blanks inside, or empty ones."""
    return _BLANK_INSIDE in text or _EMPTY_ITEM in text


def without_joints(text: str) -> str:
    """A text with plain blanks alone."""
    return text.replace(_BLANK_INSIDE, " ").replace(_EMPTY_ITEM, "")


def _end_of_expansion(text: str, start: int) -> int:
    """The place after the bracket that closes the one at a place; 0 where none does."""
    opening = text[start]
    if close := _end_beyond_quotes(text, start, opening):
        return close
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == opening) - (text[place] == _CLOSING[opening])
        if depth == 0:
            return place + 1
    return 0


def _sum_end(text: str, start: int) -> int | None:
    """Where a `(( ... ))` ends; None where these parentheses are no sum.

    >>> _sum_end("((a + (b)))", 0), _sum_end("((a) && (b))", 0)
    (11, None)
    """
    depth, inner = 0, -1
    if text[start : start + 2] != "((":
        return None
    for place in range(start, min(len(text), start + _LONGEST_SUM)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1 if inner == place - 1 else None
        if depth == 1 and place > start:
            inner = place
            if text[place + 1 : place + 2] != ")":
                return None
    return None


def _substituted_process(scanner: _Scanner) -> Token:
    """A `<( ... )`, whose commands run on their own; as a word it is open."""
    line = scanner.line
    scanner.substitution()
    scanner.flush(plain=False, quoted=False)
    pieces, scanner.pieces = tuple(scanner.pieces), []
    return Token("word", line, pieces)


def _skip_documents(scanner: _Scanner, waiting: list[tuple[str, int]]) -> None:
    """Documents such as `<<END ... END`, which are no commands.

    Raises:
        ForeignFormatError: one has no end, so that all that follows is its text.
    """
    while waiting:
        last, line = waiting.pop(0)
        found = scanner.line_of(last)
        if found is None:
            why = f"the document that begins here has no line {cut_to(last, 40)}, so that all that follows is its text"
            raise ForeignFormatError(why, line, f"end it with a line {cut_to(last, 40)}")
        scanner.step(found[1] - scanner.at)
