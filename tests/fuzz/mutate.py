"""Damages bytes and trees of files, each kind of damage as often as the others, by a generator that is seeded."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from typing import Final

MAX_BYTES = 200_000
"""A damaged file is cut here: the fuzzer looks for wrong answers, and the tests of memory for large inputs."""
VALUE = re.compile(rb'(?m)(?<=[:=] )[^\n,}\]]*|(?<=":)[^\n,}\]]*|(?<==)[^\s,"]+')
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
ODD: Final = (
    *(b"0", b"-1", b"1e308", b"-1e308", b"1e-320", b"1e400", b"NaN", b"Infinity", b"-0.0", b"0x10", b"010", b"1_000"),
    *(b"9" * 25, b"9" * 5000, b"18446744073709551616", b"-9223372036854775809", b"999999999999.5", b"1:30", b"0o17"),
    *(b"true", b"null", b"~", b"no", b'""', b"''", b"[]", b"{}", b"[[]]", b'{"a": {}}', b"[null]", b"[0, -1]", b"- -"),
    *(b"*x", b"&x [*x]", b"!!python/object:os.system x", b"!!binary aGk=", b"<<: *x", b"|", b">-", b"? a", b"%TAG"),
    *(
        b"x" * 5000,
        b"../" * 40 + b"etc/passwd",
        b"/dev/zero",
        b"file\x00name",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\xf4\x90",
    ),
    *(b"[" * 3000, b"{" * 3000, b'{"a":' * 900, b"\x1b[2J", b"::error::x", b"##[error]x", b"##vso[task.x]y"),
    *("\u202eabc".encode(), "\u2028".encode(), "٣".encode(), b"K", b"2026-02-30", b"\r", b"\t"),
)
NAMES: Final = (
    *("::error::x.yaml", "##[group]x.yaml", "a\nb.yaml", "\x1b[31mx.yaml", "x" * 250 + ".json", "-rf.yaml", ".yaml"),
    *(
        "\u202elmay.yaml",
        "trainspec.toml",
        "pyproject.toml",
        "%s%n.yaml",
        "a b.yaml",
        "con.yaml",
        "x.jsonl.gz",
        "x.zst",
    ),
    *("\udcff.yaml", "x.parquet", "..yaml", "*.yaml", "x]y[.yaml", "x.safetensors", "latest", "model_index.json"),
)
TREES: Final = ("rename", "remove", "empty", "directory", "dangling link", "link to itself", "link out", "copy", "fifo")


def _place(content: bytes, dice: random.Random) -> int:
    return dice.randrange(len(content) + 1)


def _flip(content: bytes, dice: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 8))):
        if damaged:
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    return bytes(damaged)


def _set(content: bytes, dice: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(dice.choice((1, 1, 4))):
        if damaged:
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, 10, 34, 91, 123))
    return bytes(damaged)


def _cut(content: bytes, dice: random.Random) -> bytes:
    return content[: _place(content, dice)]


def _remove(content: bytes, dice: random.Random) -> bytes:
    start = _place(content, dice)
    return content[:start] + content[start + dice.choice((1, 2, 7, 50, 400)) :]


def _repeat(content: bytes, dice: random.Random) -> bytes:
    start = _place(content, dice)
    piece = content[start : start + dice.choice((1, 4, 30, 500))]
    return content[:start] + piece * dice.choice((2, 3, 50)) + content[start:]


def _insert(content: bytes, dice: random.Random) -> bytes:
    start = _place(content, dice)
    return content[:start] + dice.choice(ODD) + content[start:]


def _noise(content: bytes, dice: random.Random) -> bytes:
    start = _place(content, dice)
    return content[:start] + dice.randbytes(dice.choice((1, 8, 300))) + content[start:]


def _swap_lines(content: bytes, dice: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    for _ in range(dice.choice((1, 3, 20))):
        if lines:
            one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def _remove_line(content: bytes, dice: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    for _ in range(dice.choice((1, 1, 3))):
        if lines:
            del lines[dice.randrange(len(lines))]
    return b"".join(lines)


def _substitute(pattern: re.Pattern[bytes], content: bytes, dice: random.Random) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return _insert(content, dice)
    match = dice.choice(found)
    return content[: match.start()] + dice.choice(ODD) + content[match.end() :]


def _value(content: bytes, dice: random.Random) -> bytes:
    return _substitute(VALUE, content, dice)


def _number(content: bytes, dice: random.Random) -> bytes:
    return _substitute(NUMBER, content, dice)


def _count(content: bytes, dice: random.Random) -> bytes:
    """Put another count where a binary header may hold one: eight bytes, four bytes, or a varint."""
    start = _place(content, dice)
    number = dice.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1))
    size = dice.choice((4, 8))
    piece = (number % 2 ** (8 * size)).to_bytes(size, dice.choice(("little", "big")))
    return content[:start] + piece + content[start + size :]


DAMAGES: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    *(_flip, _set, _cut, _remove, _repeat, _insert, _noise, _swap_lines, _remove_line, _value, _value, _number, _count),
)


def damaged(content: bytes, dice: random.Random) -> bytes:
    """The content with one kind of damage, or a few."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        content = dice.choice(DAMAGES)(content, dice)
    return content[:MAX_BYTES]


def damaged_tree(files: Mapping[str, bytes], dice: random.Random) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Files of a tree with damage in one of them, and now and then what happens to a name afterwards.

    Returns:
        The files by name, and pairs of what happens to a name and the name; a rename has the new name after a slash.
    """
    made = dict(files)
    name = dice.choice(sorted(made))
    actions = []
    if dice.random() < 0.9:
        made[name] = damaged(made[name], dice)
    else:
        actions.append((dice.choice(TREES), dice.choice(sorted(made))))
    return made, actions
