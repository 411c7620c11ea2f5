"""Scores how much damage to real logs is detected, by kinds that public incidents gave.

Run with `python benchmarks/score_damage.py LOG...`; a LOG is a log of MLPerf, Megatron-LM or modded-nanogpt, also
compressed. `published/damage_incidents.csv` has each kind with its incident, what a log needs for it, and whether a
reader of the log alone can see it. Damage is caught when the validator has an error or a warning that the undamaged log
does not have, and said when its result becomes incomplete. The figures of a kind are over all logs that have what it
needs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from damage_kinds import OPERATORS
from damage_rows import Log, read_log

from trainspec_validate.model.finding import Report
from trainspec_validate.pipeline.validation import Selection, validate
from trainspec_validate.system.boundary import InputError

KINDS = Path(__file__).with_name("published") / "damage_incidents.csv"
AIM = 0.9


def read(path: Path) -> str:
    """The text of a log."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="replace")


def judged(text: str) -> tuple[Counter[tuple[str, str]], str]:
    """Errors and warnings by requirement and message without numbers, and the state of the result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        path.write_text(text, encoding="utf-8")
        try:
            report = validate(path, Selection())
        except InputError as refused:
            return Counter({("refused", type(refused).__name__): 1}), ""
        found = Counter(
            (finding.requirement, re.sub(r"[\d.,]+", "#", finding.message))
            for finding in report.findings
            if finding.severity.value != "note"
        )
        return found, _state(report)


def _state(report: Report) -> str:
    return "; ".join(lack for coverage in report.coverage for lack in coverage.lacks)


def damaged(path: Path, kind: dict[str, str]) -> str | None:
    """The damaged text; None where the log has not what the kind needs, or nothing changed."""
    log: Log = read_log(read(path))
    if kind["kind"] not in OPERATORS or not all(map(log.has, kind["needs"].split())):
        return None
    before = log.text()
    found = OPERATORS[kind["kind"]](log)
    after = found if isinstance(found, str) else found.text()
    return None if after == before else after


def score(paths: Iterable[Path], pattern: str) -> bool:
    """Print what was caught of each kind; whether it is as much as the aim."""
    with KINDS.open(encoding="utf-8") as file:
        kinds = [kind for kind in csv.DictReader(file) if re.search(pattern, kind["kind"])]
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    by: dict[str, Counter[str]] = defaultdict(Counter)
    missed: dict[str, list[str]] = defaultdict(list)
    producers: dict[str, Counter[str]] = defaultdict(Counter)
    for path in paths:
        log = read_log(read(path))
        undamaged, state = judged(log.text())
        for kind in kinds:
            text = damaged(path, kind)
            if text is None:
                continue
            found, result = judged(text)
            new = found - undamaged
            answer = "caught" if new else "said" if result != state else "missed"
            seen[kind["kind"]][answer] += 1
            by[kind["kind"]].update({requirement for requirement, _ in new})
            if answer == "missed":
                missed[kind["kind"]].append(path.name)
            if kind["visible"] == "yes":
                producers[log.producer][answer] += 1
    return _printed(kinds, seen, by, missed, producers)


def _printed(
    kinds: list[dict[str, str]],
    seen: dict[str, Counter[str]],
    by: dict[str, Counter[str]],
    missed: dict[str, list[str]],
    producers: dict[str, Counter[str]],
) -> bool:
    print(f"{'kind':30} {'logs':>5} {'caught':>7} {'said':>5} {'missed':>7}  found by, or first missed in")
    total, full, num_kinds = Counter[str](), 0, 0
    for kind in kinds:
        counts, name = seen[kind["kind"]], kind["kind"]
        number = counts.total()
        if not number:
            print(f"{name:30} {'none':>5}")
            continue
        words = " ".join(requirement.removeprefix("TS-") for requirement, _ in by[name].most_common(3))
        where = f" missed in {missed[name][0][:60]}" if missed[name] else ""
        mark = "" if kind["visible"] == "yes" else f"  ({kind['visible']})"
        print(
            f"{name:30} {number:5} {counts['caught']:7} {counts['said']:5} {counts['missed']:7}  {words}{where}{mark}"
        )
        if kind["visible"] == "yes":
            total += counts
            num_kinds += 1
            full += counts["missed"] == 0
    print()
    for producer, counts in sorted(producers.items()):
        print(f"{producer}: {counts['caught'] + counts['said']} of {counts.total()} detected")
    share = (total["caught"] + total["said"]) / max(total.total(), 1)
    print(
        f"visible damage: {total['caught']} caught and {total['said']} said of {total.total()} cases ({share:.1%}); "
        f"{full} of {num_kinds} kinds detected in every log; the aim is {AIM:.0%} of the cases"
    )
    return share >= AIM


def main() -> None:
    """Print the score of the logs that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("log", nargs="+", type=Path)
    parser.add_argument("--kind", default="", help="only kinds with names that match this pattern")
    arguments = parser.parse_args()
    sys.exit(0 if score(arguments.log, arguments.kind) else 1)


if __name__ == "__main__":
    main()
