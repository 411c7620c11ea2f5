"""No rule falls silent because a list has one more entry: equal halves of a group, or things that nothing uses."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from many import (
    CHANGES,
    Complaint,
    Data,
    complaints,
    larger_group,
    of_kind,
    split_groups,
    two_fabrics,
    unused_group,
    verdict_on,
)
from overlay import overlay
from spec_text import MARK

from trainspec_validate.documents.load import LoadError, load_file, load_text
from trainspec_validate.model.finding import Severity, Verdict
from trainspec_validate.model.requirements import Example, load_index

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "spec" / "v1" / "base"
RULES = [r for r in load_index().by_id.values() if r.check == "rule" and r.bad]
EXAMPLES = sorted((ROOT / "examples").glob("[cp]*/*.yaml"))
Change = Callable[[Data], dict[str, Any] | None]

ROOM = "there are more nodes, and the documents name no group"
UNNAMED = "a measurement of one of several groups names it, which the same requirement reports instead"
OF_NO_GROUP = "a node of which nothing says to which of several unlike groups it belongs is an error of TS-CLU-054"
UNKNOWN = "accelerators of an unknown maker may be those that the library runs on, which is said as not judged"
ANSWERED: dict[tuple[str, str], str] = {
    **{(change, "TS-CKP-056"): ROOM for change in ("unused_group", "open_group", "larger_group")},
    **{
        ("larger_group", identifier): ROOM
        for identifier in (
            "TS-PAR-002",
            "TS-BAT-021",
            "TS-BAT-049",
            "TS-CLU-034",
            "TS-TOP-012",
            "TS-TOP-026",
            "TS-CKP-105",
        )
    },
    **{(change, "TS-CLU-044"): UNNAMED for change in ("split_groups", "unused_group", "open_group", "larger_group")},
    **{
        (change, identifier): OF_NO_GROUP
        for change in ("unused_group", "open_group", "larger_group")
        for identifier in ("TS-CLU-054", "TS-CLU-073", "TS-CLU-074")
    },
    **{(change, "TS-CLU-075"): UNKNOWN for change in ("unused_group", "open_group", "larger_group")},
}
"""Findings that a change answers, by the name of the change and the requirement, with why."""

LACKED = "the requirement is that one entry of the list is so"
AT_AN_END = "the requirement is on the first or the last entry, which the new one is"
FULLER = "with one more tier the store is too small, which TS-CKP-022 reports"
FASTER = "more interfaces carry more, or a tier more serves more of them"
MORE_ROOM: dict[tuple[str, str], str] = {
    ("TS-CLU-002", "node_groups"): "the count that was wrong for one group is right for two",
    ("TS-TOP-026", "node_groups"): "one more group on the fabric of another has room for the job with it",
    ("TS-TOP-026", "node_groups.1.nics"): "the interface is on the fabric that joins the groups",
    **{
        (identifier, "node_groups"): ROOM
        for identifier in ("TS-BAT-021", "TS-BAT-049", "TS-CKP-056", "TS-CLU-034", "TS-PAR-002", "TS-TOP-012")
    },
    **{
        (identifier, "node_groups.0.nics"): FASTER
        for identifier in ("TS-CLU-034", "TS-CLU-047", "TS-COM-026", "TS-TOP-012", "TS-TOP-024")
    },
    **{(identifier, "fabrics.0.tiers"): FASTER for identifier in ("TS-TOP-012", "TS-TOP-015")},
    **{(identifier, "fabrics.0.tiers"): AT_AN_END for identifier in ("TS-TOP-011", "TS-TOP-022")},
    **{(identifier, "batch.ramp"): AT_AN_END for identifier in ("TS-BAT-007", "TS-BAT-009")},
    **{(identifier, "tiers"): LACKED for identifier in ("TS-CKP-019", "TS-CKP-023")},
    **{(identifier, "detection"): LACKED for identifier in ("TS-CKP-038", "TS-CKP-039", "TS-CKP-043")},
    **{(identifier, "communication.collectives"): LACKED for identifier in ("TS-COM-010", "TS-COM-020")},
    ("TS-MEM-010", "storage_targets"): LACKED,
    ("TS-CKP-113", "tiers"): FULLER,
}
"""Findings that one more entry answers, by requirement and list, with why."""


@cache
def base(file: str) -> Any:
    return load_text((BASE / file).read_text(encoding="utf-8"), file).data


@cache
def bad_examples(identifier: str) -> Data | None:
    """The *Bad:* documents of a requirement over the base documents; None where one of them cannot be read."""
    return over_base(load_index().by_id[identifier].bad)


def over_base(examples: Iterable[Example]) -> Data | None:
    merged = {file: base(file) for file in ("cluster.yaml", "plan.yaml", "checkpoint.yaml")}
    for example in examples:
        try:
            data = load_text(re.sub(rf"  {MARK.pattern}", "", example.text, flags=MARK.flags), example.file).data
        except LoadError:
            return None
        is_whole = "apiVersion" in data
        merged[example.file] = data if is_whole else overlay(base(example.file.rsplit("-", 1)[-1]), data)
    return merged


@cache
def said_of_bad(identifier: str) -> dict[Complaint, Severity]:
    data = bad_examples(identifier)
    assert data is not None
    return complaints(data)


@cache
def example(path: Path) -> Data:
    """An example with everything that it refers to."""
    found, pending = {}, [path]
    while pending:
        here = pending.pop()
        data = found[str(here)] = load_file(here).data
        references = (data.get(key) for key in ("cluster", "plan"))
        pending += [(here.parent / reference["file"]).resolve() for reference in references if reference]
    return found


@cache
def said_of_example(path: Path) -> dict[Complaint, Severity]:
    return complaints(example(path))


Before = Callable[[], dict[Complaint, Severity]]
"""What the rules say of documents before a change."""


def lost(data: Data, change: Change, before: Before) -> Iterator[tuple[Complaint, Severity]]:
    """Findings that a change takes away, or makes lighter."""
    changed = change(data)
    if changed is None:
        return
    after = complaints(changed)
    for complaint, severity in before().items():
        least = min(severity, Severity.WARNING, key=lambda one: one.rank) if change is larger_group else severity
        now = after.get(complaint)
        if (now is None or now.rank < least.rank) and (change.__name__, complaint[0]) not in ANSWERED:
            yield complaint, severity


def lost_of_bad(identifier: str, data: Data, change: Change) -> list[tuple[Complaint, Severity]]:
    return list(lost(data, change, partial(said_of_bad, identifier)))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.long
def test_a_longer_list_hides_no_finding_of_a_bad_example(change: Change) -> None:
    sets = {rule.id: data for rule in RULES if (data := bad_examples(rule.id)) is not None}
    assert len(sets) == len(RULES)
    assert {name: found for name, data in sets.items() if (found := lost_of_bad(name, data, change))} == {}


@pytest.mark.parametrize("change", [split_groups, larger_group, two_fabrics], ids=lambda change: change.__name__)
def test_a_longer_list_hides_no_finding_of_a_rule_on_plans_and_clusters(change: Change) -> None:
    wanted = {"TrainingPlan", "ClusterProfile"}
    sets = {r.id: data for r in RULES if wanted <= set(r.documents) and (data := bad_examples(r.id)) is not None}
    assert len(sets) > 40
    assert {name: found for name, data in sets.items() if (found := lost_of_bad(name, data, change))} == {}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("change", [split_groups, unused_group], ids=lambda change: change.__name__)
def test_a_longer_list_hides_no_finding_of_an_example(path: Path, change: Change) -> None:
    assert list(lost(example(path), change, partial(said_of_example, path))) == []


def test_equal_halves_of_a_group_are_one_machine_to_the_examples() -> None:
    """What splitting adds says that a group is to be named, or that a domain no longer fits."""
    said = set()
    for path in EXAMPLES:
        data = example(path)
        halves = split_groups(data)
        if halves is not None:
            said |= {identifier for identifier, *_ in complaints(halves).keys() - said_of_example(path).keys()}
            assert not any(plan.get("node_group") for plan in of_kind(halves, "TrainingPlan"))
    assert said <= {"TS-CLU-012", "TS-CLU-020", "TS-CLU-044", "TS-TOP-017"}


def lists_of(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where lists of mappings are."""
    if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        yield place
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from lists_of(inner, (*place, key))


