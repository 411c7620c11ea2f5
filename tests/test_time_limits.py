"""Processor seconds are a limit of every input: passing it is a failure of that input, which names it."""

from __future__ import annotations

import gzip
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.fuzz import slow_inputs
from trainspec_validate.checkpoints import limits, pickles
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command
from trainspec_validate.documents import load
from trainspec_validate.pipeline import unpacked
from trainspec_validate.system.budget import Count, Limit, Meter, OverLimitError, check_time, timed
from trainspec_validate.telemetry.decode import reader
from trainspec_validate.telemetry.formats.source import MOST_SECONDS

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
SAID = "seconds of processor time"
OVER = Limit("a test", -1, SAID)
"""Any time is more."""


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def validate(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--format", "concise"])


def test_time_is_looked_at_where_things_are_counted() -> None:
    count = Count(Limit("a test", 1e9, "things"))
    with pytest.raises(OverLimitError, match=f"a test may have at most -1 {SAID}"), timed(OVER):
        count.add()
    count.add()
    with timed(Limit("a test", 1e9, SAID)):
        check_time()


def test_a_long_count_looks_at_the_time_again() -> None:
    count = Count(Limit("a test", 1e9, "things"))
    count.add()
    with pytest.raises(OverLimitError), timed(OVER):
        any(count.add() for _ in range(1_000))
    assert count.used < 1_000


def test_an_inner_limit_ends_with_its_input() -> None:
    with timed(Limit("a test", 1e9, SAID)):
        with pytest.raises(OverLimitError), timed(OVER):
            check_time()
        check_time()


def test_a_meter_counts_the_reader_and_not_what_becomes_of_its_records() -> None:
    meter = Meter(Limit("a test", 1e9, SAID), 0)
    assert [*meter.given(meter.read([b"a", b"b"], len))] == [b"a", b"b"]
    assert meter.num_bytes == 2
    slow = Meter(Limit("a test", 0, SAID), -1)
    with pytest.raises(OverLimitError):
        next(slow.given(slow.read([b"a"], len)))


def test_a_reader_that_gives_no_record_is_ended() -> None:
    meter = Meter(Limit("a test", 0, SAID), -1)
    lines = meter.read((b"x" for _ in range(10_000)), len)
    with pytest.raises(OverLimitError):
        next(meter.given(line for line in lines if line != b"x"))
    assert meter.num_bytes < 10_000


def test_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plan.yaml", "cluster.yaml"):
        shutil.copy(BASE / name, name)
    monkeypatch.setattr(load, "MAX_SECONDS", OVER)
    result = validate("plan.yaml")
    assert result.exit_code == 1
    assert f"plan.yaml: error[TS-DOC-003] a test may have at most -1 {SAID} (make it smaller, or split it)" in (
        result.stdout
    )


@pytest.fixture
def _no_time_for_a_checkpoint() -> Iterator[None]:
    before = limits.FILE_SECONDS.most
    object.__setattr__(limits.FILE_SECONDS, "most", -1)
    yield
    object.__setattr__(limits.FILE_SECONDS, "most", before)


@pytest.mark.usefixtures("_no_time_for_a_checkpoint")
def test_a_pickle_of_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_OPERATIONS_A_LOOK", 1)
    Path("step").mkdir()
    Path("step/state.pt").write_bytes(pickle.dumps({"a": [1, 2, 3]}, protocol=2))
    result = validate("step")
    assert result.exit_code == 1, result.output
    assert "TS-SEC-003" in result.stdout
    assert SAID in result.stdout


def test_a_compressed_file_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(BASE / "cluster.yaml", "cluster.yaml")
    Path("plan.yaml.gz").write_bytes(gzip.compress((BASE / "plan.yaml").read_bytes()))
    assert "plan.yaml.gz: not judged: is a compressed document" in validate(".").stdout
    monkeypatch.setattr(unpacked, "MOST_SECONDS", OVER)
    assert SAID in validate(".", "--fail-on", "unjudged").stdout


@pytest.mark.parametrize("name", ["stream.jsonl", "run.log"])
def test_a_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = (
        '{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r","att":0,"emitter":"e","time_us":1,'
        '"scopes":["job"]}\n'
    )
    log = "".join(f"iter {step}: loss 3.1, time 123.45ms, mfu 12.50%\n" for step in range(20))
    Path(name).write_text(head if name == "stream.jsonl" else log, encoding="utf-8")
    shutil.copy(BASE / "cluster.yaml", "cluster.yaml")
    for module in (reader, sys.modules["trainspec_validate.telemetry.formats.read"]):
        monkeypatch.setattr(module, "FREE_SECONDS", -1.0)
        monkeypatch.setattr(module, "MOST_SECONDS", OVER)
    result = validate(name, "cluster.yaml")
    assert result.exit_code == 2, result.output
    assert f"{name}: a test may have at most -1 {SAID}" in result.output
    assert "no findings: 1 document, " in result.output
    if name == "run.log":
        imported = CliRunner().invoke(toolbox, ["import", name, "--known", "run=r"])
        assert (imported.exit_code, SAID in imported.stderr) == (2, True)


@pytest.mark.long
def test_the_slowest_known_input_is_far_from_its_limit() -> None:
    assert max(slow_inputs.of_streams().values()) < MOST_SECONDS.most / 2
    assert max(slow_inputs.of_pickles().values()) * limits.PICKLE_OPERATIONS.most < limits.FILE_SECONDS.most / 2
    assert max(slow_inputs.of_contents().values()) * unpacked.MOST_OF_ONE.most / 2**20 < unpacked.MOST_SECONDS.most / 2
    assert max(slow_inputs.of_entries().values()) < 0.005
