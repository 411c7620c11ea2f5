"""Limits refuse what passes them, by name and number, and accept what reaches them."""

from __future__ import annotations

import pickle

import pytest

from trainspec_validate.system import budget
from trainspec_validate.system.budget import Count, Limit, OverLimitError


@pytest.fixture(autouse=True)
def _own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LIMITS", {})


def test_a_limit_accepts_its_own_value_and_names_itself_when_passed() -> None:
    limit = Limit("a parcel", 1_000, "grams")
    limit.check(1_000)
    with pytest.raises(OverLimitError, match="a parcel may have at most 1,000 grams") as refused:
        limit.check(1_001)
    assert refused.value.limit is limit
    assert list(budget.LIMITS.values()) == [limit]


def test_a_count_adds_up() -> None:
    count = Count(Limit("a parcel", 3, "stamps"))
    count.add()
    count.add(2)
    with pytest.raises(OverLimitError, match="3 stamps"):
        count.add()


def test_a_refusal_travels_between_processes() -> None:
    refused = OverLimitError(Limit("a parcel", 3, "stamps"))
    arrived = pickle.loads(pickle.dumps(refused))
    assert (type(arrived), str(arrived), arrived.limit) == (OverLimitError, str(refused), refused.limit)
