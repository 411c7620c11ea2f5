"""Prints the share of damage that is noticed, per operator: `python -m tests.mutation [--sample N] [--survivors]`."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .judge import DocumentSet, changes_meaning, load_set, notices, same_document
from .operators import OPERATORS, Mutant

LEAST_SHARE = 0.95
"""Share of damage that has to be noticed, by every operator."""
ROOT = Path(__file__).resolve().parent.parent.parent


def document_sets() -> Iterator[DocumentSet]:
    """The base documents together, and every example with what it refers to."""
    from trainspec_validate.documents.load import load_file

    yield load_set("base", sorted((ROOT / "spec" / "v1" / "base").glob("*.yaml")))
    for path in sorted((ROOT / "examples").glob("[cp]*/*.yaml")):
        wanted = {path}
        pending = [path]
        while pending:
            here = pending.pop()
            for key in ("cluster", "plan"):
                reference = load_file(here).data.get(key)
                if isinstance(reference, dict) and "file" in reference:
                    target = (here.parent / reference["file"]).resolve()
                    if target not in wanted:
                        wanted.add(target)
                        pending.append(target)
        yield load_set(path.relative_to(ROOT).as_posix(), [path, *sorted(wanted - {path})])


def mutants(documents: DocumentSet) -> Iterator[tuple[str, Mutant]]:
    """Every damage to the first document of a set, and to all documents of the base set."""
    paths = list(documents.data) if documents.name == "base" else list(documents.data)[:1]
    for path in paths:
        data = documents.data[path]
        for operator in OPERATORS:
            for mutant in operator(data):
                if changes_meaning(data["kind"], mutant) and not same_document(data["kind"], data, mutant.data):
                    yield path, mutant


def run(sample: int | None, seed: int) -> tuple[Counter[str], Counter[str], list[str]]:
    """Judged and noticed mutants per operator, and a line per survivor."""
    judged: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    survivors = []
    everything = [(documents, path, mutant) for documents in document_sets() for path, mutant in mutants(documents)]
    if sample is not None and sample < len(everything):
        everything = random.Random(seed).sample(everything, sample)
    for documents, path, mutant in everything:
        judged[mutant.operator] += 1
        if notices(documents, path, mutant.data):
            noticed[mutant.operator] += 1
        else:
            place = ".".join(str(step) for step in mutant.pointer)
            survivors.append(f"{mutant.operator:20} {documents.name} {Path(path).name} {place}: {mutant.what}")
    return judged, noticed, survivors


def table(judged: Counter[str], noticed: Counter[str]) -> str:
    """A line per operator and one for all of them."""
    rows = [(name, noticed[name], count) for name, count in judged.items()]
    rows.append(("all", noticed.total(), judged.total()))
    return "\n".join(f"{name:20} {seen:6} of {count:6} noticed: {seen / count:.1%}" for name, seen, count in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="judge this many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--survivors", action="store_true", help="list what was not noticed")
    arguments = parser.parse_args()
    judged, noticed, survivors = run(arguments.sample, arguments.seed)
    if arguments.survivors:
        print("\n".join(sorted(survivors)))
    print(table(judged, noticed))
    return 0 if noticed.total() >= LEAST_SHARE * judged.total() else 1


if __name__ == "__main__":
    sys.exit(main())
