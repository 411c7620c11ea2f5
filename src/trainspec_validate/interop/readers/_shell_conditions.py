"""Decides conditions of a shell script, and counts its sums, from values that are known."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase

from trainspec_validate.interop.readers._shell_choices import Choices

_SUM_LENGTH = 200
_LARGEST = 2**63
_PATTERN_LENGTH = 200
_WORDS = {"=": "==", "==": "==", "!=": "!=", "-eq": "==", "-ne": "!="}
_ORDERS = frozenset({"-gt", "-ge", "-lt", "-le"})
_NUMBERS = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_GLOB = re.compile(r"[*?\[\\]|[@+!]\(")
_UNCERTAIN_GLOB = re.compile(r"[\[\\(|]")
_BRACKETS = {"[": "]", "[[": "]]"}


def decide(words: list[str], choices: Choices) -> bool | None:
    """Whether a condition such as `[ 7b = 7b ]` holds; None where its values are not known.

    >>> decide(["[", "7b", "==", "13b", "]"], Choices()), decide(["[", "-z", "$X", "]"], Choices())
    (False, None)
    """
    if not words or len(words) > 8:
        return None
    if words[0] == "!":
        inner = decide(words[1:], choices)
        return None if inner is None else not inner
    if words in (["true"], [":"]):
        return True
    if words == ["false"]:
        return False
    if words[0] in _BRACKETS:
        if words[-1] != _BRACKETS[words[0]]:
            return None
        return _condition(words[1:-1], choices, words[0] == "[[")
    return _condition(words[1:], choices, glob=False) if words[0] == "test" else None


def _condition(words: list[str], choices: Choices, glob: bool) -> bool | None:
    if words and words[0] == "!":
        inner = _condition(words[1:], choices, glob)
        return None if inner is None else not inner
    if glob and {"&&", "||", "(", "=~", "<", ">"} & {*words}:
        return None
    flats = [choices.flat(word) for word in words]
    if any(more for _, more in flats):
        return None
    results: set[bool | None] = set()
    alternatives: list[list[str]] = [[]]
    for values, _ in flats:
        alternatives = [[*known, value.text] for known in alternatives for value in values]
        if len(alternatives) > 64:
            return None
    for known in alternatives:
        results.add(_plain(known, glob))
    return results.pop() if len(results) == 1 else None


def _plain(words: list[str], glob: bool) -> bool | None:
    if any("$" in word or "`" in word for word in words):
        return None
    match words:
        case ["-z", text]:
            return not text
        case ["-n", text] | [text]:
            return bool(text)
        case ["-z"]:
            return True
        case ["-n"]:
            return True
        case [left, sign, right] if sign in _WORDS:
            equal = _equal(left, right, sign.startswith("-"), glob)
            return None if equal is None else equal == (_WORDS[sign] == "==")
        case [left, sign, right] if sign in _ORDERS and _NUMBERS.fullmatch(left) and _NUMBERS.fullmatch(right):
            one, other = int(left), int(right)
            return {"-gt": one > other, "-ge": one >= other, "-lt": one < other, "-le": one <= other}[sign]
    return None


def _equal(left: str, right: str, numbers: bool, glob: bool) -> bool | None:
    if numbers:
        both = _NUMBERS.fullmatch(left) and _NUMBERS.fullmatch(right)
        return int(left) == int(right) if both else None
    if glob and _GLOB.search(right):
        is_plain = len(right) <= _PATTERN_LENGTH and not _UNCERTAIN_GLOB.search(right)
        return fnmatchcase(left[:4096], right) if is_plain else None
    return left == right


def matches(subject: str, pattern: str, choices: Choices) -> bool | None:
    """Whether a word fits a pattern of `case`; None where it is not known.

    >>> matches("7b", "7*", Choices()), matches("7b", "13b", Choices()), matches("$1", "7b", Choices())
    (True, False, None)
    """
    if pattern == "*":
        return True
    values, more = choices.flat(subject)
    if more or "$" in pattern or len(pattern) > _PATTERN_LENGTH or any("$" in value.text for value in values):
        return None
    if _UNCERTAIN_GLOB.search(pattern) or any("`" in value.text for value in values):
        return None
    found = {fnmatchcase(value.text[:4096], pattern) for value in values}
    return found.pop() if len(found) == 1 else None


def evaluate(text: str) -> int | None:
    """A sum or product of whole numbers as the shell counts it; None for anything else.

    >>> evaluate("8 * 16"), evaluate("(1 + 2) / 2"), evaluate("2 ** 99999"), evaluate("1 / 0")
    (128, 1, None, None)
    """
    if len(text) > _SUM_LENGTH or not re.fullmatch(r"[0-9+\-*/%() \t]+", text):
        return None
    try:
        result = _evaluate(ast.parse(text.strip(), mode="eval").body)
        return result if abs(result) < _LARGEST else None
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _quotient(left: int, right: int) -> int:
    """A quotient without its fraction, as the shell has it."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


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
                return _quotient(left, right)
            case ast.Mod():
                return left - right * _quotient(left, right)
    raise ValueError
