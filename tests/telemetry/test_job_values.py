"""The values of the whole job are bounded in memory, and thinned alike however a run is split."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.telemetry.decode.names import Names, Writer
from trainspec_validate.telemetry.fold import jobs
from trainspec_validate.telemetry.fold.jobs import JOB, JobValues, parts_of

KEYS = tuple(f"train.loss.mean{{part={number}}}" for number in range(4))
NAMES = Names()
NAMES.writer(Writer("r-1", "e", 0))
for key in KEYS:
    NAMES.key(key)
IN_PLACE = np.arange(len(KEYS))


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Bounds that small runs pass."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "MAX_VALUES", 200)
        patch.setattr(jobs, "MOST_VALUES", 500)
        patch.setattr(jobs, "MOST_HELD", 64)
        yield


def values_of(key: int, first: int, num: int, *, is_stepless: bool = False) -> Any:
    """Values of one key at successive places."""
    found = np.zeros(num, JOB)
    found["key"], found["offset"] = key, np.arange(first, first + num)
    found["seq"], found["value"] = found["offset"], found["offset"] / 7
    found["step"] = 0 if is_stepless else found["offset"]
    found["weight"], found["low"], found["high"] = 1.0, np.nan, np.nan
    return found


def kept(*batches: Any) -> JobValues:
    found = JobValues()
    for batch in batches:
        found.add(batch)
        assert found.num_held <= jobs.MOST_HELD + len(batch)
    return found


def told(found: JobValues) -> dict[str, tuple[int, list[int]]]:
    return {name: (series.thinned, series.offset.tolist()) for name, series in found.of(NAMES).items()}


def moved(later: JobValues, path: Path) -> tuple[JobValues, list[Any]]:
    """As another process hands them over: what it counted, and its values from a file."""
    with path.open("wb") as file:
        later.move_to(file)
    assert later.num_held == 0
    with path.open("rb") as file:
        return pickle.loads(pickle.dumps(later)), list(parts_of(file))


@examples(30)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 12),
)
def test_thinning_is_the_same_for_any_split(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], one: int, other: int
) -> None:
    first, batches = 0, []
    for key, num in sizes:
        batches.append(values_of(key, first, num))
        first += num
    cuts = sorted((min(one, len(batches)), min(other, len(batches))))
    shares = [kept(*batches[: cuts[0]]), kept(*batches[cuts[0] : cuts[1]]), kept(*batches[cuts[1] :])]
    folder = tmp_path_factory.mktemp("shares")
    whole, parts = moved(shares[0], folder / "0")
    whole.take_back(parts)
    for number, share in enumerate(shares[1:]):
        whole.merge(*moved(share, folder / f"{number + 1}"), IN_PLACE)
        assert whole.num_held <= jobs.MOST_HELD
    in_memory = kept(*batches[: cuts[0]])
    for share in (batches[cuts[0] : cuts[1]], batches[cuts[1] :]):
        later = kept(*share)
        in_memory.merge(later, later.parts(), IN_PLACE)
    assert told(in_memory) == told(whole)
    assert told(whole) == told(kept(*batches)) == told(pickle.loads(pickle.dumps(whole)))


def test_many_values_of_one_series_keep_every_so_manieth_step() -> None:
    found = told(kept(values_of(0, 0, 150), values_of(1, 150, 700)))
    assert found[KEYS[0]] == (1, [*range(150)])
    assert found[KEYS[1]] == (4, [*range(152, 850, 4)])


def test_all_series_together_are_bounded() -> None:
    found = told(kept(*(values_of(key, key * 1_000, 190) for key in range(4))))
    assert {thinned for thinned, _ in found.values()} == {2}
    assert sum(len(offsets) for _, offsets in found.values()) <= jobs.MOST_VALUES


def test_values_of_one_step_are_left_out_by_their_place() -> None:
    ((thinned, offsets),) = told(kept(values_of(0, 0, 5_000, is_stepless=True))).values()
    assert thinned == 1 << 20
    assert offsets == [*range(0, 5_000, 32)]


def test_as_few_keys_are_put_in_order_at_once_as_one_series_may_take() -> None:
    left = np.array([150, 60, 0, 200, 1, 199, 5])
    assert list(jobs._together(left)) == [[0], [1], [3], [4, 5], [6]]
