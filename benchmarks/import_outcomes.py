"""Import a folder of other people's files with `trainspec import`, and write or check the table of outcomes.

Run with `python benchmarks/import_outcomes.py FOLDER TABLE`, or with `--check` to compare the table instead of writing
it. `INDEX.csv` in the folder names the repository of each file, in the columns repository, commit, path and file. The
table has one row for each repository and outcome: `read` with the format, `refused` with the kind of reason, `crashed`.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import Counter
from pathlib import Path

from click.testing import CliRunner, Result

from trainspec_validate.cli.toolbox import command

COLUMNS = ("repository", "commit", "outcome", "format", "files")
_FORMAT = re.compile(r"(?m)^#   .*\((?P<name>[\w-]+)\)$")
_STREAM = re.compile(r"(?m)^\S+ +(?P<name>[\w.-]+) +[\d,]+ +[\d,]+$")
_REASONS = (
    ("manifest", "a manifest of Kubernetes"),
    ("named", "no reader knows|code is never executed|batch script of Slurm|names its training|MLPerf submission"),
    ("starts-another-file", "starts a job by its configuration file"),
    ("trains-nothing", "no program that trains|evaluates, or prepares data"),
    ("unknown", "fits no known format"),
)


def outcome(result: Result) -> tuple[str, str]:
    """Outcome of one file, with its format or the kind of reason."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "crashed", type(result.exception).__name__
    stream = result.stdout.startswith("{")
    if result.exit_code == 0 or stream:
        found = (_STREAM if stream else _FORMAT).search(result.stderr if stream else result.stdout)
        return "read", found["name"] if found else "stream"
    return "refused", next((name for name, words in _REASONS if re.search(words, result.stderr)), "other")


def table(folder: Path) -> list[dict[str, str]]:
    """The rows of the table, in order."""
    counts: Counter[tuple[str, ...]] = Counter()
    with (folder / "INDEX.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            result = CliRunner().invoke(command, ["import", str(folder / "files" / row["file"])])
            counts[row["repository"], row["commit"], *outcome(result)] += 1
    rows = sorted(counts.items(), key=lambda item: (item[0][0].casefold(), item[0][2:]))
    return [dict(zip(COLUMNS, (*key, str(count)), strict=True)) for key, count in rows]


def write(rows: list[dict[str, str]], path: Path) -> None:
    """The table as a file."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Write the table of a folder, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    rows = table(given.folder)
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["outcome"]] += int(row["files"])
    print(*(f"{name} {count}" for name, count in sorted(totals.items())), sep=", ")
    if not given.check:
        write(rows, given.table)
        return
    with given.table.open(encoding="utf-8", newline="") as lines:
        if list(csv.DictReader(lines)) != rows:
            sys.exit(f"{given.table} is out of date")


if __name__ == "__main__":
    main()
