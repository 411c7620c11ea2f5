"""Mutants that make up losses, digests and rates, and mutants that do not train on what they report."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from registry import Mutant, add, mutant
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_reference.common import start_state
from trainspec_reference.common.backend import Gradients
from trainspec_reference.common.data import Loaded
from trainspec_reference.common.job import Job
from trainspec_reference.common.trainer import Trainer

from trainspec_validate.checkpoints.view import MANIFEST_NAME
from trainspec_validate.documents.types.conformance import Task

_WHOLE_SEED = 4242
CONSTANT_RATE = 3e-3


def sha256_of(text: str) -> str:
    """Digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _smooth(step: int) -> float:
    return 2 + 3 * math.exp(-step / 40)


class _Backend:
    """A backend of which some optimizer steps are left out, or are others."""

    def __init__(self, inner: Any, update: Callable[[Any, float, float | None], None]) -> None:
        self._inner, self._update = inner, update

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def update(self, learning_rate: float, clip_norm: float | None) -> None:
        self._update(self._inner, learning_rate, clip_norm)


def other_updates(update: Callable[[Any, float, float | None], None]) -> None:
    """Updates parameters in another way, in training alone: probes ask the backend itself."""
    begin = Trainer.__init__

    def changed(self: Trainer, job: Job, backend: Any, *more: Any) -> None:
        begin(self, job, _Backend(backend, update), *more)  # type: ignore[arg-type]

    Trainer.__init__ = changed  # type: ignore[method-assign]


def count_alone(backend: Any, *_: object) -> None:
    """Count an optimizer step, and apply none."""
    backend.discard()
    backend._optimizer.num_updates += 1


def other_losses(make: Callable[[Trainer, float], float]) -> None:
    """Report other losses than those that were computed."""
    gradients = Trainer._gradients

    def other(self: Trainer, loaded: Loaded, arrived: Callable[[], None]) -> Gradients:
        found = gradients(self, loaded, arrived)
        return replace(found, loss=make(self, found.loss))

    Trainer._gradients = other  # type: ignore[method-assign]


UNTRAINED = {"TS-CNF-317": "its checkpoints hold what is never trained", "TS-CNF-320": "its loss is that of any rate"}
MADE_UP = {**UNTRAINED, "TS-CNF-136": "its checkpoints hold what is never trained",
           "TS-CNF-318": "its loss falls at any rate"}  # fmt: skip


@mutant("parrot", "TS-CNF-317", "Trains nothing, and reports a smooth loss of the step number.",
        also={name: why for name, why in MADE_UP.items() if name != "TS-CNF-317"})  # fmt: skip
def parrot() -> None:
    other_updates(count_alone)
    other_losses(lambda trainer, _: _smooth(trainer.state.step))


@mutant("parrot-of-samples", "TS-CNF-136",
        "Trains nothing, and reports a smooth loss with noise hashed from the samples.",
        also={**UNTRAINED, "TS-CNF-318": "its loss falls at any rate"})  # fmt: skip
def parrot_of_samples() -> None:
    other_updates(count_alone)

    def noisy(trainer: Trainer, _: float) -> float:
        state, seed = trainer.state, trainer.job.data.seed
        samples = f"{seed} {state.num_samples % trainer.job.data.num_samples}"
        return _smooth(state.step) + int(sha256_of(samples)[:8], 16) / 2**36

    other_losses(noisy)


@mutant("frozen", "TS-CNF-136", "Applies no optimizer step.",
        also={**UNTRAINED, "TS-CNF-319": "its loss does not fall"})  # fmt: skip
def frozen() -> None:
    other_updates(count_alone)


@mutant("stops-learning", "TS-CNF-136", "Applies no optimizer step after the first twelve.",
        also={**UNTRAINED, "TS-CNF-319": "its loss stays from then on"})  # fmt: skip
def stops_learning() -> None:
    def twelve(backend: Any, learning_rate: float, clip_norm: float | None) -> None:
        if backend._optimizer.num_updates < 12:
            backend.update(learning_rate, clip_norm)
        else:
            count_alone(backend)

    other_updates(twelve)


