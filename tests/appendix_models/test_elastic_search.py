"""The batch that runs on the most world sizes, against brute force and a published example."""

from __future__ import annotations

import doctest
import random

import pytest
from appendix_models import elastic_search
from appendix_models.elastic_search import best_batch
from hypothesis import given
from hypothesis import strategies as st

from tests.costs.elastic_cases import MICROS, bounds, brute_force
from trainspec_validate.performance.costs.elastic import Bounds, data_degrees


@given(st.integers(1, 400), MICROS, bounds(), st.booleans())
def test_the_best_batch_is_that_of_brute_force(most: int, micros: list[int], limits: Bounds, larger: bool) -> None:
    counts = {batch: len({s[0] for s in brute_force(batch, micros, limits)}) for batch in range(1, most + 1)}
    wanted = max(counts, key=lambda batch: (counts[batch], batch if larger else -batch))
    choice = best_batch(most, micros, limits, prefer_larger=larger)
    if counts[wanted] == 0:
        assert choice is None
    else:
        assert choice is not None
        assert (choice.global_sequences, len(choice.data_degrees)) == (wanted, counts[wanted])


@pytest.mark.slow
@pytest.mark.parametrize("larger", [True, False])
def test_the_search_agrees_with_the_table(larger: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is what large cases use; here it runs where the table can check it."""
    source = random.Random(12)
    for _ in range(1200):
        most, least = source.randint(1, 3000), source.choice((1, 1, 1, 2, 5, 20))
        micros = [source.randint(1, 14) for _ in range(source.randint(1, 4))]
        model, node = source.choice((1, 1, 2, 3, 8)), source.choice((1, 1, 4, 8))
        limits = Bounds(least, least + source.choice((3, 40, 400)), model, node)
        monkeypatch.setattr(elastic_search, "MAX_TABLE", 10**9)
        table = best_batch(most, micros, limits, prefer_larger=larger)
        monkeypatch.setattr(elastic_search, "MAX_TABLE", 0)
        assert best_batch(most, micros, limits, prefer_larger=larger) == table, (most, micros, limits)


def test_a_hundred_thousand_ranks() -> None:
    choice = best_batch(1_000_000, [1], Bounds(1, 100_000))
    assert choice is not None
    # 720,720 has 240 divisors, the most below a million; 7 of them are above 100,000 (its 1/1 to 1/7).
    assert choice.global_sequences == 720_720
    assert len(choice.data_degrees) == 240 - 7
    assert len(data_degrees(720_720, [1], Bounds(1, 100_000))) == 233


def test_deepspeed_example() -> None:
    # Documentation of DeepSpeed's elasticity: at most 10,000, micro-batches 8, 12, 16 and 17, 32 to 1,500 GPUs.
    choice = best_batch(10_000, [8, 12, 16, 17], Bounds(32, 1500))
    assert choice is not None
    assert choice.global_sequences == 9792
    assert len(choice.data_degrees) == 23


def test_a_search_that_would_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_search, "MAX_TABLE", 0)
    monkeypatch.setattr(elastic_search, "MAX_VISITS", 10)
    with pytest.raises(ValueError, match="too many batches"):
        best_batch(10_000, [1], Bounds(500, 510))
    with pytest.raises(ValueError, match="data degrees"):
        best_batch(10**12, [1], Bounds(1, 10**12))


def test_replicas_that_do_not_fill_nodes_make_no_world() -> None:
    assert best_batch(100, [1], Bounds(3, 5, 2, 8)) is None
    assert best_batch(7, [8], Bounds(1, 8)) is None


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\w"):
        best_batch(0, [1], Bounds(1, 1))


def test_examples() -> None:
    result = doctest.testmod(elastic_search)
    assert result.attempted >= 2
    assert result.failed == 0
