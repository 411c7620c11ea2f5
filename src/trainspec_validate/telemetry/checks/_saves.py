"""Collects the saves of a run: begins, commits, failures and deletions of each checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainspec_validate.telemetry.checks import require
from trainspec_validate.telemetry.checks._attributes import LARGEST, word
from trainspec_validate.telemetry.view.run_view import PlacedEvent, RunView

BEGIN, COMMIT = "train.checkpoint.begin", "train.checkpoint.commit"
FAIL, DELETE = "train.checkpoint.fail", "train.checkpoint.delete"
DURABILITY = ("process", "node", "job", "site")
"""Events that a checkpoint outlives, least first."""


@dataclass(slots=True)
class Save:
    """One checkpoint of the run with all that is said about it."""

    id: str
    begun: PlacedEvent | None = None
    commits: list[PlacedEvent] = field(default_factory=list)
    failed: PlacedEvent | None = None
    deleted: PlacedEvent | None = None

    @property
    def first(self) -> PlacedEvent:
        """The first event about it."""
        return min(self._events(), key=lambda event: (event.time_us, event.location))

    @property
    def committed(self) -> PlacedEvent | None:
        """Its first commit; None where there is none."""
        return self.commits[0] if self.commits else None

    @property
    def step(self) -> int | None:
        """Optimizer step that the saved state belongs to."""
        for commit in self.commits:
            value = commit.value("train.checkpoint.step")
            if value is not None and 0 <= value <= LARGEST:
                return int(value)
        named = [event.step for event in (self.begun, self.committed) if event is not None]
        return next((step for step in named if step is not None), None)

    def durable_at(self, least: str) -> PlacedEvent | None:
        """The commit with which it outlives at least this; None where it never does."""
        wanted = DURABILITY[DURABILITY.index(least) :]
        return next((c for c in self.commits if word(c, "train.checkpoint.durability") in wanted), None)

    @property
    def outlives_the_job(self) -> bool:
        """Whether a commit says that it outlives the job, or no commit says what it outlives."""
        said = [word(commit, "train.checkpoint.durability") for commit in self.commits]
        return bool(said) and (self.durable_at("job") is not None or not any(said))

    def usable_at(self, time_us: int) -> bool:
        """Whether it was committed and not deleted at a moment."""
        done = self.committed is not None and self.committed.time_us <= time_us
        return done and (self.deleted is None or self.deleted.time_us > time_us)

    def value(self, metric: str) -> float | None:
        """A value that one of its commits carries."""
        values = (commit.value(metric) for commit in self.commits)
        return next((value for value in values if value is not None), None)

    def _events(self) -> Iterator[PlacedEvent]:
        yield from self.commits
        yield from (event for event in (self.begun, self.failed, self.deleted) if event is not None)


def checkpoint_id(event: PlacedEvent) -> str | None:
    """The checkpoint that an event is about, by its attribute, else by its `id`."""
    return word(event, "train.checkpoint.id") or event.record.id


def saves(run: RunView) -> Sequence[Save]:
    """Every checkpoint that events name, in order of the first of them."""
    found: dict[str, Save] = {}
    for event in run.events_named(BEGIN, COMMIT, FAIL, DELETE):
        name = checkpoint_id(event)
        if name is None:
            continue
        save = found.setdefault(name, Save(name))
        if event.name == BEGIN:
            save.begun = save.begun or event
        elif event.name == COMMIT:
            save.commits.append(event)
        elif event.name == FAIL:
            save.failed = event
        else:
            save.deleted = event
    return sorted(found.values(), key=lambda save: (save.first.time_us, save.first.location))


def committed_saves(run: RunView) -> Sequence[Save]:
    """The checkpoints that were committed, in order of their first event.

    Raises:
        NotApplicable: none was.
    """
    return require([save for save in saves(run) if save.commits], "no checkpoint was committed in the run")
