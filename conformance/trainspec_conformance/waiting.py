"""Decides when the condition that a scenario waits for holds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from trainspec_conformance.view import View
from trainspec_validate.documents.types.conformance import TestJob
from trainspec_validate.documents.types.scenario import Wait

Test = Callable[[View, float], bool]


@dataclass(frozen=True)
class Condition:
    """An awaited condition; `holds` is polled."""

    until: str
    test: Test
    delay_seconds: float = 0.0
    """Random part of a step that passes after it came, so that a fault strikes anywhere in a step."""
    share: float = 0.0
    """That part."""

    def delay(self, view: View) -> float:
        """Seconds that pass after it came; of a save, a random part of what earlier saves took."""
        took = _save_seconds(view) if self.until == "saving" else None
        return self.delay_seconds if took is None else self.share * took

    def holds(self, view: View, since: float, *, is_running: bool) -> bool:
        """Whether it has come, by what was seen after `since`."""
        return not is_running if self.until == "end" else self.test(view, since)


def condition(act: Wait, chance: random.Random, job: TestJob) -> Condition:
    """The condition of an act; its random part is drawn now."""
    step = (act.step or 0) + (chance.randrange(act.jitter_steps + 1) if act.jitter_steps else 0)
    share = chance.random() if act.jitter_steps else 0.0
    delay = share * job.step_seconds
    stages = {"saving": "begin", "save-failed": "failed"} | {
        name: name for name in ("snapshot", "written", "committed")
    }
    if act.until in stages:
        stage = stages[act.until]

        def saved(view: View, since: float) -> bool:
            found = [save for _, save in view.saves(stage, since) if save.step >= step]
            return len({save.checkpoint for save in found}) >= act.num

        return Condition(act.until, saved, delay, share)
    end = time.monotonic() + act.seconds
    tests: dict[str, Test] = {
        "step": lambda view, since: _all_ranks(view, since, step),
        "step-after-commit": _stepped_after_commit,
        "fault": lambda view, since: len(view.faults(since)) >= act.num,
        "restored": _restored,
        "first-step": _stepped,
        "time": lambda _view, _since: time.monotonic() >= end,
        "end": lambda _view, _since: False,
    }
    return Condition(act.until, tests[act.until], delay, share)


def _save_seconds(view: View) -> float | None:
    """Time from the first sign of a save to its commit, as the median of those that were seen."""
    begun: dict[str, float] = {}
    for entry, save in view.saves("begin"):
        begun.setdefault(save.checkpoint, entry.seconds)
    took = [
        entry.seconds - begun[save.checkpoint] for entry, save in view.saves("committed") if save.checkpoint in begun
    ]
    return median(took) if took else None


def _all_ranks(view: View, since: float, step: int) -> bool:
    done = view.steps_done(since)
    return len(done) >= view.num_ranks and min(done.values()) >= step


def _stepped_after_commit(view: View, since: float) -> bool:
    committed = [save.step for _, save in view.saves("committed", since)]
    return bool(committed) and _all_ranks(view, since, max(committed) + 1)


def _last_injection(view: View) -> float:
    return max((entry.seconds for entry, _ in view.injections()), default=0.0)


def _restored(view: View, since: float) -> bool:
    return any(True for _ in view.restores(max(since, _last_injection(view))))


def _stepped(view: View, since: float) -> bool:
    return next(view.first_steps(max(since, _last_injection(view))), None) is not None