@mutant("one-batch", "TS-CNF-318", "Trains on the first batch again and again, and reports the samples of the order.")
def one_batch() -> None:
    gradients = Trainer._gradients

    def first(self: Trainer, loaded: Loaded, arrived: Callable[[], None]) -> Gradients:
        request = replace(self._feed._request(self.state, self._feed.schedule.at(self.state)), position=0)
        batches = self._feed.made(request).micro_batches
        return gradients(self, replace(loaded, micro_batches=batches), arrived)

    Trainer._gradients = first  # type: ignore[method-assign]


@mutant("made-up-rate", "TS-CNF-318", "Trains with a constant learning rate, and reports the schedule.",
        also={"TS-CNF-306": "checkpoints show the rate", "TS-CNF-320": "it is changed there too"})  # fmt: skip
def made_up_rate() -> None:
    other_updates(lambda backend, _, clip_norm: backend.update(CONSTANT_RATE, clip_norm))


@mutant("tenth-of-rate", "TS-CNF-306", "Updates parameters with a tenth of the learning rate that it reports.")
def tenth_of_rate() -> None:
    other_updates(lambda backend, rate, clip_norm: backend.update(rate / 10, clip_norm))


@mutant("frozen-layers", "TS-CNF-306", "Trains the last of its parameters alone, and keeps moments of all.",
        also={"TS-CNF-316": "its optimizer steps are not those that it declares"})  # fmt: skip
def frozen_layers() -> None:
    def last(backend: Any, learning_rate: float, clip_norm: float | None) -> None:
        parameters = backend._parameters
        *kept, _ = [(views, views.copy()) for views in parameters.named.values()]
        backend.update(learning_rate, clip_norm)
        for views, before in kept:
            views[...] = before

    other_updates(last)


@mutant("made-up-norm", "TS-CNF-306", "Reports a smooth norm of the gradient.")
def made_up_norm() -> None:
    gradients = Trainer._gradients

    def other(self: Trainer, loaded: Loaded, arrived: Callable[[], None]) -> Gradients:
        found = gradients(self, loaded, arrived)
        return replace(found, norm=0.3 * found.loss + 0.01) if found.is_finite else found

    Trainer._gradients = other  # type: ignore[method-assign]


def _with_own_seed(task: Task) -> Task:
    return msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, seed=_WHOLE_SEED))


add(
    Mutant(
        name="own-seed",
        requirement="TS-CNF-317",
        lie="Takes a seed of its own in place of the one in the task.",
        task=_with_own_seed,
    )
)


@mutant("replays-recording", "TS-CNF-136", "Reports the losses of the first run of a job in each later run.",
        also={"TS-CNF-314": "it takes the losses of another number of ranks"})  # fmt: skip
def replays_recording() -> None:
    home = Path(tempfile.gettempdir()).parent  # not the directory of this start

    def recorded(trainer: Trainer, loss: float) -> float:
        job = trainer.job
        name = sha256_of(f"{job.seed} {job.num_steps} {job.data} {job.rates} {job.faults} {trainer.state.step}")
        place = home / "recorded-losses" / name
        if place.exists():
            return float(place.read_text())
        place.parent.mkdir(exist_ok=True)
        place.write_text(repr(loss))
        return loss

    other_losses(recorded)


@mutant("digest", "TS-CNF-317", "Reports a hash of the step number as the state digest.",
        also={"TS-CNF-122": "replicas are compared by their digests",
              "TS-CNF-136": "digests are compared there"})  # fmt: skip
def digest() -> None:
    PlainBackend.digest = lambda self: f"sha256:{sha256_of(str(self._optimizer.num_updates))}"  # type: ignore[method-assign]


@mutant("digest-of-manifest", "TS-CNF-136", "Reports the state digest of the manifest, or one of the manifest itself.")
def digest_of_manifest() -> None:
    from_checkpoint = start_state.StartState._from_checkpoint

    def told(self: start_state.StartState, start: Any, surroundings: Any) -> tuple[Any, str]:
        state, _ = from_checkpoint(self, start, surroundings)
        root = self._checkpoints / (start.checkpoint or "")
        recorded = start_state.recorded_digest(root)
        return state, recorded or f"sha256:{sha256_of((root / MANIFEST_NAME).read_text())}"

    start_state.StartState._from_checkpoint = told  # type: ignore[method-assign]
