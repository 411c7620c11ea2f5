"""Paths that some file systems hold as one are found, and long ones cost no more than their characters."""

from __future__ import annotations

import tracemalloc
from itertools import combinations
from unicodedata import normalize

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.checkpoints.paths import above, folded_twins

NAMES = st.sampled_from(["a", "A", "b", "ab", "aB", "\u00e9", "e\u0301", "\u00c9", "ss", "\u00df", "a.b", "a-b"])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=6)


def folded(path: str) -> str:
    return normalize("NFD", normalize("NFD", path).casefold())


@examples(400)
@given(PATHS)
def test_twins_are_found_where_two_paths_or_what_is_above_them_fold_alike(paths: list[str]) -> None:
    every = {part for path in paths for part in (path, *above(path))}
    alike = [(one, other) for one, other in combinations(sorted(every), 2) if folded(one) == folded(other)]
    found = folded_twins(paths)
    assert bool(found) is bool(alike)
    assert {frozenset(pair) for pair in found} <= {frozenset(pair) for pair in alike}


def test_long_paths_take_memory_of_their_length() -> None:
    paths = [f"{number}/{'a/' * 2000}x" for number in range(200)]
    tracemalloc.start()
    try:
        assert folded_twins(paths) == []
        assert tracemalloc.get_traced_memory()[1] < 20 * sum(map(len, paths))
    finally:
        tracemalloc.stop()
