"""Read a folder of other people's files with the importer: how many are read, refused and why, and what is wrong.

Run with `python benchmarks/imports.py FOLDER`. `INDEX.csv` in the folder may name the repository of each file, in the
columns repository, commit, path and file. `TRUTH.csv`, or the table of `--truth`, holds values that a person took from
the files by hand, in the columns file, key and value: the key with dots, the value as JSON, and `open` for a value that
no file states, which the importer must leave open. A table such as `published/values_checked_by_hand.csv`, with the
columns repository, path, key and in_result, serves as well: it is compared for the files that `INDEX.csv` has. A value
that is left open where the table has one counts apart from a wrong one. The exit code is 1 when a file crashed or a
value is wrong.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainspec_validate.documents.load import load_text
from trainspec_validate.interop.document import document, facts_of
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.merge import Choice, merge
from trainspec_validate.interop.open import foreign_text
from trainspec_validate.interop.recognise import recognise

OPEN = "open"
"""Entry of the table for a value that a file does not state."""
NAMED = "named"
"""The verdict on a setting that no key takes and that a remark names."""
_TABLES = frozenset({"INDEX.csv", "TRUTH.csv"})
_ABSENT = object()
_RELATIVE = 1e-9
_MAX_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Read:
    """Result of one file: its facts, or the reason for their absence."""

    name: str
    format: str = ""
    facts: dict[str, Any] | None = None
    refused: str = ""
    crashed: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Truth:
    """One value that a person took from a file."""

    file: str
    key: str
    value: Any


@dataclass(slots=True)
class Score:
    """How the values of the table compare with what was read."""

    num_right: int = 0
    left_open: list[Truth] = field(default_factory=list)
    wrong: list[tuple[Truth, Any]] = field(default_factory=list)


def read(path: Path, name: str) -> Read:
    """One file on its own, read, joined, written as a document and loaded again."""
    start = time.perf_counter()
    try:
        text = foreign_text(path, name)
        found = recognise(text)
        merged = merge([found.read(text)], Choice(None, None))
        written = load_text(document(merged), "written.yaml").data
        facts = facts_of(merged)
        if written != facts:
            return Read(name, found.name, crashed="the written document does not read back to the same facts")
        return Read(name, found.name, facts, seconds=time.perf_counter() - start)
    except ForeignFormatError as error:
        return Read(name, refused=str(error), seconds=time.perf_counter() - start)
    except Exception as error:
        return Read(name, crashed=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - start)


def value_of(facts: dict[str, Any] | None, key: str) -> Any:
    """The value at a key with dots, in which a number is a position; `_ABSENT` where there is none."""
    place: Any = facts
    for part in key.split("."):
        if isinstance(place, dict) and part in place:
            place = place[part]
        elif isinstance(place, list) and part.isdigit() and int(part) < len(place):
            place = place[int(part)]
        else:
            return _ABSENT
    return place


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, numbers up to their last digits."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_RELATIVE)
    return bool(one == other)


def score(truths: Iterable[Truth], results: dict[str, Read]) -> Score:
    """Every value of the table with the value that was read."""
    found = Score()
    for truth in truths:
        result = results.get(truth.file)
        if result is None:
            sys.exit(f"the table names {truth.file}, which is not in the folder")
        value = value_of(result.facts, truth.key)
        if same(value, truth.value) if truth.value != OPEN else value is _ABSENT:
            found.num_right += 1
        elif value is _ABSENT:
            found.left_open.append(truth)
        else:
            found.wrong.append((truth, value))
    return found


def table(path: Path, folder: Path) -> list[Truth]:
    """The values of a table; a value that is no JSON is a word."""
    truths = []
    places = {(row["repository"], row["path"]): row["file"] for row in index_of(folder)}
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            file = row["file"] if "file" in row else places.get((row["repository"], row["path"]))
            written = row["value"] if "value" in row else row["in_result"]
            if file is None or row.get("verdict") == NAMED:
                continue
            try:
                value = json.loads(written)
            except json.JSONDecodeError:
                value = written
            truths.append(Truth(file, row["key"], value))
    return truths


def index_of(folder: Path) -> list[dict[str, str]]:
    """The rows of the index of a folder."""
    index = folder / "INDEX.csv"
    if not index.is_file():
        return []
    with index.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def repositories(folder: Path) -> dict[str, str]:
    """The repository of each file, where an index names it."""
    return {row["file"]: row["repository"] for row in index_of(folder)}


def files(folder: Path) -> Iterator[str]:
    """Every file of a folder by its path in it, in order, but for the tables."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in _TABLES:
            yield name