def entries_at(document: Any, place: tuple[str | int, ...]) -> list[Any]:
    """The list at a place; empty where the document has none there."""
    for key in place:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return []
    return document if isinstance(document, list) else []


def with_one_more(data: Data, file: str, place: tuple[str | int, ...], entry: Any, *, first: bool) -> Data:
    changed = copy.deepcopy(dict(data))
    entries = entries_at(changed[file], place)
    named = {"name": "another"} if "name" in entry else {}
    entries.insert(0 if first else len(entries), {**copy.deepcopy(entry), **named})
    return changed


def longer_lists(data: Data, good: Data) -> Iterator[tuple[tuple[str | int, ...], Data]]:
    """The documents with one more entry in one list, first or last: one of its own, or one of the *Good:* example."""
    for file, document in data.items():
        for place in lists_of(document):
            found: list[Any] = []
            for entry in (*entries_at(document, place), *entries_at(good.get(file), place)):
                if entry not in found:
                    found.append(entry)
            for entry in found:
                yield place, with_one_more(data, file, place, entry, first=True)
                yield place, with_one_more(data, file, place, entry, first=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_one_more_entry_in_a_list_passes_no_bad_example(part: int) -> None:
    """What was wrong is wrong next to an equal or a right entry, or is named as not judged."""
    num_tried, reached, passed = 0, set(), set()
    rules = RULES[part::6]
    for rule in rules:
        data, good = bad_examples(rule.id), over_base(rule.good)
        if data is None or good is None or verdict_on(data, rule.id) in (Verdict.PASS, Verdict.NOT_APPLICABLE):
            continue
        for place, longer in longer_lists(data, good):
            num_tried += 1
            try:
                verdict = verdict_on(longer, rule.id)
            except AssertionError:  # of a form that no document has
                continue
            reached.add(rule.id)
            if verdict in (Verdict.PASS, Verdict.NOT_APPLICABLE):
                passed.add((rule.id, ".".join(map(str, place))))
    assert num_tried > 2_000
    names = {rule.id for rule in rules}
    assert reached == names
    assert passed == {(name, place) for name, place in MORE_ROOM if name in names}
