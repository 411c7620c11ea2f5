"""Memory is bounded by what a run is made of, not by how long it goes on or by what a hostile file unpacks to."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import TogetherUnreadableError
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.decode import reader
from trainspec_validate.telemetry.decode.names import MAX_KEYS
from trainspec_validate.telemetry.decode.rows import MAX_NOTED
from trainspec_validate.telemetry.decode.run_file import MAX_DAMAGE, Stretch
from trainspec_validate.telemetry.fold import digest as digests
from trainspec_validate.telemetry.fold import engine, large
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.engine import Options, digest_of, read_run, run_file
from trainspec_validate.telemetry.formats import source
from trainspec_validate.telemetry.kernels import jit

START_US = 1_767_225_600_000_000
HEAD = (
    b'{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r","att":0,"emitter":"rank",'
    b'"time_us":1767225600000000,"scopes":["rank"]}\n'
)
MEGABYTE = 1_000_000


def samples(num: int, more: str = '"rank":0', key: str = "train.step.duration") -> bytes:
    """Records one after another; `more` and `key` may name the number of the record."""
    line = '{{"k":"m","time_us":{time},"seq":{number},%s,"m":{{"%s":1.5}}}}\n' % (more, key)  # noqa: UP031
    return b"".join(line.format(time=START_US + 1_000 * number, number=number).encode() for number in range(num))


def read(content: bytes, folder: Path, name: str = "x.jsonl") -> Digest:
    path = folder / name
    path.write_bytes(content)
    return digest_of([run_file(0, path, name)], Options(num_workers=1))


@pytest.fixture(autouse=True, scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loops are compiled before memory is traced: a compiler that is traced takes a minute more."""
    jit.compile_loops()
    for at_once_bytes in (1, engine.AT_ONCE_BYTES):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "AT_ONCE_BYTES", at_once_bytes)
            read(HEAD + samples(100), tmp_path_factory.mktemp("compiled"))


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory of Python and NumPy while something is done, beside what it is done with."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "blocks", partial(source.blocks, size=100_000))


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "AT_ONCE_BYTES", 1)
    peaks = []
    for num in (10_000, 40_000):
        path = tmp_path / str(num)
        path.write_bytes(HEAD + samples(num))
        files = [run_file(0, path, path.name)]
        peaks.append(peak_bytes(partial(digest_of, files, Options(num_workers=1))))
    assert peaks[1] < 1.2 * peaks[0] + MEGABYTE


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_a_small_file_that_unpacks_to_many_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held at once only up to a number of records, and folded piece by piece where it has more."""
    monkeypatch.setattr(engine, "_MOST_AT_ONCE", 5_000)
    packed = gzip.compress(HEAD + samples(60_000))
    assert len(packed) < MEGABYTE
    digests: list[Digest] = []
    peak = peak_bytes(lambda: digests.append(read(packed, tmp_path, "x.jsonl.gz")))
    assert digests[0].num_records == 60_000
    columns = 60_000 * 80
    assert peak < peak_bytes(lambda: read(gzip.compress(HEAD + samples(6_000)), tmp_path, "y.jsonl.gz")) + columns


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True], ids=["sparse", "gzip"])
def test_a_line_without_end(packed: bool, tmp_path: Path) -> None:
    """It is told by its start, and the records before it count."""
    path = tmp_path / ("x.jsonl.gz" if packed else "x.jsonl")
    content = HEAD + samples(5)
    if packed:
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(content)
            for _ in range(200):
                file.write(bytes(MEGABYTE))
    else:
        path.write_bytes(content)
        with path.open("r+b") as plain:
            plain.truncate(200 * MEGABYTE)
    reports = []
    assert peak_bytes(lambda: reports.append(validate([tmp_path]))) < 130 * MEGABYTE
    (coverage,) = reports[0].coverage
    assert coverage.num_records == 5
    assert [f.span.line for f in reports[0].findings if f.requirement == "TS-TEL-001" and f.span] == [7]


def test_what_follows_a_line_beyond_all_limits_is_read(tmp_path: Path) -> None:
    """Also where the file is read in stretches: no record is read twice."""
    long = b'{"k":"m","x":"' + b"a" * 20 * MEGABYTE + b'"}\n'
    content = HEAD + samples(3) + long + samples(4) + long + samples(2)
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    file = run_file(0, path, path.name)
    for cuts in ([], [1_000], [5 * MEGABYTE], [len(HEAD + samples(3) + long)], [30 * MEGABYTE, 41 * MEGABYTE]):
        found = []
        for start, end in zip([0, *cuts], [*cuts, None], strict=True):
            digest = Digest()
            for batch in reader.batches(Stretch(file, start, end), digest.names, digest.facts(file.number)):
                found += batch.offset.tolist()
            found += [damage.location.offset for damage in digest.facts(0).damage]
        lines = content.splitlines(keepends=True)
        starts = [sum(map(len, lines[:number])) for number in range(1, len(lines))]
        assert sorted(found) == starts, cuts


# --- names without end


def test_keys_are_counted_together_beyond_a_number(tmp_path: Path) -> None:
    num = 5 * MAX_KEYS
    digest = read(HEAD + samples(num, key="com.x{{step={number}}}"), tmp_path)
    assert digest.num_samples == num
    assert len(digest.names.keys) == MAX_KEYS + 1
    assert len(digest.names.texts) <= 4 * MAX_KEYS
    assert len(digest.facts(0).spellings) <= 4 * MAX_KEYS
    assert sum(digest.facts(0).num_of_key.values()) == num


def test_other_runs_and_attributes_are_kept_up_to_a_number(tmp_path: Path) -> None:
    runs = read(HEAD + samples(3 * MAX_NOTED, '"run":"r{number}"'), tmp_path)
    assert len(runs.facts(0).other_runs) == MAX_NOTED
    attributes = read(HEAD + samples(3 * MAX_NOTED, '"a":{{"a{number}":1}}'), tmp_path)
    assert [len(names) for names in attributes.facts(0).attributes.values()] == [MAX_NOTED]


def test_damage_is_kept_up_to_a_number_and_counted_beyond(tmp_path: Path) -> None:
    digest = read(HEAD + b"{}\n" * (MAX_DAMAGE + 500), tmp_path)
    facts = digest.facts(0)
    assert (len(facts.damage), facts.num_damaged) == (MAX_DAMAGE, MAX_DAMAGE + 500)


@pytest.mark.parametrize("num_workers", [0, 1, 2], ids=["at once", "one process", "two processes"])
def test_a_run_may_have_so_many_series_and_no_more(
    num_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each process is within the limit, and only all of them together pass it; and where one passes it."""
    monkeypatch.setattr(engine, "AT_ONCE_BYTES", 0 if num_workers else engine.AT_ONCE_BYTES)
    monkeypatch.setattr(large, "_LEAST_BYTES", 1_000)
    monkeypatch.setattr(large, "_TASTE_BYTES", 1_000)
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEAD + samples(1_000, more='"rank":{number}') + samples(500, key="train.rank.step"))
    files, options = [run_file(0, path, path.name)], Options(num_workers=num_workers or None)
    monkeypatch.setattr(digests, "_MOST_SERIES", Limit("a run", 1_001, "series"))
    assert len(read_run(files, options).series) == 1_001
    for most in (1_000, 100):
        monkeypatch.setattr(digests, "_MOST_SERIES", Limit("a run", most, "series"))
        with pytest.raises(TogetherUnreadableError, match=f"a run may have at most {most:,} series"):
            read_run(files, options)