def reason(text: str) -> str:
    """A refusal without what is only of one file, so that alike ones count together."""
    words = text.split("; ", maxsplit=1)[0].split(":", maxsplit=1)[0]
    return " ".join("..." if any(letter.isdigit() for letter in word) else word for word in words.split())[:90]


def report(results: dict[str, Read], told: dict[str, str], truths: list[Truth] | None) -> bool:
    """Print the figures; whether nothing crashed and nothing is wrong."""
    done = [result for result in results.values() if result.facts is not None]
    crashed = [result for result in results.values() if result.crashed]
    refused = Counter(reason(result.refused) for result in results.values() if result.refused)
    slowest = max(results.values(), key=lambda result: result.seconds)
    print(f"files         {len(results):6,}")
    if told:
        print(f"repositories  {len({told[name] for name in results if name in told}):6,}")
    print(f"read          {len(done):6,}")
    for name, count in Counter(result.format for result in done).most_common():
        print(f"  {count:6,}  {name}")
    print(f"refused       {sum(refused.values()):6,}")
    for words, count in refused.most_common(_MAX_SHOWN):
        print(f"  {count:6,}  {words}")
    print(f"crashed       {len(crashed):6,}")
    for result in crashed[:_MAX_SHOWN]:
        print(f"          {result.name}: {result.crashed[:100]}")
    print(f"slowest       {slowest.seconds:6.2f} s  {slowest.name}")
    if truths is None:
        return not crashed
    found = score(truths, results)
    print(f"values        {len(truths):6,}  of {len({truth.file for truth in truths})} files")
    print(f"  right       {found.num_right:6,}")
    print(f"  left open   {len(found.left_open):6,}")
    print(f"  wrong       {len(found.wrong):6,}")
    for truth, value in found.wrong[: 2 * _MAX_SHOWN]:
        shown = "left open" if value is _ABSENT else repr(value)
        print(f"          {truth.file}: {truth.key} is {shown[:60]}, {truth.value!r:.60} by hand")
    for truth in found.left_open[:_MAX_SHOWN]:
        print(f"    open: {truth.file}: {truth.key}, {truth.value!r:.60} by hand")
    return not crashed and not found.wrong


def by_repository(results: dict[str, Read], folder: Path, path: Path) -> None:
    """Write how the files of each repository fared, one line for each."""
    commits = {row["repository"]: row["commit"] for row in index_of(folder)}
    told = repositories(folder)
    with path.open("w", encoding="utf-8", newline="") as out:
        table_of = csv.writer(out, lineterminator="\n")
        table_of.writerow(("repository", "commit", "files", "read", "refused", "crashed"))
        for name in sorted(commits, key=str.casefold):
            own = [result for file, result in results.items() if told.get(file) == name]
            counts = (
                sum(map(bool, column)) for column in zip(*((r.facts, r.refused, r.crashed) for r in own), strict=True)
            )
            table_of.writerow((name, commits[name], len(own), *counts))


def main() -> None:
    """Read the folder and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--truth", type=Path, help="table of values by hand; TRUTH.csv of the folder where not given")
    parser.add_argument("--facts", type=Path, help="where to write what was read, one line of JSON for each file")
    parser.add_argument("--table", type=Path, help="where to write the counts of each repository, as CSV")
    arguments = parser.parse_args()
    names = list(files(arguments.folder))
    if not names:
        sys.exit(f"{arguments.folder}: there is no file")
    results = {name: read(arguments.folder / name, name) for name in names}
    if arguments.facts:
        rows = (
            {"file": result.name, "format": result.format, "facts": result.facts, "refused": result.refused}
            for result in results.values()
        )
        arguments.facts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if arguments.table:
        by_repository(results, arguments.folder, arguments.table)
    truth = arguments.truth or arguments.folder / "TRUTH.csv"
    truths = table(truth, arguments.folder) if truth.is_file() else None
    sys.exit(0 if report(results, repositories(arguments.folder), truths) else 1)


if __name__ == "__main__":
    main()
