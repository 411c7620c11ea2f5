"""Which positions of a sequence each context rank holds: all of them once, with the same work for each rank."""

from __future__ import annotations

import numpy as np
import pytest
from trainspec_reference.common.ranks import own_positions, pieces_of


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_ranks_hold_each_position_once_and_see_as_many_keys(degree: int) -> None:
    whole = np.arange(4 * degree)
    shares = [own_positions(whole, rank, degree) for rank in range(degree)]
    assert sorted(np.concatenate(shares)) == list(whole)
    assert len({int((share + 1).sum()) for share in shares}) == 1
    assert sorted(number for rank in range(degree) for number in pieces_of(rank, degree)) == list(range(2 * degree))


@pytest.mark.parametrize(("length", "multiple", "size"), [(1, 1, 2), (7, 1, 4), (8, 1, 4), (10, 4, 8), (16, 4, 8)])
def test_what_does_not_divide_is_filled_up_at_the_end(length: int, multiple: int, size: int) -> None:
    tokens = np.arange(2 * length).reshape(2, length)
    shares = [own_positions(tokens, rank, 2, -1, multiple) for rank in range(2)]
    assert {share.shape for share in shares} == {(2, size)}
    early, late = zip(*(np.split(share, 2, axis=1) for share in shares), strict=True)
    joined = np.concatenate([*early, *reversed(late)], axis=1)
    np.testing.assert_array_equal(joined[:, :length], tokens)
    assert (joined[:, length:] == -1).all()
