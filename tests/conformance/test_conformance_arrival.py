"""What a scenario does to a stack arrives there; where it does not, the verdict is an error and says nothing of it."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, get_args

import msgspec
import psutil
import pytest
from conformance_stacks import fake, run, scenario
from made_stories import calm
from msgspec.structs import replace
from trainspec_conformance import agent, launching, trial
from trainspec_conformance import damage as damaging
from trainspec_conformance.agent import MARK
from trainspec_conformance.drawing import drawn
from trainspec_conformance.injecting import Injector
from trainspec_conformance.judging import judge_trial
from trainspec_conformance.processes import new_mark
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Damaged, Ended, Entry, Injected, Probed, Started
from trainspec_conformance.store import CheckpointStore
from trainspec_conformance.suite import lacking
from trainspec_conformance.targets import HERE, Target, Targets
from trainspec_conformance.view import View

from tests.every import every
from trainspec_validate.documents.types.conformance import Capability, Store, TestJob
from trainspec_validate.documents.types.scenario import Damage, DamageKind, Inject, Probe, Scenario, Start, Wait
from trainspec_validate.documents.types.trace import Process

DOES = {
    name: one
    for name, one in all_scenarios().items()
    if any(isinstance(act, Inject | Damage | Probe) for act in one.acts)
}
KINDS = [kind for kind in DamageKind.__args__ if kind not in {"resealed", "scaled-values", "scaled-tensor"}]


def told(one: Scenario) -> list[Any]:
    """What the suite writes down of the acts of a scenario."""
    found: list[Any] = []
    for act in one.acts:
        match act:
            case Start():
                found.append(Started(pid=1, attempt=0, num_ranks=2))
            case Inject():
                found.append(Injected(kind=act.kind, target=act.target))
            case Damage():
                found.append(Damaged(kind=act.kinds[-1], checkpoint="step-10"))
            case Probe():
                found.append(Probed(case=act.case, status=0))
    return [*found, Ended(reason="done")]


def acts(one: Scenario, records: list[Any]) -> tuple[bool, bool]:
    """Whether its acts are said to have come about, and whether that is a mistake of the suite."""
    entries = [Entry(seconds=float(number), record=record) for number, record in enumerate(records)]
    judged = judge_trial(fake(), one, entries, None)[0]
    assert judged.check == "acts"
    return judged.passed, judged.is_own_failure


@every("name", DOES)
def test_an_act_that_was_left_out_is_an_error_of_the_suite(name: str) -> None:
    one = DOES[name]
    records = told(one)
    assert acts(one, records) == (True, False)
    for number, record in enumerate(records[:-1]):
        rest = records[:number] + records[number + 1 :]
        assert acts(one, rest) == (False, True), record
        assert acts(one, [*rest[:-1], Ended(reason="wait")])[1] is False, "the stack did not come so far"


def test_the_order_of_acts_counts_and_restarts_of_a_platform_do_not() -> None:
    one = all_scenarios()["partition"]
    records = told(one)
    assert acts(one, [*records[-2::-1], records[-1]]) == (False, True)
    again = Started(pid=2, attempt=1, num_ranks=2, by_platform=True)
    assert acts(one, [records[0], again, *records[1:]]) == (True, False)
    assert acts(one, [again, *records[1:]]) == (False, True)


OBSERVES = {"null-run", "stream-without-errors", "every-rank-reports", "reported-samples",
            "reported-losses", "reported-saves", "reported-noise", "ranks-in-step"}  # fmt: skip
"""Scenarios that do nothing to a job, and ask for nothing but the number of its ranks and steps."""


@every("name", all_scenarios().keys() - OBSERVES)
def test_a_calm_run_of_a_plain_job_passes_no_scenario_that_does_something(name: str) -> None:
    """As if nothing that it does, plants or changes had arrived."""
    one = drawn(all_scenarios()[name], 1, 1)
    kept = {key: getattr(one.job, key) for key in ("num_steps", "seed", "num_ranks")}
    plain = replace(one, job=replace(TestJob(), **kept))
    judged = judge_trial(replace(fake(), capabilities=get_args(Capability)), one, calm(plain), calm(one))
    assert not all(each.passed for each in judged)
    acts = judged[0]
    assert acts.is_own_failure or not any(isinstance(act, Inject | Damage | Probe) for act in one.acts)


REAL = [
    name
    for name, one in DOES.items()
    if not one.privileges and not lacking(fake(), one) and not any(isinstance(act, Probe) for act in one.acts)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_a_trial_without_its_injection_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("_inject", "_damage"):
        monkeypatch.setattr(trial._Trial, method, lambda self, act: None)
    interval_steps = min(all_scenarios()[name].job.checkpoint_interval_steps, 5)
    one = scenario(name, step_seconds=0.01, checkpoint_interval_steps=interval_steps)
    acts = [act for act in one.acts if not isinstance(act, Wait) or act.until not in {"fault", "save-failed"}]
    (result,) = run(fake(), tmp_path, replace(one, acts=tuple(acts)))
    assert (result.state, "not arrived" in result.reason) == ("error", True)


def test_a_limit_that_is_not_set_is_an_error(sleeper: tuple[Injector, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    injector, process = sleeper
    act = Inject(kind="limit-memory", size_bytes=1 << 30)
    injector._do(act, here(process))
    monkeypatch.setattr(resource, "prlimit", lambda *_: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with pytest.raises(RuntimeError, match="limit-memory has not arrived"):
        injector._do(act, here(process))


def test_a_rank_that_does_not_become_slow_is_an_error(
    sleeper: tuple[Injector, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    injector, process = sleeper
    injector._do(Inject(kind="slow", factor=5), here(process))
    injector.end()
    monkeypatch.setattr(agent._DutyCycle, "_cycle", lambda self, seconds: None)
    monkeypatch.setattr(agent, "ARRIVAL_SECONDS", 0.05)
    with pytest.raises(RuntimeError, match="a signal had no effect"):
        injector._do(Inject(kind="slow", factor=5), here(process))


def store(root: Path) -> CheckpointStore:
    found = CheckpointStore(root, Store(pointer="latest"))
    for step in (10, 20):
        folder = found.directory / f"step-{step}"
        folder.mkdir(parents=True)
        for number in range(2):
            (folder / f"part-{number}").write_bytes(bytes([step + number]) * 9000)
    (found.directory / "latest").write_text("step-20")
    return found


WAYS = {
    "hostile-pickle": "_hostile",
    "stale-file": "_stale",
    "all-checkpoints-cut": "_cut_half",
    "partial-directory": "_leave_partial",
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"path-traversal", "partial-directory"}])
def test_damage_that_changes_nothing_is_an_error(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = damaging.damage(kind, "newest", store(tmp_path / "damaged"), random.Random(1), 10)
    assert {one.kind for one in damaged} <= {kind, "cut-half"}

    def nothing(*_: object) -> Any:
        return Damaged(kind=kind, checkpoint="step-20")

    monkeypatch.setattr(damaging, WAYS.get(kind, "_told"), nothing)
    monkeypatch.setattr(damaging, "_damage_pointer", lambda *_: [nothing()])
    monkeypatch.setattr(damaging, "_BY_KIND", dict.fromkeys(damaging._BY_KIND, nothing))
    with pytest.raises(RuntimeError, match=f"{kind} has not arrived"):
        damaging.damage(kind, "newest", store(tmp_path / "left"), random.Random(1), 10)


def here(process: subprocess.Popen[bytes]) -> list[Target]:
    """A process of this machine as a target."""
    return [Target(HERE, process.pid)]


@pytest.fixture
def sleeper() -> Any:
    mark = new_mark()
    process = subprocess.Popen(["sleep", "600"], env={MARK: mark, "PATH": "/usr/bin:/bin"})
    while mark.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes():
        time.sleep(0.001)  # a process that has just begun has no environment yet
    yield Injector(Targets(mark), None), process  # type: ignore[arg-type]
    process.kill()
    process.wait()


def test_a_signal_has_arrived_when_the_injection_is_told(sleeper: tuple[Injector, Any]) -> None:
    injector, process = sleeper
    injector._reach(here(process), signal.SIGSTOP)
    assert agent.state(process.pid) == "T"
    injector._reach(here(process), signal.SIGCONT)
    injector._reach(here(process), signal.SIGKILL)
    assert agent.state(process.pid) in {"Z", agent.GONE}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_signal_that_does_not_arrive_is_an_error(
    number: signal.Signals, sleeper: tuple[Injector, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    injector, process = sleeper
    monkeypatch.setattr(agent, "send", lambda pids, *_: tuple(pids))
    monkeypatch.setattr(agent, "ARRIVAL_SECONDS", 0.05)
    with pytest.raises(RuntimeError, match="a signal had no effect"):
        injector._reach(here(process), number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_rank_that_its_launcher_ended_after_the_first_was_reached_is_no_error(
    number: signal.Signals, sleeper: tuple[Injector, Any]
) -> None:
    injector, process = sleeper
    gone = subprocess.Popen(["true"])
    gone.wait()
    both = [*here(process), Target(HERE, gone.pid)]
    with pytest.raises(agent.NoTargetError):
        injector._reach(both, signal.SIGCONT)
    injector._reach(both, number)
    process.wait()
    with pytest.raises(agent.NoTargetError):
        injector._reach(both, number)


def test_a_rank_that_cannot_be_slowed_is_no_target(sleeper: tuple[Injector, Any]) -> None:
    injector, process = sleeper
    process.kill()
    process.wait()
    with pytest.raises(agent.NoTargetError):
        injector._do(Inject(kind="slow", factor=2), here(process))


@pytest.mark.slow
def test_a_process_that_ends_by_itself_while_the_job_is_stopped_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = launching.marked

    def with_one_that_is_gone(mark: str) -> list[psutil.Process]:
        short = subprocess.Popen(["true"])
        found = psutil.Process(short.pid)
        short.wait()
        return [found, *marked(mark)]

    monkeypatch.setattr(launching, "marked", with_one_that_is_gone)
    (result,) = run(fake(), tmp_path, scenario("resume-equivalence", dropout=0.0))
    assert result.state == "pass", result.reason


def test_other_ranks_are_stopped_while_one_is_killed() -> None:
    mark = new_mark()
    ranks = [subprocess.Popen(["sleep", "600"], env={MARK: mark, "PATH": "/usr/bin:/bin"}) for _ in range(3)]
    try:
        while len(launching.marked(mark)) < len(ranks):
            time.sleep(0.001)
        told = [Process(time_us=0, role="rank", rank=number, pid=one.pid) for number, one in enumerate(ranks)]
        view = View([Entry(seconds=1.0, record=record) for record in told])
        injector = Injector(Targets(mark), None)  # type: ignore[arg-type]
        found = injector.inject(Inject(kind="kill", seconds=600), view)
        assert (found.ranks, found.pids, found.value) == ((2,), (ranks[2].pid,), 600)
        assert [agent.state(one.pid) for one in ranks[:2]] == ["T", "T"]
        (timer,) = injector._timers
        assert timer.interval == 600
        timer.function(*timer.args)
        while "T" in [agent.state(one.pid) for one in ranks[:2]]:
            time.sleep(0.01)
        injector.end()
        assert [one.poll() for one in ranks[:2]] == [None, None]
    finally:
        for one in ranks:
            one.kill()
            one.wait()


def test_an_injection_is_written_as_it_is_read_again(sleeper: tuple[Injector, Any]) -> None:
    """`verify` takes a line of other bytes for one that was changed."""
    injector, process = sleeper
    view = View([Entry(seconds=1.0, record=Process(time_us=0, role="rank", rank=0, pid=process.pid))])
    written = msgspec.json.encode(injector.inject(Inject(kind="kill"), view))
    assert msgspec.json.encode(msgspec.json.decode(written, type=Injected)) == written
