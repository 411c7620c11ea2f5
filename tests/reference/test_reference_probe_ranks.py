"""What the first rank of a probe returns counts, whatever another one does as it leaves; without it the probe fails."""

from __future__ import annotations

import os
import time

import pytest
from trainspec_conformance.testbed import probe_ranks
from trainspec_conformance.testbed.probe_ranks import Member, on_ranks


def leaves_badly(member: Member, seconds: float) -> str:
    """Rank 1 ends with an error at once, rank 0 returns after so many seconds."""
    if member.rank:
        os._exit(3)
    time.sleep(seconds)
    return "done"


def fails(member: Member, rank: int) -> str:
    """One rank ends with an error, and no rank returns."""
    if member.rank == rank:
        os._exit(3)
    time.sleep(60)
    return "never"


@pytest.mark.slow
def test_a_rank_that_fails_as_it_leaves_takes_nothing_back() -> None:
    assert on_ranks(leaves_badly, [2.0, 2.0]) == "done"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_before_is_named(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_ranks, "_LEAVING_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match=f"rank {rank} of 2 failed"):
        on_ranks(fails, [rank, rank])
