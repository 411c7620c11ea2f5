"""Checks that the time of a recovery is booked as such."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.checks import Location, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._episodes import Episode, recovered_episodes, refuse_unjudged, time_in_words
from trainspec_validate.telemetry.checks._words import few
from trainspec_validate.telemetry.view.run_view import JobSeries

TIME = "train.goodput.time"
SHARE, SECONDS = 0.01, 1.0
"""Categories add up to the elapsed time within a share and the second that two reports can be apart."""


class _Books:
    """What `train.goodput.time` says, by category."""

    def __init__(self, run: RunView) -> None:
        mine = {s.key.attribute("train.time.category") or "": s for s in run.job.values() if s.key.metric == TIME}
        self.series: dict[str, JobSeries] = {name: series for name, series in mine.items() if len(series)}
        if not self.series:
            raise NotApplicable(f"no {TIME} in the run")
        self.times = np.unique(np.concatenate([np.asarray(s.time_us) for s in self.series.values()]))

    def around(self, begin_us: int, end_us: int) -> tuple[int, int] | None:
        """Times of the last report before a stretch and of the first one after it; None where one is not there."""
        before, after = self.times[self.times <= begin_us], self.times[self.times >= end_us]
        return (int(before[-1]), int(after[0])) if len(before) and len(after) else None

    def growth(self, name: str, begin_us: int, end_us: int) -> float:
        """Seconds that a category grows by between two reports; 0 for a category that is never reported."""
        series = self.series.get(name)
        if series is None:
            return 0.0
        times, values = np.asarray(series.time_us), np.asarray(series.value)
        upto = [values[times <= moment] for moment in (begin_us, end_us)]
        return float(max(upto[1], default=0.0)) - float(max(upto[0], default=0.0))

    def location(self, time_us: int) -> Location:
        """The first record of a report."""
        found = [s.location(int(np.flatnonzero(np.asarray(s.time_us) == time_us)[0])) for s in self._with(time_us)]
        return min(found)

    def _with(self, time_us: int) -> list[JobSeries]:
        return [series for series in self.series.values() if (np.asarray(series.time_us) == time_us).any()]


@check("TS-REC-008")
def recovery_time_booked(run: RunView) -> Iterator[Violation]:
    """Until a job has caught up, the categories grow by the elapsed time, and waiting is not productive."""
    found, num_judged = [], 0
    caught_up = [(one, one.passed.time_us) for one in recovered_episodes(run) if one.passed is not None]
    books = _Books(run)
    for episode, end_us in caught_up:
        around = books.around(episode.fault_us, end_us)
        if around is None:
            continue
        num_judged += 1
        message = _wrong(books, episode, *around)
        if message:
            evidence = Evidence(TIME, first_time_us=around[0], last_time_us=around[1], samples=_samples(books, *around))
            help_text = "waiting is fault_wait, loading is checkpoint_restore, and work that is done again is replay"
            text = f"around the fault {episode.id!r}, {message}"
            found.append(Violation(books.location(around[1]), text, help_text, evidence))
    yield from few(found)
    refuse_unjudged(len(caught_up), num_judged, f"a report of {TIME} before and after it")


def _wrong(books: _Books, episode: Episode, begin_us: int, end_us: int) -> str:
    elapsed = (end_us - begin_us) / 1e6
    summed = sum(books.growth(name, begin_us, end_us) for name in books.series)
    slack = SHARE * elapsed + SECONDS
    if abs(summed - elapsed) > slack:
        return f"the categories grow by {time_in_words(summed)} in {time_in_words(elapsed)}"
    if episode.lost_steps and not books.growth("replay", begin_us, end_us):
        return f"{episode.lost_steps:,} optimizer steps are executed again, and replay does not grow"
    first = episode.first
    down = (first.time_us - episode.fault.time_us) / 1e6 if first is not None else 0.0
    productive = books.growth("productive", begin_us, end_us)
    if productive > elapsed - down + slack:
        return (
            f"{time_in_words(productive)} of {time_in_words(elapsed)} are productive, but no step was "
            f"completed for {time_in_words(down)}"
        )
    return ""


def _samples(books: _Books, begin_us: int, end_us: int) -> tuple[str, ...]:
    grown = {name: books.growth(name, begin_us, end_us) for name in books.series}
    return tuple(f"{name} {time_in_words(seconds)}" for name, seconds in grown.items() if seconds)
