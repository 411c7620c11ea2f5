"""Runs one trial: it starts the stack, does what the scenario says, and writes the history."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from trainspec_conformance.agent import NoTargetError
from trainspec_conformance.applied_steps import applied_step
from trainspec_conformance.damage import NothingToDamageError, damage
from trainspec_conformance.drawing import changed_job, new_name
from trainspec_conformance.history import History, Watcher
from trainspec_conformance.injecting import Injector
from trainspec_conformance.isolating import TemporaryDirectories, move_store, put_aside
from trainspec_conformance.launching import Launcher, Surroundings
from trainspec_conformance.machine_load import LoadMeter
from trainspec_conformance.means import Means
from trainspec_conformance.nodes import NodeError, Nodes
from trainspec_conformance.observing import judge_checkpoint, judge_streams
from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.probing import Prober
from trainspec_conformance.processes import end_all, new_mark
from trainspec_conformance.records import (
    SOUND_KINDS,
    Applied,
    End,
    Ended,
    Entry,
    Listed,
    Orphans,
    Stored,
    Unread,
    Waited,
)
from trainspec_conformance.store import CheckpointStore
from trainspec_conformance.stored_values import NoValuesError, tensor_values_of, values_of
from trainspec_conformance.streams import read_streams
from trainspec_conformance.targets import MisplacedError, Targets
from trainspec_conformance.view import View
from trainspec_conformance.waiting import Condition, condition
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.scenario import Act, Damage, Inject, Probe, Scenario, Start, Stop, Wait
from trainspec_validate.documents.types.trace import Process

POLL_SECONDS = 0.004
"""Time between two looks at the trace: the resolution of every time that a report states."""
TARGET_SECONDS = 20.0
"""Longest wait for a process that an injection aims at."""
HISTORY = "history.jsonl"


class UnsupportedError(Exception):
    """The machine or the stack lacks what the scenario needs; the text says what."""


def time_limit_seconds(stack: StackDescriptor, scenario: Scenario) -> float:
    """When a trial is ended: the budget of the scenario, and the time that the stack is given for each start."""
    num_starts = sum(isinstance(act, Start | Probe) for act in scenario.acts)
    return scenario.budget_seconds + num_starts * stack.launch.start_seconds


class _OverError(Exception):
    """The trial ends here: what was waited for cannot come, or the budget is spent."""

    def __init__(self, reason: End) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Setting:
    """Setting of one trial."""

    stack: StackDescriptor
    base: Path
    """Directory of the descriptor, in which commands run."""
    scenario: Scenario
    directory: Path
    """New directory for everything that the trial writes; while it runs, the directory has a name that says nothing."""
    seed: int
    """Of every random choice of the suite."""
    reads_values: bool = False
    """Whether the values of checkpoints are digested at the end."""
    reads_steps: bool = False
    """Whether it is computed at the end what optimizer steps did, by checkpoints that are one step apart."""
    nodes: Nodes | None = None
    """Nodes that the ranks run on; without any, they run where the suite does."""


def run_trial(setting: Setting) -> list[Entry]:
    """Run it, and give its history. Nothing of it is left behind but its directory: no process, no mount.

    Raises:
        FileExistsError: the directory is there already.
        UnsupportedError: the machine does not allow what the scenario needs.
        NodeError: a node does not answer.
    """
    if setting.directory.exists():
        raise FileExistsError(f"{setting.directory} exists already")
    chance = random.Random(f"{setting.seed} {setting.scenario.metadata.name}")  # noqa: S311 - repeatable choices
    working = setting.directory.parent.parent / new_name(chance)
    working.mkdir(parents=True)
    try:
        return _Trial(replace(setting, directory=working), chance).run()
    finally:
        setting.directory.parent.mkdir(parents=True, exist_ok=True)
        working.rename(setting.directory)


class _Trial:
    def __init__(self, setting: Setting, chance: random.Random) -> None:
        self._setting, self._chance = setting, chance
        self._scenario = setting.scenario
        self._job = self._scenario.job
        """Of the last start."""
        self._out = setting.directory / "out"
        self._out.mkdir()
        self._mark = new_mark()
        self._history = History(setting.directory / HISTORY)
        self._store = CheckpointStore(self._out, setting.stack.store)
        self._canaries = [self._store.canary]
        self._aside: list[Path] = []
        """What the stack had left when its store was moved, until the end of the trial."""
        self._is_stopped = False
        """Whether the job was stopped since its last start, so that nothing of it is in use."""
        self._deadline = time.monotonic() + time_limit_seconds(setting.stack, setting.scenario)
        self._means = self._take_means()
        self._targets = Targets(self._mark, setting.nodes)
        self._injector = Injector(self._targets, self._means)
        self._told_ranks: set[int] = set()
        self._seen_ranks: set[int] = set()
        """Ranks of which a process was seen on the node that it names."""
        self._temporary = TemporaryDirectories()
        around = Surroundings(
            setting.directory, self._targets, self._history, self._means.hosts, self._temporary, new_name(chance)
        )
        self._launcher = Launcher(setting.stack, setting.base, around)
        self._prober = Prober(setting.stack, setting.base, setting.directory, self._mark)
        self._watcher = Watcher(self._launcher.trace_directory, setting.directory, self._history)
        self._load = LoadMeter(self._mark)

    def _take_means(self) -> Means:
        try:
            if self._setting.nodes is not None:
                self._setting.nodes.begin(self._mark)
            return Means(self._scenario, self._setting.directory, self._store.directory, self._setting.nodes)
        except NotAllowedError as error:
            self._history.close()
            raise UnsupportedError(str(error)) from error
        except NodeError:
            self._history.close()
            raise

    def run(self) -> list[Entry]:
        reason: End | None = None  # a trial that is interrupted has a history without an end
        try:
            for act in self._scenario.acts:
                self._act(act)
            self._settle()
            self._require_places()
            reason = "done"
        except _OverError as error:
            reason = error.reason
        finally:
            self._clear(reason)
        return self._history.entries

    @property
    def _view(self) -> View:
        return View(self._history.entries)

    # --- acts -----------------------------------------------------------------------------------------------

    def _act(self, act: Act) -> None:
        match act:
            case Start():
                if act.resume and self._is_stopped and not self._scenario.privileges:
                    self._move_store()
                self._is_stopped = False
                self._job = changed_job(self._scenario.job, act, self._chance)
                self._launcher.start(self._job, resume=act.resume, num_ranks=act.num_ranks)
            case Wait():
                self._wait(act)
            case Inject():
                self._attempt(lambda: self._inject(act))
            case Damage():
                if not act.while_running:
                    self._settle()
                self._attempt(lambda: self._damage(act))
            case Stop():
                self._launcher.stop(act.signal, act.grace_seconds, self._poll)
                self._settle()
                self._is_stopped = True
            case Probe():
                self._history.tell(self._prober.ask(act.case, self._setting.seed))

    def _move_store(self) -> None:
        """Move the store to a new place, and hide what else the stack has left where it knows of a place."""
        before = self._store.directory
        if not before.is_dir():
            return
        self._aside.append(self._setting.directory.with_name(new_name(self._chance)))
        out = self._out
        self._out = self._setting.directory / new_name(self._chance)
        self._store = CheckpointStore(self._out, self._setting.stack.store)
        self._canaries.append(self._store.canary)
        move_store(before, self._store.directory, self._chance)
        put_aside(out, self._launcher.trace_directory, self._aside[-1])
        self._launcher.out = self._out

    def _attempt(self, deed: Callable[[], object]) -> None:
        try:
            deed()
        except (NoTargetError, MisplacedError, NothingToDamageError, UnreadableError) as error:
            self._give_up(str(error))
        except NoValuesError as error:
            raise UnsupportedError(str(error)) from error
        except NotAllowedError as error:  # of a machine, which was asked before, it is an error
            if self._setting.nodes is None:
                raise
            raise UnsupportedError(str(error)) from error

    def _inject(self, act: Inject) -> None:
        """A process that is just being started anew is waited for."""
        end = time.monotonic() + TARGET_SECONDS
        while True:
            self._poll()
            try:
                self._history.tell(self._injector.inject(act, self._view))
            except NoTargetError:
                if not self._launcher.is_running or time.monotonic() > end:
                    raise
                time.sleep(POLL_SECONDS)
            else:
                return

    def _damage(self, act: Damage) -> None:
        store, interval_steps = self._store, self._scenario.job.checkpoint_interval_steps
        if act.while_running:
            self._poll()
            store = store.limited_to(self._committed)
            if SOUND_KINDS.issuperset(act.kinds):  # the stack may be removing the others
                store = store.limited_to(frozenset(one.name for one in store.checkpoints()[-1:]))
        else:
            self._list()
        for kind in act.kinds:
            read = store if kind in SOUND_KINDS else store.limited_to(frozenset())
            self._tell_values(read)
            for record in damage(kind, act.checkpoint, store, self._chance, interval_steps):
                self._history.tell(record)
            self._tell_values(read)

    @property
    def _committed(self) -> frozenset[str]:
        """Checkpoints that were reported as committed, or restored."""
        view = self._view
        restored = {record.checkpoint for _, record in view.restores() if record.checkpoint}
        return frozenset({save.checkpoint for _, save in view.saves("committed")} | restored)

    def _tell_committed_values(self) -> None:
        """The same of what was committed, as far as the suite reads the format; else why it does not."""
        try:
            for one in self._store.limited_to(self._committed).checkpoints():
                values = tensor_values_of(one.path)
                self._history.tell(Stored(checkpoint=one.name, digest=values.digest, num_bytes=values.num_bytes))
        except (NoValuesError, UnreadableError, OSError) as error:
            self._history.tell(Unread(reason=str(error)[:1000]))

    def _tell_applied_steps(self) -> None:
        """What the optimizer steps between committed checkpoints did, or why this is not known."""
        found = self._store.limited_to(self._committed).checkpoints()
        near = [(one, other) for one, other in pairwise(found) if other.step == one.step + 1]
        reason = "no two committed checkpoints are left that are one optimizer step apart"
        for one, other in near:
            try:
                self._history.tell(applied_step(one.path, other.path, other.step))
            except (NoValuesError, UnreadableError, OSError) as error:
                reason = str(error)[:1000]
        if not any(True for _ in self._view.of(Applied)):
            self._history.tell(Unread(reason=reason))

    def _tell_values(self, store: CheckpointStore) -> None:
        """Digests of the values of checkpoints, from their bytes."""
        for one in store.checkpoints():
            values = values_of(one.path)
            self._history.tell(Stored(checkpoint=one.name, digest=values.digest, num_bytes=values.num_bytes))

    def _wait(self, act: Wait) -> None:
        wanted = condition(act, self._chance, self._scenario.job)
        entry = self._until(wanted)
        if entry is None:
            self._history.tell(Waited(until=act.until, seen=False, reason=self._why()))
            raise _OverError("wait")
        self._pause(act.seconds if act.until != "time" else 0.0, wanted.delay(self._view))
        self._history.tell(Waited(until=act.until, seen=True))

    def _until(self, wanted: Condition) -> float | None:
        since = self._view.start_seconds
        while True:
            self._poll()
            goes_on = self._launcher.is_running or self._launcher.restart_is_due
            if wanted.holds(self._view, since, is_running=goes_on):
                return self._history.seconds
            if not (goes_on or wanted.until == "time"):
                self._poll()
                holds = wanted.holds(self._view, since, is_running=False)
                return self._history.seconds if holds else None
            time.sleep(POLL_SECONDS)

    def _pause(self, *seconds: float) -> None:
        end = time.monotonic() + sum(seconds)
        while time.monotonic() < end:
            self._poll()
            time.sleep(min(POLL_SECONDS, max(end - time.monotonic(), 0)))

    def _poll(self) -> None:
        for entry in self._watcher.poll():
            if isinstance(entry.record, Process) and self._setting.nodes is not None:
                self._see_place(entry.record)
        self._launcher.look(self._job)
        if time.monotonic() > self._deadline:
            raise _OverError("budget")

    def _see_place(self, process: Process) -> None:
        """See that a rank runs on the node that it names, while it lives."""
        if process.role != "rank" or process.rank is None:
            return
        self._told_ranks.add(process.rank)
        try:
            target = self._targets.of(process)
        except MisplacedError as error:
            self._give_up(str(error))
        if target in self._targets.belonging([target]):
            self._seen_ranks.add(process.rank)
        elif target in self._targets.alive([target]):
            self._give_up(f"rank {process.rank} is not process {process.pid} on {process.host}, which it says it is")

    def _require_places(self) -> None:
        if unseen := sorted(self._told_ranks - self._seen_ranks):
            self._give_up(f"rank {unseen[0]} was at no time seen on the node that it names")

    def _give_up(self, reason: str) -> NoReturn:
        self._history.tell(Waited(until="target", seen=False, reason=reason))
        raise _OverError("wait")

    def _why(self) -> str:
        status = self._launcher.last_status
        found = ["it was not seen in time" if self._launcher.is_running else f"the command ended with status {status}"]
        if not any(entry.file for entry in self._history.entries):
            found.append("no line of a trace was written, to a file *.jsonl in the `trace_directory` of the task")
        return "; ".join(filter(None, [*found, self._launcher.last_words]))

    # --- end ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until every process has ended by itself, as long as the stack says that this takes."""
        end = time.monotonic() + self._setting.stack.launch.stop_seconds
        while self._launcher.is_running or self._targets.left():
            self._poll()
            if not self._launcher.is_running and time.monotonic() > end:
                break
            if self._launcher.is_running:
                end = time.monotonic() + self._setting.stack.launch.stop_seconds
            time.sleep(POLL_SECONDS)
        self._poll()

    def _clear(self, reason: End | None) -> None:
        self._history.tell(self._load.end())
        lost = self._end_processes(reason)
        self._launcher.close()
        self._watcher.poll()
        self._list()
        if self._setting.reads_values:
            self._tell_committed_values()
        if self._setting.reads_steps:
            self._tell_applied_steps()
        self._read_streams()
        self._temporary.close()
        self._means.close(self._setting.directory / "store")
        for number, path in enumerate(self._aside):
            path.rename(self._setting.directory / f"aside-{number}")
        if reason is not None and lost is None:
            self._history.tell(Ended(reason=reason))
        self._history.close()
        if lost is not None:
            raise lost

    def _end_processes(self, reason: End | None) -> NodeError | None:
        """End every process of the trial; gives why those of a node may be left, or what has not reached any."""
        try:
            self._injector.end()
            left = self._targets.left()
            if left and reason == "done":
                self._history.tell(Orphans(processes=tuple(left)))
            stubborn = self._targets.end(self._launcher.sessions)
            if stubborn:
                self._history.tell(Orphans(processes=tuple(stubborn)))
            self._means.hosts.require_arrived()
        except NodeError as error:
            end_all(self._mark, self._launcher.sessions)
            return error
        return None

    def _read_streams(self) -> None:
        self._history.tell(judge_streams(self._launcher.stream_directory))
        for path, line, record in read_streams(self._launcher.stream_directory):
            if not self._history.has_room:
                return
            name = path.relative_to(self._setting.directory).as_posix()
            self._history.see(record, name.encode("utf-8", "backslashreplace").decode(), line)

    def _list(self) -> None:
        names = tuple(one.name for one in self._store.checkpoints())
        committed = self._committed
        newest = next((name for name in reversed(names) if name in committed), None)
        self._history.tell(
            Listed(
                checkpoints=names,
                pointer=self._store.pointed(),
                newest=newest,
                findings=judge_checkpoint(self._store.directory / newest) if newest else (),
                canary=any(path.exists() for path in self._canaries),
            )
        )
