"""What is seen of a run does not depend on how its records lie in files, nor on how those are read."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_makers import LAYOUTS, as_parquet, places, put, said, seen, shuffled, streams_in

from tests.examples import examples
from tests.streams_made.damage import BASES, kinds
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, together
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold import engine, large, spill
from trainspec_validate.telemetry.fold.build import view_of
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.engine import Options, circumstances, read_run
from trainspec_validate.telemetry.fold.merge import merge
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.view.run_view import RunView

RUN = make_run(Shape(num_nodes=2, devices_per_node=2, num_steps=90, faults=True))
STREAMS = list(RUN.streams)
SMALL = list(make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=70, faults=True)).streams)
Whole = tuple[list[RunFile], dict[str, Any], dict[str, Any]]
"""Files, and what is seen of them and where when they are read at once."""
DAMAGE = {kind.name: kind for kind in kinds()}
ON_TEXT = (
    "cut-line",
    "merged-lines",
    "invalid-utf8",
    "head-in-the-middle",
    "missing-head",
    "truncated-file",
    "empty-file",
)
ON_RECORDS = (
    *("second-job-writer", "sequence-starts-again", "whole-file-twice", "doubled-records", "reversed-times", "hole"),
    *("not-a-number", "counters-reset-again-and-again", "device-without-name", "old-attempt-goes-on", "hang"),
    *("two-names-for-one-metric", "times-in-milliseconds", "second-value-at-the-same-time", "step-in-a-name"),
)


def view(digest: Digest, files: list[RunFile]) -> RunView:
    return view_of(digest, circumstances(files, digest, Options()))


def spilled(files: list[RunFile]) -> RunView:
    return view(spill.sorted_digest(files), files)


def in_processes(files: list[RunFile]) -> RunView:
    return view(large.large_digest(files, 3), files)


def cut(files: list[RunFile], shares: list[float]) -> RunView:
    """Each file in stretches of bytes, folded one by one and merged."""
    heads = {file.number: large.leading_heads(file.path) for file in files}
    parts: list[Digest] = []
    for file in files:
        ends = [int(share * file.num_bytes) for share in sorted(shares)]
        for start, end in zip([0, *ends], [*ends, None], strict=True):
            parts.append(large.fold_share([Stretch(file, start, end, heads[file.number] if start else ())]))
    for later in parts[1:]:
        merge(parts[0], later)
    return view(parts[0], files)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_LEAST_BYTES", 50_000)
    monkeypatch.setattr(spill, "_PART_BYTES", 200_000)
    monkeypatch.setattr(spill, "_SORTED_BYTES", 50_000)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[RunFile]]:
    files = put(by_emitter(STREAMS), tmp_path_factory.mktemp("base"))
    return seen(read_run(files)), files


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, part in wanted.items():
        assert found[name] == part, name


# --- other files


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_however_the_records_lie_in_files(layout: str, base: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    if layout == "zst":
        pytest.importorskip("zstandard")
    files = put(LAYOUTS[layout](STREAMS), tmp_path)
    found = read_run(files)
    assert_same(seen(found), base[0])
    assert not said(found, files)
    assert_same(seen(in_processes(files)), base[0])


@pytest.mark.slow
def test_in_parquet(base: tuple[dict[str, Any], Any], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    files = as_parquet(STREAMS, tmp_path / "twin")
    found = read_run(files)
    assert_same(seen(found), base[0])
    assert not said(found, files)
    assert_same(seen(in_processes(files)), base[0])


# --- the same files, read in other ways


def damaged(name: str) -> dict[str, bytes]:
    """The stream files of a damaged run."""
    kind = DAMAGE[name]
    files = kind.apply(make_run(BASES[kind.base]))
    return {name: bytes(text) for name, text in files.items() if isinstance(text, bytes)}


WAYS = (spilled, in_processes)
ORDERS = ("one file, lines in any order", "by time, names in any order", "other names")
EACH = tuple(enumerate((*ON_TEXT, *ON_RECORDS)))


@pytest.mark.slow
@pytest.mark.parametrize(("number", "name"), EACH)
def test_damage_however_it_lies_and_is_read(number: int, name: str, tmp_path: Path) -> None:
    """Each kind in one other order and read in one other way; each order and each way with many kinds."""
    assert_found(name, ORDERS[number % 3 :][:1], WAYS[number % 2 :][:1], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("number", "name"), EACH)
def test_damage_in_every_order_and_way(number: int, name: str, tmp_path: Path) -> None:
    """Each kind in the orders and ways that the test above leaves out."""
    orders = (*ORDERS[: number % 3], *ORDERS[number % 3 + 1 :])
    assert_found(name, orders, (WAYS[1 - number % 2],), tmp_path)


def assert_found(name: str, orders: Sequence[str], ways: Sequence[Callable[..., RunView]], folder: Path) -> None:
    """What is seen of a damaged run is the same; read in other ways, findings are so to the letter and to the line."""
    texts = damaged(name)
    files = put(texts, folder / "by emitter")
    view = read_run(files)
    wanted, findings = seen(view), said(view, files, with_lines=True)
    assert findings
    for way in ways:
        found = way(files)
        assert_same(seen(found), wanted)
        assert_same(places(found), places(view))
        assert said(found, files, with_lines=True) == findings, way.__name__
    streams = streams_in(texts) if name in ON_RECORDS else None
    assert streams is not None or name in ON_TEXT
    for order in orders if streams is not None else ():
        other = put(LAYOUTS[order](streams), folder / order)
        found = read_run(other)
        assert_same(seen(found), wanted)
        assert {each[0] for each in said(found, other)} == {each[0] for each in findings}, order


@pytest.mark.slow
@examples(25)
@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=6), layout=st.sampled_from(("emitter", "together")))
def test_cut_anywhere(shares: list[float], layout: str, cut_files: dict[str, Whole]) -> None:
    files, wanted, where = cut_files[layout]
    found = cut(files, shares)
    assert_same(seen(found), wanted)
    assert_same(places(found), where)


@pytest.fixture(scope="module")
def cut_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Whole]:
    found = {}
    for name, texts in {"emitter": by_emitter(SMALL), "together": together(SMALL)}.items():
        files = put(texts, tmp_path_factory.mktemp(name))
        view = read_run(files)
        found[name] = files, seen(view), places(view)
    return found


@pytest.mark.slow
def test_lines_that_lie_in_no_order_are_sorted_on_the_way(tmp_path: Path) -> None:
    files = put(shuffled(by_emitter(STREAMS)), tmp_path)
    shares = list(large.split(large.ordered(files), 3))
    digests = [large.fold_share(share) for share in shares]
    assert len(shares) > 1
    assert any(digest.is_unsorted for digest in digests)
    assert not large.large_digest(files, 3).is_unsorted


def test_a_run_above_the_limit_is_read_in_stretches(
    base: tuple[dict[str, Any], list[RunFile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "AT_ONCE_BYTES", 1)
    monkeypatch.setattr(engine, "_digest_at_once", None)
    assert_same(seen(read_run(base[1], Options(num_workers=2))), base[0])


def test_a_run_that_unpacks_to_more_than_was_thought(
    base: tuple[dict[str, Any], list[RunFile]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MOST_AT_ONCE", 5_000)
    assert_same(seen(read_run(base[1])), base[0])


@pytest.mark.slow
def test_a_file_without_a_head_takes_the_heads_of_the_others(tmp_path: Path) -> None:
    """A writer that starts a new file goes on where it was, whether its files come first or last, at once or not."""
    ((_, text),) = together(SMALL).items()
    lines = text.splitlines(keepends=True)
    half = len(lines) // 2
    for first, second in (("a", "b"), ("b", "a")):
        files = put({first: b"".join(lines[:half]), second: b"".join(lines[half:])}, tmp_path / first)
        wanted = read_run(files)
        assert {span.emitter for span in wanted.emitters} == {stream.head.emitter for stream in SMALL}
        assert_same(seen(in_processes(files)), seen(wanted))
        assert_same(seen(spilled(files)), seen(wanted))


# --- compiled and plain

PLAIN = """
import pickle, sys
from pathlib import Path
from split_makers import seen
from trainspec_validate.telemetry.fold import engine
from trainspec_validate.telemetry.kernels import jit
jit.compile_for = lambda num_bytes: None
files = [engine.run_file(n, path, path.name) for n, path in enumerate(sorted(Path(sys.argv[1]).iterdir()))]
found = seen(engine.read_run(files))
assert not jit.is_compiled()
sys.stdout.buffer.write(pickle.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["not-a-number", "hang", "second-job-writer"])
def test_without_a_compiler(name: str, tmp_path: Path) -> None:
    if not jit.compile_loops():
        pytest.skip("numba is not installed")
    files = put(damaged(name), tmp_path)
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent.parent)))}
    command = [sys.executable, "-c", PLAIN, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=600)
    assert_same(pickle.loads(done.stdout), seen(read_run(files)))
