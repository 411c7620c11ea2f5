"""Reads the files of `changes/` and moves them into the changelog at a release."""

from __future__ import annotations

import argparse
import datetime as dt
import re
import sys
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
NAME = re.compile(r"(?P<what>[a-z0-9][a-z0-9-]*)\.(?P<kind>[a-z]+)\.md")
VERSION = re.compile(r"\d+\.\d+\.\d+")
HEADING = "## [Unreleased]"
WIDTH = 120


class ChangeError(Exception):
    """A file of `changes/`, or the changelog, does not have its form."""


def read(directory: Path) -> dict[str, list[str]]:
    """Entries by kind, in the order of the names of their files.

    Raises:
        ChangeError: a name is not of the form, a kind does not exist, or a file says nothing.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(directory.iterdir()):
        if path.name == "README.md":
            continue
        match = NAME.fullmatch(path.name)
        if match is None or match["kind"] not in KINDS:
            raise ChangeError(f"changes/{path.name}: a name is <what>.<kind>.md, the kind one of {', '.join(KINDS)}")
        text = " ".join(path.read_text(encoding="utf-8").split())
        if not text.endswith(".") or text.startswith(("-", "#")):
            raise ChangeError(f"changes/{path.name}: write sentences, without a bullet or a heading")
        found.setdefault(match["kind"], []).append(text)
    return found


def released(changelog: str, entries: dict[str, list[str]], version: str, day: dt.date) -> str:
    """The changelog with a section for the version: what stood under Unreleased, and the entries.

    Raises:
        ChangeError: the version has no form or is there already, nothing changed, or there is no Unreleased.
    """
    if not VERSION.fullmatch(version):
        raise ChangeError(f"{version!r} is not a version such as 0.2.0")
    if f"## [{version}]" in changelog:
        raise ChangeError(f"{version} is in the changelog already")
    before, found, rest = changelog.partition(f"{HEADING}\n")
    if not found:
        raise ChangeError(f"the changelog has no {HEADING}")
    unreleased, mark, older = rest.partition("\n## [")
    sections = _sections(unreleased)
    for kind, texts in entries.items():
        sections.setdefault(kind, []).extend(_bullet(text) for text in texts)
    if not sections:
        raise ChangeError("nothing changed since the last release")
    body = "\n\n".join(f"### {kind.title()}\n\n" + "\n".join(sections[kind]) for kind in KINDS if kind in sections)
    return f"{before}{HEADING}\n\n## [{version}] - {day.isoformat()}\n\n{body}\n{mark}{older}"


def _bullet(text: str) -> str:
    return "\n".join(wrap(f"- {text}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _sections(text: str) -> dict[str, list[str]]:
    """The lines below each heading of a kind, as one entry for each heading."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if body.strip():
            found.setdefault(title.strip().lower(), []).append(body.strip("\n"))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Check the files, or with a version move them into the changelog; exit 1 when one has no form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", nargs="?", help="version to release, such as 0.2.0; without it files are checked")
    version = parser.parse_args(arguments).version
    directory, changelog = ROOT / "changes", ROOT / "CHANGELOG.md"
    try:
        entries = read(directory)
        if version is not None:
            day = dt.datetime.now(tz=dt.UTC).date()
            text = released(changelog.read_text(encoding="utf-8"), entries, version, day)
            changelog.write_text(text, encoding="utf-8")
            for path in directory.glob("*.*.md"):
                path.unlink()
    except ChangeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{sum(map(len, entries.values()))} changes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
