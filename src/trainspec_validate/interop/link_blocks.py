"""Splits what `nvidia-smi nvlink` prints into the lines of each GPU, and names the lines that no reader takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from trainspec_validate.interop.link_counters import is_counter

_MAX_LINE: Final = 1_000
_SHOWN: Final = 60
"""Characters of a line that are shown."""
HEAD: Final = re.compile(r"^GPU (?P<index>[0-9]{1,4}): .{0,100}\(UUID: (?P<uuid>GPU-[0-9a-fA-F-]{36})\)", re.MULTILINE)
_DAMAGED_HEAD = re.compile(r"GPU [0-9]{1,4}:\s|.*\(?UUID\b", re.IGNORECASE)
_STATE = re.compile(r"^\s+Link (?P<link>[0-9]{1,3}): (?P<state>.{0,100}?)\s*$")
_STRAY = re.compile(r"\s*Link [0-9]{1,3}: (?:[0-9.]{1,12} GB/s|<inactive>)\s*$")
_NONE = "all links are inactive"
"""Printed in the place of the links; `nvidia-smi -L` prints the GPUs and nothing of links."""
_OTHER = re.compile(r"\s+(?:Link [0-9]{1,3}, [A-Z]|MIG )")
"""Capabilities of a link, and the instances of a GPU in `nvidia-smi -L`."""


@dataclass(slots=True)
class Block:
    """The lines below the line of one GPU."""

    name: str
    states: list[tuple[str, str]] = field(default_factory=list)
    """Links and what is printed for them: a rate, or `<inactive>`."""
    counters: list[str] = field(default_factory=list)
    is_inactive: bool = False
    """Whether the output says that no link is active."""
    others: list[str] = field(default_factory=list)
    """Indented lines that are neither."""


def blocks(text: str) -> tuple[list[Block], list[str]]:
    r"""The GPUs of a text in their order, and what of their links is not read.

    >>> head = "GPU 0: H100 (UUID: GPU-00000000-0000-0000-0000-000000000020)"
    >>> found, unread = blocks(f"{head}\n  Link 0: 26.562 GB/s\n  Lin 1: 26.562 GB/s\n")
    >>> found[0].states, unread
    ([('0', '26.562 GB/s')], ['a line of links whose form is not known: Lin 1: 26.562 GB/s'])
    """
    found: list[Block] = []
    stray: list[str] = []
    odd: list[str] = []
    block: Block | None = None
    for line in text.split("\n"):
        short = line[:_MAX_LINE]
        if head := HEAD.match(short):
            block = Block(head["uuid"])
            found.append(block)
        elif block is not None and short[:1].isspace():
            _take(block, line, short)
        elif block is not None and _DAMAGED_HEAD.match(short):
            odd.append(line)
            block = None
        elif _STRAY.match(short) or is_counter(line):
            stray.append(line)
        elif line.strip():
            block = None
    if any(one.states or one.counters or one.is_inactive for one in found):
        odd += [line for one in found for line in one.others]
    return found, [*_told(odd, "whose form is not known"), *_told(stray, "that are below the line of no GPU")]


def _take(block: Block, line: str, short: str) -> None:
    if is_counter(line):
        block.counters.append(line)
    elif state := _STATE.match(short):
        block.states.append((state["link"], state["state"]))
    elif _NONE in short.lower():
        block.is_inactive = True
    elif short.strip() and not _OTHER.match(short):
        block.others.append(line)


def _told(lines: Sequence[str], why: str) -> list[str]:
    if not lines:
        return []
    number = "a line" if len(lines) == 1 else f"{len(lines)} lines"
    return [f"{number} of links {why}: {lines[0].strip()[:_SHOWN]}"]
