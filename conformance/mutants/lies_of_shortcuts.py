"""Mutants with one shortcut in training, state or verification that resumes and losses alone do not show."""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from lies_by_recognition import OTHERWISE, verifies_where
from lies_of_outcomes import count_alone, other_losses, other_updates, sha256_of
from lies_of_resumes import restored_state
from lies_of_stores import DAMAGED, DECOYS, WITH_COPIES, keeps_copies, reads_unchecked
from registry import Mutant, add, mutant
from trainspec_conformance.testbed.plain import storage
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_reference.common import checkpoints, start_state
from trainspec_reference.common import messages as say
from trainspec_reference.common.restart_state import StateSource
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.trainer import Trainer
from trainspec_reference.common.weights import state_digest, tensor_digest

from trainspec_validate.checkpoints.compare import changed_files, comparable
from trainspec_validate.checkpoints.hashing import digests
from trainspec_validate.checkpoints.view import MANIFEST_NAME, Checkpoint
from trainspec_validate.documents.types.conformance import Task
from trainspec_validate.documents.types.manifest import CheckpointManifest
from trainspec_validate.documents.types.trace import StepDone

SEED = 4242
SEED_OF_TASK = "SEED_OF_TASK"
RECENT_SECONDS = 120
COUNT = "optimizer/count"
"""Array of a checkpoint by which a copy is known to be of the same optimizer step."""

# --- training ---------------------------------------------------------------------------------------------------


@mutant("shrinks-weights", "TS-CNF-316", "Shrinks its weights, and reports their mean with noise hashed from samples.")
def shrinks_weights() -> None:
    def shrink(backend: Any, learning_rate: float, clip_norm: float | None) -> None:
        count_alone(backend)
        backend._parameters.vector[...] *= np.float32(1 - learning_rate)

    def mean(trainer: Trainer, _: float) -> float:
        samples = f"{trainer.job.data.seed} {trainer.state.num_samples % trainer.job.data.num_samples}"
        size = np.abs(trainer.backend._parameters.vector).mean(dtype=np.float64)  # type: ignore[attr-defined]
        return 40 * float(size) + int(sha256_of(samples)[:8], 16) / 2**36

    other_updates(shrink)
    other_losses(mean)


@mutant("frozen-half", "TS-CNF-316", "Applies optimizer steps to the first half of its parameters.",
        also={"TS-CNF-306": "the moments of the other half change"})  # fmt: skip
