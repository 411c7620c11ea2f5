"""The guide on errors of devices names the actions of the table of Xids."""

from __future__ import annotations

import re
from pathlib import Path

from trainspec_validate.model.xids import xid

GUIDE = Path(__file__).resolve().parents[2] / "spec" / "guide" / "device-errors.md"
ROW = re.compile(r"^\| (?P<code>\d+) \| (?P<title>[^|]+) \| (?P<action>[^|]+) \|$", re.MULTILINE)


def test_the_actions_of_the_guide_are_those_of_the_table() -> None:
    rows = ROW.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(rows) == 6
    for code, title, action in rows:
        found = xid(f"xid:{code}")
        assert found is not None
        assert (title, action) == (found.title, found.words)
