"""Checks that the ranks of a process group complete the same collective operations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check
from trainspec_validate.telemetry.checks._job import stretches
from trainspec_validate.telemetry.checks._rows import Columns, refuse_timeless, rows_of
from trainspec_validate.telemetry.checks._words import counted, few, number, seconds_in_words
from trainspec_validate.telemetry.checks.progress import lock_evidence
from trainspec_validate.telemetry.view.run_view import AttemptSpan, Location, Lockstep, RunView

SEQUENCE = "train.collective.sequence"
ENDINGS = ("train.evaluation.end", "train.checkpoint.commit", "train.checkpoint.restore.end")
"""Events after which a job that has no more optimizer steps to do runs no collective."""


@check("TS-TEL-034")
def collective_mismatch(run: RunView) -> Iterator[Violation]:
    """No rank stays behind the others of its group in the collectives that it completed."""
    refuse_timeless(run)
    locks = [lock for lock in run.lockstep if lock.key.metric == SEQUENCE and (lock.num > 1).sum() > 1]
    if not locks:
        raise NotApplicable(f"no two ranks report {SEQUENCE} of one group twice")
    found = [violation for lock in locks for violation in _stuck(lock)]
    yield from few(found or [violation for span in run.attempts for violation in _apart_at_the_end(run, span)])


def _stuck(lock: Lockstep) -> Iterator[Violation]:
    """A rank that completes nothing between two comparisons while another is ahead: all others wait for it."""
    behind = (lock.num == lock.num.max()) & (lock.low < lock.high)
    same = (lock.low[1:] == lock.low[:-1]) & (lock.low_rank[1:] == lock.low_rank[:-1])
    for begin, end in stretches(behind[1:] & behind[:-1] & same, 1):
        group = lock.key.attribute("train.group.name")
        yield Violation(
            Location(*(int(part) for part in lock.low_location[begin])),
            f"rank {int(lock.low_rank[begin])} stays at operation {number(lock.low[begin])} of group {group} for "
            f"{seconds_in_words((end - begin) * lock.width_us / 1e6)}, while rank {int(lock.high_rank[begin])} has "
            f"completed {number(lock.high[begin])}",
            "all ranks of a group run the same operations in the same order: look at what this rank does instead",
            lock_evidence(lock, begin, end + 1, counted(int(lock.high[begin] - lock.low[begin]), "operation")),
        )
        return


def _apart_at_the_end(run: RunView, span: AttemptSpan) -> Iterator[Violation]:
    """Ranks whose last values differ although the attempt was completed and they were written after all its work."""
    if span.ended is None or span.ended.attribute("train.attempt.reason") != "completed":
        return
    done = _end_of_work_us(run, span)
    rows = rows_of(run, [SEQUENCE])
    columns = Columns(run, rows)
    rows = rows[(columns["attempt"] == span.number) & (columns["last_time_us"] > done)]
    ordered = rows[np.argsort(run.series.rows["key"][rows], kind="stable")].tolist()
    for _, group in groupby(ordered, key=lambda row: int(run.series.rows["key"][row])):
        mine = np.array(list(group))
        values = run.series.rows["last_value"][mine]
        if len(mine) > 1 and values.min() < values.max():
            low, high = (run.series.at(int(mine[at])) for at in (np.argmin(values), np.argmax(values)))
            yield Violation(
                low.last_location,
                f"rank {low.subject.rank} ends with operation {number(low.last_value)} of group "
                f"{low.key.attribute('train.group.name')}, and rank {high.subject.rank} with {number(high.last_value)}",
                "all ranks of a group run the same operations in the same order",
                Evidence(str(low.key), f"rank {low.subject.rank}", low.last_time_us, high.last_time_us),
                ((high.last_location, "the other rank"),),
            )


def _end_of_work_us(run: RunView, span: AttemptSpan) -> Any:
    """When the last update, evaluation, save or restore of an attempt was over."""
    steps = run.job.get("train.step.count")
    times = [] if steps is None else steps.time_us[steps.attempt == span.number].tolist()
    return max([*times, *(e.time_us for e in run.events_named(*ENDINGS) if e.attempt == span.number)], default=0)
