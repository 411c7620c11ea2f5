"""Judges all logs of rounds of MLPerf, and records those with an error: place, requirement and message, never the log.

Run with `python benchmarks/public_logs.py CLONE...`; a CLONE is one of mlcommons/training_results_vX.Y, with or without
a work tree. The records are `published/public_logs.csv`, a row for each kind of error of a log at its first place, and
`published/public_log_rounds.csv`. A log that the clone lacks is counted and not judged. With `--check` nothing is
written: the exit code is 1 where what was found differs from the records. `--only ROUND/PATH` judges some of the logs
and prints what is found. `tools/public_log_page.py` writes the page of the site from the records.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainspec_validate import Severity, validate

PUBLISHED = Path(__file__).with_name("published")
LOGS, ROUNDS = "public_logs.csv", "public_log_rounds.csv"
LOG_COLUMNS = ("round", "path", "line", "requirement", "message")
ROUND_COLUMNS = ("round", "commit", "logs", "absent", "bytes", "with_error")
_ROUND = re.compile(r"training_results_(v\d+\.\d+)")
_RESULT = re.compile(r"(?:^|/)results/.+/result_\d+\.txt")
_NUMBERS = re.compile(r"\d[\d,.:]*")

Row = dict[str, str]


def git(clone: Path, *arguments: str) -> bytes:
    """Output of a git command; empty where it fails."""
    return subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, check=False).stdout


def listed(clone: Path) -> Iterator[tuple[str, str]]:
    """The path and the object of each log of a clone."""
    for entry in git(clone, "ls-tree", "-r", "-z", "HEAD").decode().split("\0"):
        about, _, path = entry.partition("\t")
        if _RESULT.search(path):
            yield path, about.split()[2]


def errors(log: Path) -> list[tuple[int, str, str]]:
    """Line, requirement and message of each kind of error of a log, at its first place."""
    found: dict[tuple[str, str], tuple[int, str, str]] = {}
    for finding in validate(log).at_or_above(Severity.ERROR):
        line = finding.span.line if finding.span else 1
        kind = (finding.requirement, _NUMBERS.sub("#", finding.message))
        found.setdefault(kind, (line, finding.requirement, finding.message))
    return sorted(found.values())


def judged(clone: Path, round_name: str, only: Sequence[str]) -> tuple[Row, list[Row]]:
    """The row of a round, and those of its errors."""
    rows: list[Row] = []
    counts = {"logs": 0, "absent": 0, "bytes": 0, "with_error": 0}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "result.txt"
        for path, content in listed(clone):
            if only and f"{round_name}/{path}" not in only:
                continue
            text = git(clone, "cat-file", "blob", content)
            if not text:
                counts["absent"] += 1
                continue
            copy.write_bytes(text)
            found = errors(copy)
            counts = {
                name: counts[name] + more for name, more in zip(counts, (1, 0, len(text), bool(found)), strict=True)
            }
            rows += [dict(zip(LOG_COLUMNS, (round_name, path, *map(str, each)), strict=True)) for each in found]
    commit = git(clone, "rev-parse", "HEAD").decode().strip()
    return {"round": round_name, "commit": commit, **{name: str(num) for name, num in counts.items()}}, rows


def written(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write a table."""
    with path.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def recorded(path: Path) -> list[Row]:
    """The rows of a table."""
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def differences(path: Path, rows: Sequence[Row], rounds: set[str]) -> int:
    """Print which rows of some rounds a table lacks or has too many; how many there are."""
    before = {tuple(row.values()) for row in recorded(path) if row["round"] in rounds}
    now = {tuple(row.values()) for row in rows}
    for sign, those in (("-", before - now), ("+", now - before)):
        for row in sorted(those):
            print(sign, *row)
    return len(before ^ now)


def main() -> int:
    """Judge the clones that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("clones", nargs="+", type=Path, metavar="CLONE")
    parser.add_argument("--check", action="store_true", help="Compare with the records, and write nothing.")
    parser.add_argument("--records", type=Path, default=PUBLISHED, metavar="FOLDER", help="Where the records are.")
    parser.add_argument("--only", action="append", default=[], metavar="ROUND/PATH", help="Judge this log alone.")
    given = parser.parse_args()
    rounds, rows = list[Row](), list[Row]()
    for clone in given.clones:
        name = _ROUND.search(clone.absolute().as_posix())
        if name is None:
            parser.error(f"{clone}: no clone of mlcommons/training_results_vX.Y by its name")
        of_round, of_logs = judged(clone, name[1], given.only)
        rounds.append(of_round)
        rows += of_logs
        print(*(f"{key} {value}" for key, value in of_round.items()), sep=", ", flush=True)
    if given.only:
        for row in rows:
            print(*row.values(), sep=" | ")
        return 0
    names = {row["round"] for row in rounds}
    tables = (given.records / ROUNDS, rounds), (given.records / LOGS, rows)
    if given.check:
        return int(sum(differences(path, found, names) for path, found in tables) > 0)
    rounds.sort(key=lambda row: row["round"])
    rows.sort(key=lambda row: (row["round"], row["path"], int(row["line"])))
    for (path, found), columns in zip(tables, (ROUND_COLUMNS, LOG_COLUMNS), strict=True):
        written(path, columns, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
