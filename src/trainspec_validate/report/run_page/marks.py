"""Lists the marks in the charts of a run: attempts, faults, checkpoints, evaluations, gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.report.run_page.intervals import intervals
from trainspec_validate.telemetry.view.run_view import RunView, Trouble

KINDS = {
    "attempt": "attempt begins",
    "fault": "fault",
    "checkpoint": "checkpoint committed",
    "failed": "save failed",
    "notice": "straggler, loss spike, value not finite or ranks that disagree",
    "evaluation": "evaluation",
    "recovery": "recovery",
    "gap": "gap of the telemetry",
    "between": "no attempt runs",
}
"""Everything that is marked, and what it means; in the order of the key."""
_NOTICES = (
    *("train.straggler.detected", "train.loss.spike", "train.nonfinite.detected", "train.desync.detected"),
    *("train.rank.lost", "train.clock.stepped"),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that is marked."""

    kind: str
    time_us: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time that is marked."""

    kind: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Marks:
    """Everything that is marked, in order of time."""

    moments: tuple[Mark, ...]
    stretches: tuple[Stretch, ...]

    def kinds(self) -> list[str]:
        """Kinds that occur, in the order of the key."""
        found = {mark.kind for mark in self.moments} | {stretch.kind for stretch in self.stretches}
        return [kind for kind in KINDS if kind in found]


def marks(view: RunView) -> Marks:
    """Stretches that are marked in the charts of a run."""
    moments = sorted(_moments(view), key=lambda mark: mark.time_us)
    stretches = sorted(_stretches(view), key=lambda stretch: stretch.start_us)
    return Marks(tuple(moments), tuple(stretches))


def _moments(view: RunView) -> Iterator[Mark]:
    for span in view.attempts:
        yield Mark("attempt", span.first_time_us, f"attempt {span.number}")
    for event in view.events_named("train.fault.detected"):
        yield Mark("fault", event.time_us)
    for save in intervals(view, "train.checkpoint.begin"):
        if save.closed:
            yield Mark("checkpoint" if save.closed.name.endswith("commit") else "failed", save.end_us)
    for event in view.events_named(*_NOTICES):
        yield Mark("notice", event.time_us)


def _stretches(view: RunView) -> Iterator[Stretch]:
    for kind, opener in (("evaluation", "train.evaluation.begin"), ("recovery", "train.recovery.begin")):
        for each in intervals(view, opener):
            yield Stretch(kind, each.start_us, each.end_us)
    for before, after in zip(view.attempts, view.attempts[1:], strict=False):
        if after.first_time_us > before.last_time_us:
            yield Stretch("between", before.last_time_us, after.first_time_us)
    for start_us, end_us in gaps(view):
        yield Stretch("gap", start_us, end_us)


def gaps(view: RunView) -> Sequence[tuple[int, int]]:
    """Gaps of the telemetry, joined where they overlap: declared ones, and holes in series of the job."""
    found = []
    for event in view.events_named("train.telemetry.gap"):
        start, end = event.attribute("train.gap.start"), event.attribute("train.gap.end")
        if type(start) is int and type(end) is int and view.first_time_us <= start < end <= view.last_time_us:
            found.append((start, end))
    for trail in view.trails_of(Trouble.GAP):
        if str(trail.key) in view.job:
            found += [(each.time_before_us, each.time_us) for each in trail.first if each.time_before_us >= 0]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
