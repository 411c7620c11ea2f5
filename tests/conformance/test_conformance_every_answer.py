"""Every check of an answer passes the right one, fails a wrong one, and reads an answer of any form without failing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from made_answers import probed, right
from spoilt_answers import ANSWERS, Spoilt
from trainspec_conformance.criteria import CannotJudgeError, Case, all_checks
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Entry
from trainspec_conformance.view import View

from trainspec_validate.documents.types.conformance import Claims

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1e308, 10**400, "NaN", "word"),
    *([], [[]], {}, [1, [2]], [None], [{}], [True], ["NaN"]),
    {"dtype": "float64", "shape": [-1], "base64": ""},
    {"dtype": "float32", "shape": [10**30], "base64": "AAAA"},
)
IDS = [f"{one.check}-{number}" for number, one in enumerate(ANSWERS)]


def messages(one: Spoilt, *answers: Entry) -> list[str]:
    """What a check says; what it cannot judge is said too."""
    scenario = all_scenarios()[one.scenario]
    criterion = next(each for each in scenario.criteria if (each.check, each.case) == (one.check, one.case))
    case = Case(scenario, Claims(), View([*answers, *(probed(name) for name in one.beside)]))
    try:
        return [problem.message for problem in all_checks()[one.check](case, criterion)]
    except CannotJudgeError as error:
        return [f"cannot be judged: {error}"]


@pytest.mark.parametrize("one", ANSWERS, ids=IDS)
def test_a_check_passes_the_right_answer_and_fails_a_wrong_one(one: Spoilt) -> None:
    assert messages(one, probed(one.case)) == []
    found = messages(one, probed(one.case, one.text(), one.peak))
    assert any(one.words in message for message in found), found


@pytest.mark.parametrize("one", ANSWERS, ids=IDS)
def test_a_check_fails_without_an_answer(one: Spoilt) -> None:
    assert messages(one)
    assert messages(one, probed(one.case, b"null"))
    assert messages(one, probed(one.case, b"[]"))
    assert messages(one, probed(one.case, b"{}")) or one.check == "steady-process"  # which is about its memory alone


@pytest.mark.parametrize("one", ANSWERS, ids=IDS)
def test_a_check_reads_values_of_any_form(one: Spoilt) -> None:
    told = msgspec.json.decode(right(one.case))
    for key, value in told.items():
        places = [value] if not isinstance(value, list) else [value, *value[:1]]
        for odd in ODD:
            spoilt = [odd, *([[odd, *value[1:]]] if len(places) > 1 else [])]
            spoilt += [[{**value[0], name: odd}, *value[1:]] for name in _names(places)]
            for new in spoilt:
                messages(one, probed(one.case, msgspec.json.encode({**told, key: new}), one.peak))


def _names(places: list[Any]) -> list[str]:
    return list(places[1]) if len(places) > 1 and isinstance(places[1], dict) else []
