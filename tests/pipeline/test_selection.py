"""A selection decides on each requirement by its id, its name and its chapter, in each index anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trainspec_validate.checking.selection import NOT_READ, Selection
from trainspec_validate.model.requirements import Requirement, load_index

INDEX = load_index()
ONE = INDEX.by_id["TS-COM-001"]


def taken(selection: Selection) -> set[str]:
    return {identifier for identifier in INDEX.by_id if selection.takes(INDEX, identifier)}


def of(**wanted: str) -> set[str]:
    """The requirements with these facts."""
    return {
        identifier
        for identifier, requirement in INDEX.by_id.items()
        if all(getattr(requirement, name) == value for name, value in wanted.items())
    }


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), of()),
        (Selection("core"), of(profile="core")),
        (Selection(select=("TS-COM",)), of(area="TS-COM")),
        (Selection(select=(ONE.id, "TS-PAR")), {ONE.id} | of(area="TS-PAR")),
        (Selection(select=(ONE.name,)), {ONE.id}),
        (Selection("core", select=("TS-COM",)), of(area="TS-COM")),
        (Selection(ignore=("TS-COM",)), of() - of(area="TS-COM")),
        (Selection("core", ignore=(ONE.name,)), of(profile="core") - {ONE.id}),
        (Selection(select=("TS-COM",), ignore=(ONE.id,)), of(area="TS-COM") - {ONE.id}),
        (Selection(select=(ONE.id,), ignore=("TS-COM",)), set()),
        (Selection(ignore=tuple(NOT_READ)), of()),
    ],
)
def test_requirements_are_taken_by_id_name_and_chapter(selection: Selection, wanted: set[str]) -> None:
    assert taken(selection) == wanted


def test_what_is_ignored_is_left_out_by_name() -> None:
    selection = Selection(select=(ONE.id,), ignore=("TS-PAR", *NOT_READ))
    ignored = {identifier for identifier in INDEX.by_id if selection.leaves_out(INDEX, identifier)}
    assert ignored == of(area="TS-PAR") - NOT_READ
    by_option = {entry.option: set(entry.requirements) for entry in selection.left_out(INDEX, "", ())}
    checked = {identifier for identifier, one in INDEX.by_id.items() if one.check not in {"manual", "runtime"}}
    assert by_option == {"ignore": ignored & checked, "select": checked - ignored - {ONE.id}}


def test_lists_select_too() -> None:
    words: Any = ["TS-COM"]
    assert taken(Selection(select=words)) == of(area="TS-COM")


def test_another_index_has_decisions_of_its_own() -> None:
    selection = Selection(select=("TS-COM",))
    assert selection.takes(INDEX, ONE.id)
    other: Requirement = replace(ONE, id="TS-OWN-001", name="own")
    widened = replace(INDEX, by_id={**INDEX.by_id, other.id: other})
    assert not selection.takes(widened, other.id)
    assert Selection(select=("own",)).takes(widened, other.id)
    with pytest.raises(KeyError):
        selection.takes(INDEX, other.id)
