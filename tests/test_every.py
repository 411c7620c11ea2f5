"""`every` judges all items, lists those that fail, and fails without items."""

from __future__ import annotations

import re

import pytest

from tests.every import every


@every("one", [1, 2])
@every("other", [10, 20])
def test_loops_nest_and_take_fixtures(one: int, other: int, record_property: object) -> None:
    assert callable(record_property)
    assert other in {10, 20}
    assert one < other


def test_items_of_a_function_are_made_when_the_test_runs() -> None:
    made, judged = [], []

    def numbers() -> list[int]:
        made.append(True)
        return [1, 2]

    @every("number", numbers)
    def check(number: int) -> None:
        judged.append(number)

    assert made == []
    check()
    assert (made, judged) == ([True], [1, 2])


def test_every_item_that_fails_is_listed() -> None:
    @every("number", [3, 4, 5, "x"], ids=lambda number: f"number {number}")
    def is_even(number: int) -> None:
        if number == 5:
            pytest.fail("five")
        assert number % 2 == 0

    with pytest.raises(AssertionError) as caught:
        is_even()
    text = str(caught.value)
    assert text.startswith("3 of 4 fail:\n")
    assert re.findall(r"^number (\w): (\w+)", text, re.MULTILINE) == [
        ("3", "AssertionError"),
        ("5", "Failed"),
        ("x", "TypeError"),
    ]


def test_no_items_and_no_argument_are_mistakes() -> None:
    def check(path: str) -> None: ...

    with pytest.raises(AssertionError, match="there is no path to judge"):
        every("path", [])(check)()
    with pytest.raises(AssertionError, match="there is no path to judge"):
        every("path", list[str])(check)()
    with pytest.raises(AssertionError, match="check takes no argument file"):
        every("file", ["a"])(check)
