"""Records a training loop of JAX, with Flax, optax and Orbax, without making it wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import jax

from trainspec_record.adapters.checkpoints import mark_of, restoring, size_bytes, write_mark
from trainspec_record.adapters.place import run_of
from trainspec_record.guard import never_raises
from trainspec_record.silent import NO_SPAN

if TYPE_CHECKING:
    from trainspec_record.adapters.checkpoints import Mark
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
LEAST_SECONDS = 0.01
"""Compilation that shows in the time of an update."""
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.05
COMMIT_SECONDS = 1.0
"""Longest time that the end of a loop waits for a save to be seen; the program has waited for the save itself."""
T = TypeVar("T")


def begin(**settings: Any) -> Run | SilentRun:
    """Begin to record, as the process that JAX knows; settings are those of `trainspec_record.run`.

    A rank is a process, and its devices are declared as `train.rank.num_devices`; `peak_flops` is that of one device.
    """
    num_devices = jax.local_device_count()
    if num_devices > 1:
        settings["declared"] = {"train.rank.num_devices": num_devices, **settings.get("declared", {})}
    return run_of(jax.process_index(), jax.process_count(), 0, **settings)


class _Update(NamedTuple):
    """An optimizer step whose values are still computed."""

    words: dict[str, Any]
    is_compiled: bool


class _Compilations:
    """Seconds that each thread has spent in the compiler."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILE_EVENT:
            thread = threading.get_ident()
            self.seconds[thread] = self.seconds.get(thread, 0.0) + duration_secs

    def of_this_thread(self) -> float:
        return self.seconds.get(threading.get_ident(), 0.0)

    def close(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._hear)


class Loop:
    """Steps of a training loop: the loop continues while a thread waits for the values and completes each in order.

    Time between completions is then that of the device. Values of a step may be arrays of one element.
    """

    def __init__(self, run: Run | SilentRun) -> None:
        self.run = run
        self._updates: queue.SimpleQueue[_Update | None] = queue.SimpleQueue()
        self._words: dict[str, Any] = {}
        self._num_open = 0
        self._changed = threading.Condition()
        self._has_begun = self._has_completed = False
        self._commits: list[threading.Thread] = []
        self._compilations: _Compilations | None = None
        self._compiled_seconds = 0.0
        if run.is_active:
            self._compilations = _Compilations()
            threading.Thread(target=self._wait, name="trainspec-record-jax", daemon=True).start()

    def __enter__(self) -> Self:
        """The loop begins."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The loop ends: its steps are completed, unless an error ended it."""
        self.close(is_whole=kind is None)

    @contextmanager
    def step(self, number: int | None = None) -> Iterator[None]:
        """One optimizer step, completed when its values are there; `number` is how many are completed before it."""
        self._begin(number)
        self._words = {}
        yield
        self._put()

    @never_raises(None)
    def _begin(self, number: int | None) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.run.step(number).__enter__()  # the first step; the others begin where the one before ends

    @never_raises(None)
    def _put(self) -> None:
        if self._compilations is None:
            return
        seconds, before = self._compilations.of_this_thread(), self._compiled_seconds
        self._compiled_seconds = seconds
        with self._changed:
            self._num_open += 1
        self._updates.put(_Update(self._words, seconds - before > LEAST_SECONDS))

    def log(self, **words: Any) -> None:
        """Values of the step that is under way, by the words of `Run.log`, of all processes together."""
        self._words.update(words)

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Batches of a loader, in its order; waiting for one is data wait where the device has nothing left to do."""
        batches = iter(loader)
        while True:
            with self.run.phase("data_wait") if self._num_open == 0 else NO_SPAN:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch

    @never_raises(False)
    def drain(self, seconds: float = WAIT_SECONDS) -> bool:
        """Wait until all optimizer steps are completed, or for so long; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._num_open == 0, seconds)

    @never_raises(None)
    def close(self, *, is_whole: bool = True) -> None:
        """The loop is over."""
        if self._compilations is not None:
            if is_whole:
                self.drain()
                for thread in self._commits:
                    thread.join(COMMIT_SECONDS)
            self._updates.put(None)
            self._compilations.close()
            self._compilations = None

    def _wait(self) -> None:
        while (update := self._updates.get()) is not None:
            self._complete(update)
            with self._changed:
                self._num_open -= 1
                self._changed.notify_all()

    @never_raises(None)
    def _complete(self, update: _Update) -> None:
        jax.block_until_ready(update.words)
        words = {word: _number(value) for word, value in update.words.items()}
        if update.is_compiled and self._has_completed:  # the first step warms up anyway
            self.run.warm_up_again()
        with self.run.step():
            self.run.log(**words)
        self._has_completed = True

    # --- evaluations and checkpoints ------------------------------------------------------------------------

    def evaluation(self, name: str = "validation") -> Any:
        """`Run.evaluation`, once all optimizer steps are completed."""
        self.drain()
        return self.run.evaluation(name)

    @contextmanager
    def saving(self, folder: str | Path) -> Iterator[Any]:
        """The time that a save into a folder holds up training; it is committed when the folder exists under its name.

        That is how Orbax finishes a save, at once or while training continues. Outside of a file system, call
        `commit` on what the block gives, once the save is whole.
        """
        self.drain()
        name = Path(folder).name
        name = f"step-{name}" if name.isdecimal() else name
        mark, before = mark_of(self.run, name), _stand_of(folder)
        with self.run.checkpoint(name, asynchronous=True) as save:
            yield save
        if self.run.is_active and "://" not in str(folder):
            told = (save, mark, Path(folder), before)
            thread = threading.Thread(target=self._await_commit, args=told, name="trainspec-record-save", daemon=True)
            self._commits.append(thread)
            thread.start()

    @never_raises(None)
    def _await_commit(self, save: Any, mark: Mark | None, folder: Path, before: tuple[int, int] | None) -> None:
        while self.run.is_active:
            if _stand_of(folder) not in {None, before}:
                write_mark(mark, folder)
                save.commit(size_bytes=size_bytes(folder))
                return
            time.sleep(POLL_SECONDS)

    def restoring(self, folder: str | Path, step: int | None = None) -> Any:
        """Loading of the checkpoint in a folder that was saved within `saving`; `step` where it was not recorded."""
        return restoring(self.run, folder, step)


def _number(value: Any) -> Any:
    """The number in an array of one element; any other value as it is."""
    return value.item() if isinstance(value, jax.Array) and value.size == 1 else value


def _stand_of(folder: str | Path) -> tuple[int, int] | None:
    """What tells a folder from one of the same name that stood there before; None where there is none."""
    try:
        found = Path(folder).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
