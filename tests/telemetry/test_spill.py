"""Records of a run that exceeds the memory are put in order through files, piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainspec_validate.telemetry.decode.batch import Batch, from_columns, in_order, join, take
from trainspec_validate.telemetry.fold import spill

NUM = 1_500
NUM_SAVED_AT_ONCE = 100


def _records(seq: list[int], time_us: list[int], writer: list[int]) -> Batch:
    """One value for each record; the value is the number of the record."""
    none = [-1] * NUM
    columns = ([0] * NUM, list(range(NUM)), time_us, seq, none, none, none, writer, [0] * NUM, [0] * NUM)
    return from_columns(columns, (list(range(NUM)), [0] * NUM, [float(number) for number in range(NUM)]))


def _parts_of(whole: Batch) -> list[Batch]:
    """The records in their order, some at a time."""
    rows = [np.arange(start, min(NUM, start + NUM_SAVED_AT_ONCE)) for start in range(0, NUM, NUM_SAVED_AT_ONCE)]
    return [take(whole, each) for each in rows]


def _mixed(most: int) -> list[int]:
    return np.random.default_rng(0).integers(0, most, NUM).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    ("seq", "time_us", "num_writers"),
    [
        pytest.param(list(range(NUM))[::-1], list(range(NUM)), 1, id="reversed"),
        pytest.param(_mixed(10**12), _mixed(10**15), 3, id="mixed"),
        pytest.param([0] * NUM, list(range(NUM))[::-1], 2, id="one-number"),
        pytest.param([-1] * NUM, _mixed(7), 2, id="no-number-and-few-times"),
        pytest.param([5] * (NUM - 1) + [4], [9] * NUM, 1, id="one-number-but-for-the-last"),
        pytest.param([5] * (NUM - 1) + [6], _mixed(3), 2, id="few-times-and-a-larger-number"),
        pytest.param([0] * NUM, [0] * NUM, 3, id="equal"),
    ],
)
def test_large_part_comes_back_in_order(  # noqa: PLR0913, PLR0917
    seq: list[int], time_us: list[int], num_writers: int, by_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer's records have the order that they have when all are sorted at once, and no piece is large."""
    whole = _records(seq, time_us, [number % num_writers for number in range(NUM)])
    part = tmp_path / "0.npy"
    spill._distribute(((each, np.zeros(each.num_records, int)) for each in _parts_of(whole)), [part])
    monkeypatch.setattr(spill, "_SORTED_BYTES", part.stat().st_size // 8)
    pieces = list(spill._ordered(part, by_time=by_time))
    assert len(pieces) >= 4
    assert max(piece.num_records for piece in pieces) <= NUM // 2
    found, wanted = join(pieces), in_order(whole, by_time=by_time)
    for writer in range(num_writers):
        assert found.offset[found.writer == writer].tolist() == wanted.offset[wanted.writer == writer].tolist()
    assert found.sample_value[found.sample_record.argsort()].tolist() == found.offset.tolist()
