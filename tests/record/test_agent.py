"""The sampler of a node and its agent: clock, probes, counters that start again, and the attempts of a run."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainspec_record
from trainspec_record import command
from trainspec_record.clock import Clock
from trainspec_record.identity import identity
from trainspec_record.node import clock_offset, probe, sampler
from trainspec_record.node.source import Reading, Source
from trainspec_record.pump import Pump

from .recorded import SOURCE, events, records, values

CHRONY = "C0A80001,ntp1,3,1767225600.1,{},0.000002,0.00001,12.3,0.001,0.02,0.0004,0.0001,64.2,Normal\n"

# --- clock --------------------------------------------------------------------------------------------------


def test_chrony_says_how_far_the_clock_is_behind() -> None:
    offset, error = clock_offset.of_chrony(CHRONY.format("0.000015")) or (None, None)
    assert offset == -0.000015  # what is to be added is positive: the node is behind
    assert error == pytest.approx(0.0002 + 0.0001 + 0.000015)


@pytest.mark.parametrize(
    "answer", [None, "", "a,b", CHRONY.format("x"), CHRONY.format("0").replace("Normal", "Not synchronised")]
)
def test_a_clock_that_nobody_sets_has_no_offset(answer: str | None) -> None:
    source = clock_offset.clock_source(lambda: answer, lambda: None)
    assert source.unsupported == {clock_offset.OFFSET: clock_offset.NOBODY, clock_offset.ERROR: clock_offset.NOBODY}


def test_the_kernel_tells_what_is_left_to_correct() -> None:
    timex = clock_offset._Timex(offset=3000, maxerror=250, status=clock_offset.STA_NANO)
    assert clock_offset.of_kernel((0, timex)) == (-3e-6, 250e-6)
    timex.status = 0
    assert clock_offset.of_kernel((0, timex)) == (-3e-3, 250e-6)
    assert clock_offset.of_kernel((clock_offset.TIME_ERROR, timex)) is None
    timex.maxerror = 16_000_000
    assert clock_offset.of_kernel((0, timex)) is None


def test_the_kernel_can_be_asked() -> None:
    found = clock_offset.kernel_answer()
    assert found is None or found[1].maxerror >= 0


def test_a_clock_that_is_set_is_noticed_once() -> None:
    jumps = iter([0.0, 0.01, 5.0, 5.01])
    steps = clock_offset.Steps(lambda: next(jumps))
    assert [steps.since_before() for _ in range(3)] == [None, 5.0, None]


# --- probes -------------------------------------------------------------------------------------------------


def test_two_nodes_probe_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "INTERVAL_SECONDS", 0.02)
    one = probe.Probe("r-1", "a", "b", ("127.0.0.1", 0), 0)
    other = probe.Probe("r-1", "b", "a", ("127.0.0.1", one.port), 0)
    one._address = ("127.0.0.1", other.port)
    one.start()
    other.start()
    found: list[float] = []
    end = time.monotonic() + 600
    while len(found) < 3 and time.monotonic() < end:
        time.sleep(0.02)
        found += one.window()
    one.stop()
    other.stop()
    assert len(found) >= 3
    assert all(value > 0 for value in found)
    assert one.key == "train.network.latency{train.network.source=a,train.network.target=b}"


def test_probes_of_another_run_get_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "INTERVAL_SECONDS", 0.02)
    other = probe.Probe("r-2", "b", "a", ("127.0.0.1", 9), 0)
    one = probe.Probe("r-1", "a", "b", ("127.0.0.1", other.port), 0)
    one.start()
    other.start()
    time.sleep(0.2)
    one.stop()
    other.stop()
    assert one.window() == []


@pytest.mark.parametrize("nodes", ["", "a", "b,c", "n1"])
def test_a_node_without_a_partner_says_why(nodes: str) -> None:
    source = probe.probe_source("r-1", "n1", {probe.NODES: nodes})
    assert list(source.unsupported) == [probe.LATENCY]


# --- sampler ------------------------------------------------------------------------------------------------


def sampled(folder: Path, sources: list[Source], num: int = 2) -> list[dict[str, object]]:
    who = identity({"TRAINSPEC_RUN": str(folder), "TRAINSPEC_HOST": "n1"})
    assert who is not None
    found = sampler.Sampler(who, Clock(), lambda: sources)
    stream = found.open()
    assert stream is not None
    for _ in range(num):
        found.sample()
    stream.drain()
    return records(stream.path)


def test_what_cannot_be_read_stands_in_the_head(folder: Path) -> None:
    head = sampled(folder, [Source(unsupported={"train.clock.offset": "nobody sets it"})])[0]
    assert head["scopes"] == ["emitter"]
    assert set(head["unsupported"]) == {"train.clock.offset", *sampler.OF_DEVICES}  # type: ignore[arg-type]


def test_a_counter_that_falls_has_a_later_start(folder: Path) -> None:
    counts = iter([10, 20, 5, 6])
    key = "hw.energy{hw.type=gpu}"

    def read() -> Iterator[Reading]:
        yield Reading({key: next(counts)}, device="GPU-1")

    found = [r for r in sampled(folder, [Source(frozenset({"device"}), read)], num=4) if key in r.get("m", {})]  # type: ignore[operator]
    starts = [record.get("start_us") for record in found]
    assert starts[:2] == [None, None]
    assert starts[2] == starts[3] == found[2]["time_us"]


def test_a_reader_that_fails_holds_up_no_other(folder: Path) -> None:
    def fails() -> Iterator[Reading]:
        raise OSError("device lost")
        yield

    def works() -> Iterator[Reading]:
        yield Reading({"train.host.memory.pressure": 0.5})

    sources = [Source(frozenset({"device"}), fails), Source(frozenset({"node"}), works)]
    assert sum("train.host.memory.pressure" in r.get("m", {}) for r in sampled(folder, sources)) == 2  # type: ignore[operator]


def test_a_node_has_one_sampler(folder: Path) -> None:
    who = identity({"TRAINSPEC_RUN": str(folder), "TRAINSPEC_HOST": "n1"})
    assert who is not None
    first, second = (sampler.Sampler(who, Clock(), list) for _ in range(2))
    assert first.open() is not None
    assert second.open() is None
    second.sample()


def test_a_driver_that_hangs_holds_up_nobody(folder: Path) -> None:
    who = identity({"TRAINSPEC_RUN": str(folder), "TRAINSPEC_HOST": "n1"})
    assert who is not None
    lets_go = threading.Event()

    def hangs() -> list[Source]:
        lets_go.wait(600)
        return []

    found = sampler.Sampler(who, Clock(), hangs)
    found.start(Pump())
    assert not (folder / "node-n1.0.jsonl").exists()
    lets_go.set()
    found.stop()
    until(folder / "node-n1.0.jsonl")


# --- agent --------------------------------------------------------------------------------------------------


def run_agent(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from trainspec_record.command import main; raise SystemExit(main())", "agent"]
    environment = {"PYTHONPATH": SOURCE, "TRAINSPEC_HOST": "node-1"}
    return subprocess.Popen([*command, "--run", str(folder)], env=environment, text=True, stderr=subprocess.PIPE)


def until(path: Path) -> None:
    end = time.monotonic() + 600
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert path.exists()


@pytest.mark.slow
def test_the_agent_follows_attempts_and_ends_with_the_run(folder: Path) -> None:
    process = run_agent(folder)
    with trainspec_record.run() as run:
        until(folder / "node-node-1.0.jsonl")
        run.end("preempted")
    with trainspec_record.run() as run:
        until(folder / "node-node-1.1.jsonl")
    assert process.wait(timeout=600) == 0
    for number in (0, 1):
        found = records(folder / f"node-node-1.{number}.jsonl")
        assert found[0]["att"] == number
        assert values(folder / f"node-node-1.{number}.jsonl", "train.telemetry.dropped")


def test_the_agent_ends_when_it_is_told_to(folder: Path) -> None:
    with trainspec_record.run() as run:
        process = run_agent(folder)
        until(folder / "node-node-1.0.jsonl")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 0
        run.flush()
    assert records(folder / "node-node-1.0.jsonl")


def test_the_agent_needs_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TRAINSPEC_RUN", raising=False)
    assert command.main(["agent"]) == 2
    assert "--run" in capsys.readouterr().err


def test_a_stepped_clock_is_an_event(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = iter([0.0, 2.5, 2.5])
    steps = clock_offset.Steps(lambda: next(jumps))
    monkeypatch.setattr(sampler.clock_offset, "Steps", lambda: steps)
    sampled(folder, [])
    (found,) = events(folder / "node-n1.0.jsonl", "train.clock.stepped")
    assert found["a"] == {"host.id": "n1", "train.clock.jump": 2.5}
