"""Workers of the plain backend as threads of one process, for tests of the loop without a controller."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from trainspec_conformance.testbed import PLAIN
from trainspec_conformance.testbed.planted import PlantedJob, planted, with_faults
from trainspec_reference.common.backend import Backend, Formation, make
from trainspec_reference.common.job import Job
from trainspec_reference.common.ports import Surroundings, Wish
from trainspec_reference.common.reading import Changes, read_job
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.weights import initial_weights

from trainspec_record.silent import NO_RUN
from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.trace import StepDone, TraceRecord

PLANS = Path(__file__).parents[2] / "reference/plans"


def tiny_job(num_steps: int = 20, num_ranks: int = 1, **changes: Any) -> PlantedJob:
    """The smallest plan with its policy, made smaller; changes are of parts of the plan by name, or of the job."""
    job = read_job(PLANS / "state-space.yaml", PLANS / "policy.yaml", Changes(num_steps, num_ranks))
    shape = replace(job.model, num_layers=1, hidden_size=16, sequence_length=16)
    job = replace(job, model=shape, rates=replace(job.rates, peak=0.02, warmup_steps=5))
    faults = changes.pop("faults", ())
    for name, values in changes.items():
        if isinstance(values, dict) and hasattr(job.plan, name):
            job = replace(job, plan=changed(job.plan, **{name: changed(getattr(job.plan, name), **values)}))
        else:
            job = replace(job, **{name: values})
    return planted(job, faults)


@dataclass
class Desk:
    """Ports that note what they are told."""

    wish: Callable[[], Wish] = lambda: Wish.NONE
    on_arrival: Callable[[int], None] = lambda _: None
    directory: Path | None = None
    backend: Backend | None = None
    done_steps: list[int] = field(default_factory=list)
    arrived_steps: list[int] = field(default_factory=list)
    saved: dict[int, TrainerState] = field(default_factory=dict)

    def wishes(self) -> Wish:
        return self.wish()

    def arrived(self, step: int) -> None:
        self.arrived_steps.append(step)
        self.on_arrival(step)

    def done(self, step: int) -> None:
        self.done_steps.append(step)

    def save(self, state: TrainerState) -> None:
        self.saved[state.step] = state
        if self.directory is not None and self.backend is not None:
            place = self.directory / f"step-{state.step}"
            place.mkdir(parents=True, exist_ok=True)
            self.backend.write(self.backend.snapshot(), place)
            (place / "trainer.json").write_bytes(state.to_json())


@dataclass
class Result:
    """What one worker came to."""

    was_stopped: bool | None = None
    error: Exception | None = None
    state: TrainerState = field(default_factory=TrainerState)
    digest: str = ""
    desk: Desk = field(default_factory=Desk)
    trace: list[TraceRecord] = field(default_factory=list)

    @property
    def steps(self) -> list[StepDone]:
        return [record for record in self.trace if isinstance(record, StepDone)]

    @property
    def losses(self) -> list[float]:
        return [float(step.loss) for step in self.steps]


def formations(num_ranks: int, number: int = 0) -> Iterator[Formation]:
    """Places of all ranks of a formation on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for rank in range(num_ranks):
        yield Formation(number, rank, ("localhost",) * num_ranks, address, timeout_seconds=60)


def train(
    job: Job,
    directory: Path,
    *,
    num_ranks: int | None = None,
    desk: Callable[[], Desk] = Desk,
    restore: Path | None = None,
) -> list[Result]:
    """Train with so many workers to the end, and tell what each came to."""
    places = list(formations(num_ranks or job.plan.parallelism.num_accelerators))
    results = [Result(desk=desk()) for _ in places]
    threads = [
        threading.Thread(target=_work, args=(job, place, result, directory, restore), daemon=True)
        for place, result in zip(places, results, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive(), "a worker hangs"
    return results


def _work(
    job: Job,
    place: Formation,
    result: Result,
    directory: Path,
    restore: Path | None,
) -> None:
    backend = make(PLAIN, job)
    name = f"rank-{place.rank}"
    trace = TraceWriter(directory, name)
    trainer = None
    try:
        backend.join(place)
        backend.build(initial_weights(job.model, job.seed))
        state = TrainerState.first(job.plan)
        if restore is not None:
            backend.restore(restore)
            state = TrainerState.from_json((restore / "trainer.json").read_bytes())
        result.desk.backend = backend
        make_trainer = with_faults(job.faults if isinstance(job, PlantedJob) else ())
        trainer = make_trainer(job, backend, Surroundings(place, result.desk, trace, NO_RUN), state)
        result.was_stopped = trainer.run()
        result.digest = backend.digest()
    except Exception as error:
        result.error = error
    finally:
        backend.leave()
        trace.close()
        result.state = trainer.state if trainer else result.state
        lines = next(directory.glob(f"{name}-*.jsonl")).read_bytes().splitlines()
        result.trace = [msgspec.json.decode(line, type=TraceRecord) for line in lines]
