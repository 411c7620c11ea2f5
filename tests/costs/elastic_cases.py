"""Bounds of elastic jobs, and their world sizes by trying all of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from trainspec_validate.performance.costs.elastic import Bounds

MICROS = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    least = draw(st.sampled_from((1, 1, 2, 5, 20)))
    most = least + draw(st.integers(0, 200))
    return Bounds(least, most, draw(st.sampled_from((1, 1, 2, 3, 8))), draw(st.sampled_from((1, 1, 4, 8))))


def brute_force(batch: int, micros: Sequence[int], limits: Bounds) -> set[tuple[int, int, int, int]]:
    """Every world, data degree, micro-batch and accumulation, by trying all of them."""
    return {
        (world, world // limits.model_parallel, micro, steps)
        for world in range(limits.min_accelerators, limits.max_accelerators + 1)
        if world % limits.model_parallel == 0 and world % limits.ranks_per_node == 0
        for micro in micros
        for steps in [batch // (micro * (world // limits.model_parallel))]
        if steps >= 1 and micro * steps * (world // limits.model_parallel) == batch
    }
