"""The steps that judge a document grow with its lists, not with their squares; beyond a limit a list is refused."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.step_counts import num_steps, quadratic_share
from trainspec_validate.cli.validate import command
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.load._base import MAX_ITEMS, MAX_LAYOUT_ITEMS
from trainspec_validate.pipeline import reading
from trainspec_validate.rules._groups import MAX_VIOLATIONS

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
FILES = ("cluster.yaml", "plan.yaml", "checkpoint.yaml")
DOCUMENTS = {name: load_file(BASE / name).data for name in FILES}
DIFFERING = {"num_nodes", "num_cores", "group_num_nodes", "interval_seconds", "message_bytes", "capacity_bytes"}
SOME, MORE = 720, 100
"""Numbers of items beyond the caps of all rules, so that only the length of a list differs."""
Place = tuple[str | int, ...]


def lists(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every list in a value, of lists of mappings those of the first item."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from lists(item, (*place, key))
    elif isinstance(value, list):
        yield place
        yield from lists(value[0], (*place, 0))


def with_list(file: str, place: Place, number: int, *, all_differ: bool = False) -> dict[str, Any]:
    """The base documents with one list repeated, with names of their own and, if asked, values of their own."""
    return with_lists([(file, place)], number, all_differ=all_differ)


def with_lists(chosen: list[tuple[str, Place]], number: int, *, all_differ: bool = False) -> dict[str, Any]:
    """The base documents with some lists repeated, likewise."""

    def own(item: Any, index: int, key: str = "") -> Any:
        if isinstance(item, dict):
            return {name: own(value, index, name) for name, value in item.items()}
        if isinstance(item, list):
            return [own(each, index) for each in item]
        if key == "name":
            return f"{item}-{index}"
        return item + index if all_differ and key in DIFFERING else item

    documents = copy.deepcopy(DOCUMENTS)
    for file, place in chosen:
        holder = documents[file]
        for step in place[:-1]:
            holder = holder[step]
        items = holder[place[-1]]
        holder[place[-1]] = [own(items[index % len(items)], index) for index in range(number)]
    return documents


def put(documents: dict[str, Any], directory: Path) -> list[str]:
    """The arguments that judge documents."""
    for name, data in documents.items():
        (directory / name).write_text(json.dumps(data), encoding="utf-8")
    return [*(str(directory / name) for name in documents), "--format", "json"]


def judged(documents: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The report on documents."""
    result = CliRunner().invoke(command, put(documents, directory))
    assert result.exit_code in {0, 1}, result.output[-2000:]
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def share_of_pairs(chosen: list[tuple[str, Place]], directory: Path, *, all_differ: bool = False) -> float:
    """Steps for each pair of items of some lists, beside those for each item."""

    def num_of(number: int) -> int:
        arguments = put(with_lists(chosen, number, all_differ=all_differ), directory)
        return num_steps(lambda: CliRunner().invoke(command, arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(difflib, "get_close_matches", lambda *_, **__: [])  # its steps follow from the letters of names
        patch.setattr(reading, "_SMALL", 0)  # shorter documents take another way, of fewer steps
        num_of(2)  # what is read and made once
        return quadratic_share(num_of, SOME, MORE)


def requirements(report: dict[str, Any]) -> list[str]:
    return [finding["requirement"] for finding in report["findings"]]


QUADRATIC_BEFORE: list[tuple[str, Place]] = [
    ("cluster.yaml", ("node_groups",)),
    ("cluster.yaml", ("node_groups", 0, "nics")),
    ("cluster.yaml", ("fabrics", 0, "tiers")),
    ("plan.yaml", ("parallelism", "order")),
    ("checkpoint.yaml", ("tiers",)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "place"), QUADRATIC_BEFORE)
def test_the_longest_list_of_names_is_judged(file: str, place: Place, tmp_path: Path) -> None:
    report = judged(with_list(file, place, MAX_ITEMS), tmp_path)
    assert "TS-DOC-003" not in requirements(report)
    assert max(map(requirements(report).count, requirements(report)), default=0) <= MAX_VIOLATIONS + 1


@pytest.mark.slow
@pytest.mark.parametrize(("file", "place"), QUADRATIC_BEFORE)
def test_steps_grow_with_a_list_and_not_with_its_pairs(file: str, place: Place, tmp_path: Path) -> None:
    assert abs(share_of_pairs([(file, place)], tmp_path)) < 0.5


TWO_LISTS: list[list[tuple[str, Place]]] = [
    [("cluster.yaml", ("measurements",)), ("cluster.yaml", ("node_groups",))],
    [("cluster.yaml", ("fabrics",)), ("cluster.yaml", ("node_groups",))],
    [("cluster.yaml", ("storage_targets",)), ("checkpoint.yaml", ("tiers",))],
    [("checkpoint.yaml", ("detection",)), ("checkpoint.yaml", ("recovery",))],
]


@pytest.mark.slow
@pytest.mark.parametrize("chosen", TWO_LISTS, ids=lambda chosen: "-".join(place[-1] for _, place in chosen))
def test_two_of_the_longest_lists_are_judged(chosen: list[tuple[str, Place]], tmp_path: Path) -> None:
    report = judged(with_lists(chosen, MAX_ITEMS, all_differ=True), tmp_path)
    assert "TS-DOC-003" not in requirements(report)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", TWO_LISTS, ids=lambda chosen: "-".join(place[-1] for _, place in chosen))
def test_steps_grow_with_two_lists_and_not_with_their_pairs(chosen: list[tuple[str, Place]], tmp_path: Path) -> None:
    assert abs(share_of_pairs(chosen, tmp_path, all_differ=True)) < 0.5


def test_measurements_that_name_no_group_are_not_held_against_too_many_groups(tmp_path: Path) -> None:
    documents = with_lists([("cluster.yaml", ("measurements",)), ("cluster.yaml", ("node_groups",))], 710)
    for named in (False, True):
        report = judged(documents, tmp_path)
        assert ("more than 500,000 pairs of a measurement" in json.dumps(report)) != named
        for own in documents["cluster.yaml"]["measurements"]:
            own["group"] = documents["cluster.yaml"]["node_groups"][0]["name"]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "place"), [(name, place) for name in FILES for place in lists(DOCUMENTS[name])])