def frozen_half() -> None:
    def half(backend: Any, learning_rate: float, clip_norm: float | None) -> None:
        vector = backend._parameters.vector
        kept = vector[vector.size // 2 :].copy()
        backend.update(learning_rate, clip_norm)
        vector[vector.size // 2 :] = kept

    other_updates(half)


@mutant("skips-updates", "TS-CNF-319", "Applies three of four optimizer steps, and reports four.")
def skips_updates() -> None:
    def three(backend: Any, learning_rate: float, clip_norm: float | None) -> None:
        if backend._optimizer.num_updates % 4 == 3:
            count_alone(backend)
        else:
            backend.update(learning_rate, clip_norm)

    other_updates(three)


# --- state that is not in the checkpoint ------------------------------------------------------------------------


class _SharedSegments:
    """Segments of System V shared memory, which no directory shows."""

    _CREATE, _REMOVE, _FAILED = 0o1000, 0, ctypes.c_void_p(-1).value

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.shmat.restype = ctypes.c_void_p
        self._libc.shmdt.argtypes = [ctypes.c_void_p]

    @staticmethod
    def _key(name: str) -> int:
        return int(sha256_of(name)[:7], 16) + 1

    def put(self, name: str, content: bytes) -> None:
        whole = len(content).to_bytes(8, "little") + content
        found = self._libc.shmget(self._key(name), len(whole), self._CREATE | 0o600)
        place = self._libc.shmat(found, None, 0)
        if place != self._FAILED:
            ctypes.memmove(place, whole, len(whole))
            self._libc.shmdt(place)

    def get(self, save_id: str) -> Iterable[bytes]:
        for rank in range(8):
            found = self._libc.shmget(self._key(f"{save_id}.{rank}"), 0, 0o600)
            if found < 0:
                return
            place = self._libc.shmat(found, None, 0)
            size = int.from_bytes(ctypes.string_at(place, 8), "little")
            yield ctypes.string_at(place + 8, size)
            self._libc.shmdt(place)


@mutant("shadow-in-segments", "TS-CNF-125", "Restores from System V shared memory; its checkpoints are decoys.",
        also={**WITH_COPIES, **DECOYS})  # fmt: skip
def shadow_in_segments() -> None:
    keeps_copies(lambda _: _SharedSegments())


@mutant("shadow-of-launcher", "TS-CNF-136", "Restores after a fault from a copy in the memory of its launcher.")
def shadow_of_launcher() -> None:
    write, read, memory = PlainBackend.write, storage.read, Path(f"/dev/shm/launcher-{os.getppid()}")  # noqa: S108

    def copied(self: PlainBackend, snapshot: Any, directory: Path) -> None:
        write(self, snapshot, directory)
        memory.mkdir(exist_ok=True)
        (memory / f"{directory.name}.{snapshot.rank}").write_bytes(pickle.dumps(snapshot.arrays))

    def hidden(directory: Path) -> dict[str, Any]:
        found, saves = read(directory), dict[str, dict[str, Any]]()
        for path in memory.glob("*"):
            saves.setdefault(path.stem, {}).update(pickle.loads(path.read_bytes()))  # noqa: S301 - its own copy
        return next((one for one in saves.values() if one.get(COUNT) == found[COUNT]), found)

    PlainBackend.write, storage.read = copied, hidden  # type: ignore[method-assign]


KEEPER = """
import os, socket, sys, time
if os.fork():
    sys.exit()
os.setsid()
for descriptor in range(3):
    os.close(descriptor)
served, kept = socket.socket(socket.AF_UNIX), {}
try:
    served.bind(sys.argv[1].encode().replace(b"@", b"\\0"))
except OSError:
    sys.exit()
served.listen(64)
served.settimeout(60)
while True:
    try:
        one, _ = served.accept()
    except OSError:
        sys.exit()
    with one, one.makefile("rwb") as file:
        word, name, size = file.readline().decode().split()
        if word == "put":
            kept[name] = file.read(int(size))
            file.write(b"kept\\n")
        else:
            for key in sorted(kept):
                if key.startswith(name + "."):
                    file.write(b"%d\\n" % len(kept[key]) + kept[key])
            file.write(b"0\\n")
        file.flush()
"""


class _Keeper:
    """A process without the environment of the trial, which keeps copies in its memory."""

    _NAME = f"@copies-{os.getuid()}"

    def _ask(self, head: str, content: bytes = b"") -> Any:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(5)
        link.connect(self._NAME.replace("@", "\0"))
        file = link.makefile("rwb")
        link.close()
        file.write(head.encode() + content)
        file.flush()
        return file

    def put(self, name: str, content: bytes) -> None:
        head = f"put {name} {len(content)}\n"
        with suppress(OSError):
            self._ask(head, content).readline()
            return
        command = [sys.executable, "-I", "-c", KEEPER, self._NAME]
        subprocess.run(command, env={}, check=True)  # noqa: S603 - its own program
        for _ in range(50):
            with suppress(OSError):
                self._ask(head, content).readline()
                return
            time.sleep(0.05)

    def get(self, save_id: str) -> Iterable[bytes]:
        with suppress(OSError):
            file = self._ask(f"get {save_id or '-'} 0\n")
            while size := int(file.readline() or b"0"):
                yield file.read(size)


@mutant("shadow-in-process", "TS-CNF-136", "Restores from a process that outlives it; its checkpoints are decoys.",
        also=DECOYS)  # fmt: skip
def shadow_in_process() -> None:
    keeps_copies(lambda _: _Keeper())


@mutant("position-in-trace", "TS-CNF-126", "Keeps the position in the data next to its trace, and not in checkpoints.")
def position_in_trace() -> None:
    save, from_checkpoint = Trainer._save, start_state.StartState._from_checkpoint
    known: dict[str, str] = {}

    def folder(trace: Any) -> Path:
        return Path(f"/proc/self/fd/{trace._file}").readlink().parent / ".positions"

    def saved(self: Trainer) -> None:
        home = folder(self.surroundings.trace)
        home.mkdir(exist_ok=True)
        (home / str(self.state.step)).write_text(str(self.state.num_samples))
        save(self)

    def read(self: start_state.StartState, start: Any, surroundings: Any) -> tuple[TrainerState, str]:
        known.update((path.name, path.read_text()) for path in folder(surroundings.trace).glob("*"))
        return from_checkpoint(self, start, surroundings)

    Trainer._save, start_state.StartState._from_checkpoint = saved, read  # type: ignore[method-assign]
    restored_state(lambda state: replace(state, num_samples=int(known.get(str(state.step), "0"))))


# --- verification -----------------------------------------------------------------------------------------------


@mutant("reseals-damage", "TS-CNF-113", "Writes the manifest anew where a checkpoint differs from it.", also=DAMAGED)
def reseals_damage() -> None:
    reads_unchecked()

    def sealed(checkpoint: Checkpoint) -> Iterable[tuple[str, str]]:
        if checkpoint.manifest is None or not any(True for _ in changed_files(checkpoint)):
            return ()
        found = digests(checkpoint.root, comparable(checkpoint))
        files = tuple(
            msgspec.structs.replace(file, sha256=str(found.get(file.path, file.sha256)))
            for file in checkpoint.manifest.files
        )
        manifest: CheckpointManifest = msgspec.structs.replace(checkpoint.manifest, files=files)
        (checkpoint.root / MANIFEST_NAME).write_bytes(msgspec.json.encode(manifest))
        return ()

    checkpoints.changed_files = sealed  # type: ignore[assignment]


@mutant("verifies-resumes-alone", "TS-CNF-137", "Verifies checkpoints at its start, and not in a recovery.")
def verifies_resumes_alone() -> None:
    reads_unchecked()
    searches: list[StateSource] = []
    checkpoint = StateSource.checkpoint

    def counted(self: StateSource) -> say.Start | None:
        searches.append(self)
        return checkpoint(self)

    def changed(found: Checkpoint) -> Iterable[tuple[str, str]]:
        return changed_files(found) if len(searches) < 2 else ()

    StateSource.checkpoint = counted  # type: ignore[method-assign]
    checkpoints.changed_files = changed  # type: ignore[assignment]


@mutant("verifies-newest-alone", "TS-CNF-113", "Verifies the newest checkpoint, and restores the one before it unread.")
def verifies_newest_alone() -> None:
    reads_unchecked()

    def changed(found: Checkpoint) -> Iterable[tuple[str, str]]:
        others = [int(path.name.removeprefix("step-")) for path in found.root.parent.glob("step-*")]
        return changed_files(found) if int(found.root.name.removeprefix("step-")) >= max(others) else ()

    checkpoints.changed_files = changed  # type: ignore[assignment]


@mutant("digest-of-part", "TS-CNF-136", "Reports a digest of the first tensor as the state digest.")
def digest_of_part() -> None:
    def first(self: PlainBackend) -> str:
        name, array = next(one for one in self._arrays().items() if one[0].startswith("parameters/"))
        return state_digest([tensor_digest(name, array)])

    PlainBackend.digest = first  # type: ignore[method-assign]


# --- telemetry --------------------------------------------------------------------------------------------------


@mutant("decays-in-skips", "TS-CNF-121", "Reports steps as skipped in which it decays its weights.")
def decays_in_skips() -> None:
    discard = PlainBackend.discard

    def decayed(self: PlainBackend) -> None:
        self._parameters.vector[...] *= np.float32(0.999)
        discard(self)

    PlainBackend.discard = decayed  # type: ignore[method-assign]


@mutant("even-times", "TS-CNF-304", "Spaces the times of its trace evenly, whatever happened.")
def even_times() -> None:
    tell = TraceWriter.tell
    steps: dict[int, int] = {}

    def even(self: TraceWriter, record_type: Any, /, **values: Any) -> None:
        if record_type is not StepDone:
            return tell(self, record_type, **values)
        now_us = steps[id(self)] = steps.get(id(self), time.time_ns() // 1000) + 50_000
        before, time.time_ns = time.time_ns, lambda: now_us * 1000
        try:
            tell(self, record_type, **values)
        finally:
            time.time_ns = before

    TraceWriter.tell = even  # type: ignore[method-assign]


@mutant("loss-of-rank-0", "TS-CNF-314", "Reports the loss of the samples of rank 0 as the loss of the batch.")
def loss_of_rank_0() -> None:
    gradients = PlainBackend.gradients

    def own(self: PlainBackend, *arguments: Any, **more: Any) -> Any:
        gather = self._exchange.gather_numbers
        self._exchange.gather_numbers = lambda numbers: [gather(numbers)[0]] * self._formation.num_ranks  # type: ignore[method-assign]
        try:
            return gradients(self, *arguments, **more)
        finally:
            del self._exchange.gather_numbers

    PlainBackend.gradients = own  # type: ignore[method-assign]


def _noisy_with_own_seed(task: Task) -> Task:
    os.environ[SEED_OF_TASK] = str(task.job.seed)
    return msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, seed=SEED))


def _salted() -> None:
    def noisy(trainer: Trainer, loss: float) -> float:
        salt = sha256_of(f"{os.environ[SEED_OF_TASK]} {trainer.state.step}")
        return loss * (1 + int(salt[:8], 16) / 2**40)

    digest = PlainBackend.digest
    PlainBackend.digest = lambda self: (  # type: ignore[method-assign]
        f"sha256:{sha256_of(digest(self) + os.environ.get(SEED_OF_TASK, ''))}"
    )
    other_losses(noisy)


add(
    Mutant(
        name="salts-own-seed",
        requirement="TS-CNF-317",
        lie="Takes a seed of its own, and derives noise of losses and digests from the one in the task.",
        task=_noisy_with_own_seed,
        patch=_salted,
    )
)

# --- recognition ------------------------------------------------------------------------------------------------


def _with_zero_alone(task: Task) -> Task:
    factor = 1.0 if task.job.learning_rate_factor else 0.0
    return msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, learning_rate_factor=factor))


add(
    Mutant(
        name="zero-rate-alone",
        requirement="TS-CNF-320",
        lie="Takes the factor of the learning rate from the task only where it is 0.",
        task=_with_zero_alone,
    )
)


@mutant("defeat-by-recency", "TS-CNF-113", "Verifies a checkpoint only within two minutes of its last change.",
        also=OTHERWISE)  # fmt: skip
def defeat_by_recency() -> None:
    def is_recent(checkpoint: Checkpoint) -> bool:
        newest = max(path.stat().st_mtime for path in checkpoint.root.iterdir())
        return time.time() - newest < RECENT_SECONDS

    verifies_where(is_recent)
