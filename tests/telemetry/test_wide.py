"""Values that are folded as whole columns give what they give one by one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_makers import as_parquet, put, streams_in

from tests.examples import examples
from tests.streams_made.damage import BASES, kinds
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, together
from trainspec_validate.telemetry.decode.identities import Numbering
from trainspec_validate.telemetry.decode.reader import batches
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold import large
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats import parquet
from trainspec_validate.telemetry.formats.native import read_line
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.kernels.column_fold import Some
from trainspec_validate.telemetry.kernels.layout import SERIES

pytest.importorskip("pyarrow")
DAMAGE = {kind.name: kind for kind in kinds()}
ON_VALUES = (
    *(("not-a-number", 3), ("hole", 1_024), ("doubled-records", 3), ("counters-reset-again-and-again", 1_024)),
    *(("second-job-writer", 3), ("reversed-times", 3)),
)
"""Kinds of damage, each with values of a series that are folded at once."""


def one_file(texts: dict[str, bytes], folder: Path) -> list[RunFile]:
    """All records of a run in one Parquet file of small row groups, plain rows and others mixed."""
    ((_, text),) = texts.items()
    records: list[Any] = [read_line(line) for line in text.splitlines()]
    path = folder / "all.parquet"
    parquet.write(records, path)
    return [run_file(0, path, path.name)]


def folded(files: list[RunFile], *, in_columns: bool, num_at_once: int = 1_024) -> Digest:
    digest = Digest()
    digest.some = Some(*(array[:num_at_once] for array in digest.some))
    for file in files:
        for batch in batches(Stretch(file), digest.names, digest.facts(file.number), in_columns=in_columns):
            assert batch.table is None or in_columns
            digest.add(batch)
    return digest


def assert_same(found: Digest, wanted: Digest) -> None:
    """Bit by bit but for the sums of windows, which are of many series."""
    num = wanted.num_rows
    assert (found.num_rows, found.num_records, found.num_samples) == (num, wanted.num_records, wanted.num_samples)
    for name in SERIES.names or ():
        np.testing.assert_array_equal(found.rows[name][:num], wanted.rows[name][:num], err_msg=name)
    np.testing.assert_allclose(found.frame.windows, wanted.frame.windows, rtol=1e-12)
    np.testing.assert_array_equal(found.frame.locks, wanted.frame.locks)
    assert found.trails.gathered.keys() == wanted.trails.gathered.keys()
    for key, trail in wanted.trails.gathered.items():
        mine = found.trails.gathered[key]
        assert (mine.num, mine.subjects, mine.first_us) == (trail.num, trail.subjects, trail.first_us)
        assert sorted(map(repr, mine.first.tolist())) == sorted(map(repr, trail.first.tolist()))
    for number, facts in wanted.files.items():
        assert found.files[number].num_of_key == facts.num_of_key
        assert found.files[number].first_of_key == facts.first_of_key
    assert {key: len(values.value) for key, values in found.jobs.of(found.names).items()} == {
        key: len(values.value) for key, values in wanted.jobs.of(wanted.names).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_at_once"), ON_VALUES)
def test_columns_fold_as_single_values_do(name: str, num_at_once: int, tmp_path: Path) -> None:
    if not jit.compile_loops():
        pytest.skip("numba is not installed")
    made = DAMAGE[name].apply(make_run(BASES[DAMAGE[name].base]))
    streams = streams_in({file: bytes(text) for file, text in made.items() if isinstance(text, bytes)})
    assert streams is not None
    files = as_parquet(streams, tmp_path / "twins")
    assert_same(folded(files, in_columns=True, num_at_once=num_at_once), folded(files, in_columns=False))


@pytest.mark.slow
def test_rows_that_are_more_than_numbers_lie_between_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not jit.compile_loops():
        pytest.skip("numba is not installed")
    monkeypatch.setattr(parquet, "ROWS_OF_A_GROUP", 500)
    run = make_run(BASES[DAMAGE["hang"].base])
    files = one_file(together(run.streams), tmp_path)
    found = folded(files, in_columns=True)
    assert found.num_samples > 1_000
    assert_same(found, folded(files, in_columns=False))


def test_row_groups_are_shared_out_whole_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_OF_A_GROUP", 200)
    run = make_run(BASES[DAMAGE["hang"].base])
    (file,) = one_file(together(run.streams), tmp_path)
    num = parquet.num_row_groups(file.path)
    assert num > 6
    for num_workers in (1, 2, 3, 5):
        shares = list(large.split([file], num_workers, least_bytes=1))
        ranges = [(stretch.start, stretch.end or num) for share in shares for stretch in share]
        assert len(shares) == num_workers
        assert ranges[0][0] == 0
        assert ranges[-1][1] == num
        assert all(end == start for (_, end), (start, _) in pairwise(ranges))
        assert max(end - start for start, end in ranges) <= num // num_workers + 1


@pytest.mark.parametrize("is_first", [True, False])
def test_a_share_may_hold_no_value(is_first: bool, tmp_path: Path) -> None:
    texts = by_emitter(make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=40)).streams)
    names = sorted(texts)[:2]
    empty = names[0] if is_first else names[1]
    files = put(
        {name: texts[name].split(b"\n")[0] + b"\n" if name == empty else texts[name] for name in names}, tmp_path
    )
    shares = [[Stretch(file)] for file in files]
    found, wanted = large._folded(shares), large.fold_share([stretch for share in shares for stretch in share])
    assert wanted.num_rows
    assert_same(found, wanted)


@examples(30)
@given(codes=st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 400)), min_size=1, max_size=900))
@pytest.mark.parametrize("compiled", [True, False])
def test_numbers_are_given_in_the_order_of_coming(compiled: bool, codes: list[tuple[int, int]]) -> None:
    if compiled and not jit.compile_loops():
        pytest.skip("numba is not installed")
    known: dict[tuple[int, int], int] = {}
    wanted = [known.setdefault(code, len(known)) for code in codes]
    numbering = Numbering(2)
    half = len(codes) // 2
    found: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "is_compiled", lambda: compiled)
        for part in filter(None, (codes[:half], codes[half:])):
            found += numbering.of(*np.array(part).T).tolist()
    assert found == wanted
    assert numbering.codes[: numbering.num].tolist() == [list(code) for code in known]
