"""Keeps the requirement index of a released version, from which the page of changes is made."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASED = re.compile(r"\d+\.\d+(\.\d+)?")


class HistoryError(Exception):
    """The version is a draft, or was kept before with another text."""


def keep(index: Path, history: Path) -> Path:
    """Copy an index to `history/VERSION.json`; returns that path.

    Raises:
        HistoryError: the version is a draft, or is there already and differs.
    """
    text = index.read_text(encoding="utf-8")
    version = str(json.loads(text)["specification_version"])
    if not RELEASED.fullmatch(version):
        raise HistoryError(f"{version} is no released version; the number of a release is like 1.0")
    target = history / f"{version}.json"
    if target.exists() and target.read_text(encoding="utf-8") != text:
        raise HistoryError(f"{version} was released with another index; what is released stays as it was")
    history.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def main(arguments: list[str] | None = None) -> int:
    """Keep the index as it is in the repository; exit 1 when it is a draft or was kept before and differs."""
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    spec = ROOT / "spec"
    try:
        target = keep(spec / "v1" / "requirements.json", spec / "history")
    except HistoryError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"kept: {target.relative_to(ROOT)}; now run: python tools/generate.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
