"""Reads the table of Xid errors, and says what their maker asks for after each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainspec_validate.system.digits import is_digits

_DATA = Path(__file__).resolve().parents[1] / "data"
PREFIX = "xid:"
"""Prefix of a vendor code of an Xid."""


@dataclass(frozen=True, slots=True)
class Xid:
    """An error of the driver, and the immediate action that the table of its maker names."""

    code: int
    mnemonic: str
    title: str
    action: str | None
    """The action by its name in the table; None where it names none."""
    words: str
    """The action in words; empty where there is none."""
    restart: bool
    """Whether the application has to start again."""
    reset: bool
    """Whether the device is out of use until it is reset."""


@cache
def xids() -> Mapping[int, Xid]:
    """Every Xid of the table by its code."""
    table = json.loads((_DATA / "xids.json").read_text(encoding="utf-8"))
    actions = {row["name"]: row for row in table["actions"]}
    found = {}
    for row in table["xids"]:
        action = actions[row["action"]] if "action" in row else {}
        words, restart, reset = action.get("words", ""), action.get("restart", False), action.get("reset", False)
        found[row["code"]] = Xid(row["code"], row["mnemonic"], row["title"], row.get("action"), words, restart, reset)
    return found


def xid(vendor_code: str) -> Xid | None:
    """The Xid of a vendor code; None for a code of another kind, and for one that the table does not have.

    >>> xid("xid:79").action, xid("xid:43").reset, xid("ras:umc"), xid("xid:9999")
    ('RESTART_BM', False, None, None)
    """
    number = vendor_code.removeprefix(PREFIX)
    is_number = vendor_code != number and is_digits(number) and len(number) <= 6
    return xids().get(int(number)) if is_number else None