def test_every_list_at_its_limit_is_judged_in_steps_that_grow_with_it(file: str, place: Place, tmp_path: Path) -> None:
    report = judged(with_list(file, place, MAX_ITEMS, all_differ=True), tmp_path)
    assert "TS-DOC-003" not in requirements(report)
    assert abs(share_of_pairs([(file, place)], tmp_path, all_differ=True)) < 0.5
    if (file, place) in QUADRATIC_BEFORE:
        assert max(map(requirements(report).count, requirements(report)), default=0) <= MAX_VIOLATIONS + 1


@pytest.mark.slow
@pytest.mark.parametrize(("file", "place"), QUADRATIC_BEFORE)
def test_a_longer_list_is_refused_with_the_limit(file: str, place: Place, tmp_path: Path) -> None:
    report = judged(with_list(file, place, MAX_ITEMS + 1), tmp_path)
    found = [finding for finding in report["findings"] if finding["path"].endswith(file)]
    assert [finding["requirement"] for finding in found] == ["TS-DOC-003"]
    assert found[0]["message"] == f"{place[-1]} has 10,001 items; a list may have at most 10,000 here"
    assert found[0]["pointer"] == "/" + "/".join(map(str, place))


def test_a_layout_may_have_longer_lists(tmp_path: Path) -> None:
    documents = copy.deepcopy(DOCUMENTS)
    for number, expected in ((MAX_ITEMS + 1, 0), (MAX_LAYOUT_ITEMS + 1, 1)):
        documents["cluster.yaml"]["layout"] = {"switches": [{"name": f"s{index}"} for index in range(number)]}
        report = judged(documents, tmp_path)
        assert requirements(report).count("TS-DOC-003") == expected


@pytest.mark.parametrize("number", [MAX_VIOLATIONS, MAX_VIOLATIONS + 1, MAX_VIOLATIONS + 500])
def test_one_requirement_is_listed_in_a_bounded_number_of_places(number: int, tmp_path: Path) -> None:
    documents = copy.deepcopy(DOCUMENTS)
    documents["plan.yaml"]["communication"]["nic_names"] = [f"unknown{index}" for index in range(number)]
    report = judged(documents, tmp_path)
    found = [finding for finding in report["findings"] if finding["requirement"] == "TS-COM-002"]
    assert len(found) == min(number, MAX_VIOLATIONS + 1)
    others = [finding for finding in found if "in more than 100 places" in finding["message"]]
    assert [finding["pointer"] for finding in others] == ["/communication/nic_names"][: number > MAX_VIOLATIONS]
    assert {finding["severity"] for finding in found} == {"error"}


def test_a_plan_is_not_judged_on_too_many_different_groups(tmp_path: Path) -> None:
    for number in (100, 101):
        documents = with_list("cluster.yaml", ("node_groups",), number)
        for index, group in enumerate(documents["cluster.yaml"]["node_groups"]):
            group["num_nodes"] = 16 + index
        report = judged(documents, tmp_path)
        told = "names no node_group, and its job may run on 101 different ones" in json.dumps(report)
        assert told == (number > 100)


def test_what_no_group_can_tell_is_said_of_the_plan_that_was_given(tmp_path: Path) -> None:
    chosen: list[tuple[str, Place]] = [("cluster.yaml", ("fabrics",)), ("cluster.yaml", ("node_groups",))]
    report = judged(with_lists(chosen, 3, all_differ=True), tmp_path)
    assert {finding["requirement"] for finding in report["findings"]}
