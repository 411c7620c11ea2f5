"""Explains in plain words why a text is not YAML."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from trainspec_validate.documents.load._base import LoadError, plain_place, span_of

_FOREIGN_BREAKS: Final = {"\x85": "U+0085", "\u2028": "U+2028", "\u2029": "U+2029"}
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TIGHT_DASH = re.compile(r"\s*-[^\s0-9.-]")
_MAX_TAG_DIRECTIVES: Final = 8
_TRAILING_PROBLEMS: Final = ("did not find expected key", "did not find expected <document start>")
_OPEN_CONTEXTS: Final = ("while scanning a quoted scalar", "while scanning a simple key")
_INDENTATION_HELP: Final = "indent every key of one mapping by the same number of spaces"
_QUOTE_HELP: Final = "put text that holds ': ' into quotes, and start each key on a line of its own"

# What libyaml reports (its context and its problem, by their beginning), and what that means to a person.
# https://github.com/yaml/libyaml/blob/0.2.5/src/scanner.c and parser.c
_PROBLEMS: Final[tuple[tuple[str, str, str, str], ...]] = (
    (
        "",
        "mapping values are not allowed",
        "a ':' starts a second value where text or a line end is expected",
        _QUOTE_HELP,
    ),
    (
        "",
        "block sequence entries are not allowed",
        "a list item ('- ') starts where none is allowed",
        "start the list on a line of its own, below its key",
    ),
    (
        "",
        "mapping keys are not allowed",
        "a '?' starts a key where none is allowed",
        "quote the '?' if it is text",
    ),
    (
        "while scanning a simple key",
        "could not find expected ':'",
        "this line holds no ': ' after its key",
        "write 'key: value', with a blank after the colon; quote text of several lines",
    ),
    (
        "while scanning for the next token",
        "found character that cannot start any token",
        "a value cannot start with this character",
        "put the value into quotes",
    ),
    (
        "while scanning a plain scalar",
        "found a tab",
        "a tab appears where blanks are expected",
        "indent with spaces",
    ),
    (
        "while scanning a plain scalar",
        "found unexpected ':'",
        "a ':' appears inside unquoted text",
        "put the text into quotes",
    ),
    (
        "while scanning a quoted scalar",
        "found unexpected end of stream",
        "this quote is never closed",
        "close the quote, or escape the quote that opens it too early",
    ),
    (
        "while scanning a quoted scalar",
        "found unexpected document indicator",
        "this quote is not closed before the next document",
        "close the quote",
    ),
    (
        "while parsing a quoted scalar",
        "found unknown escape character",
        "this escape does not exist in YAML",
        "write \\\\ for a backslash, or use single quotes",
    ),
    (
        "while parsing a quoted scalar",
        "did not find expected hexdecimal number",
        "this escape lacks hexadecimal digits",
        "\\x takes two digits, \\u four and \\U eight",
    ),
    (
        "while parsing a quoted scalar",
        "found invalid Unicode",
        "this escape names no character",
        "write the character itself, or one \\U escape of eight digits",
    ),
    (
        "while scanning a block scalar",
        "found a tab",
        "a tab appears where indentation is expected",
        "indent with spaces",
    ),
    (
        "while scanning a block scalar",
        "found an indentation indicator",
        "the indentation digit after '|' or '>' cannot be 0",
        "write a digit from 1 to 9, or none",
    ),
    (
        "while scanning a block scalar",
        "",
        "text follows '|' or '>' on the same line",
        "start the text on the next line, or quote the value",
    ),
    (
        "while scanning an anchor",
        "",
        "'&' starts an anchor, and no name follows it",
        "put the value into quotes if it is text",
    ),
    (
        "while scanning an alias",
        "",
        "'*' starts an alias, and no name follows it",
        "put the value into quotes if it is text",
    ),
    ("while scanning a directive", "", "this directive is not valid", "remove the line that starts with '%'"),
    ("while scanning a %", "", "this directive is not valid", "remove the line that starts with '%'"),
    ("while parsing a %", "", "this directive is not valid", "remove the line that starts with '%'"),
    ("while scanning a tag", "", "this tag is not valid", "put the value into quotes if it starts with '!'"),
    ("while parsing a tag", "", "this tag is not valid", "put the value into quotes if it starts with '!'"),
    (
        "while parsing a node",
        "found undefined tag handle",
        "this tag uses a prefix that the file does not define",
        "put the value into quotes if it starts with '!'",
    ),
    (
        "while parsing a block collection",
        "did not find expected '-'",
        "this line does not fit the list above it",
        "start each item with '-' at one depth, indent what belongs to an item, or remove the '-' if no list is meant",
    ),
    (
        "while parsing a block mapping",
        "did not find expected key",
        "this line does not fit the mapping above it",
        _INDENTATION_HELP,
    ),
    (
        "while parsing a flow sequence",
        "",
        "this list lacks a ',' or its closing ']'",
        "separate items by ',' and close the list with ']'",
    ),
    (
        "while parsing a flow mapping",
        "",
        "this mapping lacks a ',' or its closing '}'",
        "separate entries by ',' and close the mapping with '}'",
    ),
    ("while parsing a flow node", "", "a value is missing here", "write a value, or close the bracket"),
    ("while parsing a block node", "", "a value is missing here", "write a value, or put it into quotes"),
    ("", "did not find expected <document start>", "this line continues nothing above it", _INDENTATION_HELP),
    ("", "found duplicate %", "this directive appears twice", "remove one of the lines that start with '%'"),
    (
        "",
        "found incompatible YAML",
        "the file asks for a YAML version other than 1.1 and 1.2",
        "remove the '%YAML' line",
    ),
)


_CONFLICT = re.compile(r"^<{7} [^\n]*", re.MULTILINE)


def check_characters(text: str) -> None:
    """Refuse what libyaml reads unlike YAML 1.2, or slowly. Raises LoadError."""
    if not text.isascii():
        for character, name in _FOREIGN_BREAKS.items():
            if (index := text.find(character)) >= 0:
                # libyaml follows YAML 1.1, where these end a line; editors and YAML 1.2 see one line.
                raise LoadError(
                    "syntax",
                    f"character {name} ends a line in YAML 1.1 and not in YAML 1.2",
                    "remove it, or write it as an escape in double quotes",
                    span_of(text, index),
                )
    # libyaml compares every %TAG directive with all those before it: 70,000 take seconds.
    if text.count("%TAG") > _MAX_TAG_DIRECTIVES and len(re.findall(r"^%TAG", text, re.MULTILINE)) > _MAX_TAG_DIRECTIVES:
        index = next(re.finditer(r"^%TAG", text, re.MULTILINE)).start()
        raise LoadError(
            "unsupported-tag",
            "the file defines tag prefixes with '%TAG'",
            "remove the lines that start with '%TAG'; only core tags are supported",
            span_of(text, index, index + 4),
        )


def translate(text: str, error: yaml.YAMLError, last: Any = None) -> LoadError:
    """The refusal that explains to a person what a parser error means; `last` is the event that was read before it."""
    unprintable = _NOT_PRINTABLE.search(text)
    if isinstance(error, yaml.reader.ReaderError) and unprintable:
        return LoadError(
            "syntax",
            f"control character U+{ord(unprintable[0]):04X} is not allowed in YAML",
            "remove it, or write it as an escape in double quotes",
            span_of(text, unprintable.start()),
        )
    conflict = _CONFLICT.search(text)
    if conflict:
        message, remedy = (
            "a merge conflict starts here",
            "resolve it, and remove the lines <<<<<<<, ======= and >>>>>>>",
        )
        return LoadError("syntax", message, remedy, span_of(text, conflict.start(), conflict.end()))
    context = getattr(error, "context", None) or ""
    problem = getattr(error, "problem", None) or ""
    index = _index(text, error, context, problem)
    long_quote = _long_quote(text, index, last)
    if long_quote:
        return long_quote
    opened = getattr(error, "context_mark", None)
    if context.startswith("while parsing a flow") and opened and _starts_a_block_line(text, index, opened.index):
        message, remedy = _explain(context, problem, text, index)
        place = plain_place(span_of(text, index))
        return LoadError("syntax", f"{message} before {place}", remedy, span_of(text, opened.index))
    message, remedy = _explain(context, problem, text, index)
    return LoadError("syntax", message, remedy, span_of(text, index))


def _long_quote(text: str, index: int, last: Any) -> LoadError | None:
    """Text in quotes that ends just before the error and started on an earlier line was to end there."""
    if getattr(last, "style", None) not in ("'", '"') or last.end_mark.index != index:
        return None
    start, end = last.start_mark, last.end_mark
    if start.line == end.line:
        return None
    place = plain_place(span_of(text, end.index - 1))
    message = f"the quote that opens here is closed only at {place}"
    return LoadError("syntax", message, "close it where its text ends", span_of(text, start.index))


def _starts_a_block_line(text: str, index: int, opened: int) -> bool:
    """Whether the parser stopped at what looks like the next key or list item, below an open bracket."""
    line = text[text.rfind("\n", 0, index) + 1 : index]
    starts = text[index : index + 1] in (("-",) if not line.strip() else (":",)) or line.strip() == "-"
    return starts and "\n" in text[opened:index]


def _index(text: str, error: yaml.YAMLError, context: str, problem: str) -> int:
    """Where a person has to look: mostly where reading stopped, otherwise where the open construct starts."""
    problem_mark, context_mark = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    index = problem_mark.index if problem_mark else 0
    is_open = index >= len(text.rstrip()) or context in _OPEN_CONTEXTS
    if context_mark and is_open and "escape" not in problem and "hexdecimal" not in problem:
        index = context_mark.index
    return int(index)


def _explain(context: str, problem: str, text: str, index: int) -> tuple[str, str]:
    before = text[text.rfind("\n", 0, index) + 1 : index]
    character = text[index : index + 1]
    if "\t" in before + character and not (before + character).strip():
        return "a tab indents this line", "indent with spaces; YAML does not allow tabs"
    if "cannot start any token" in problem and character in tuple("@`%"):
        return f"a value cannot start with '{character}'", "put the value into quotes"
    line = text[index - len(before) :].split("\n", 1)[0]
    if "\xa0" in line:
        return "this line holds a no-break space (U+00A0)", "replace it by a blank"
    if _TIGHT_DASH.match(line):
        return "no blank follows the '-' of this list item", "put a blank after the '-'"
    if problem.startswith("mapping values") and index > len(before) and ": " not in before:
        return (
            "this line reads as a continuation of the text above it",
            "indent its key like the keys it belongs to, and put a blank after the ':' of every key",
        )
    if problem.startswith(_TRAILING_PROBLEMS) and before.strip():
        return "text follows the end of a value", "put the whole value into one pair of quotes"
    for known_context, known_problem, message, remedy in _PROBLEMS:
        if context.startswith(known_context) and problem.startswith(known_problem):
            return message, remedy
    return "this is not valid YAML", "compare the line with those around it: indentation, quotes, brackets"
