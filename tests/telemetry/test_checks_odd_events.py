"""Events with values of any type, in any order and number, break no check on the life of a run."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from life_makers import Stream, read, violations

from trainspec_validate.model.metrics import events
from trainspec_validate.telemetry.checks import NotApplicable, all_checks

ODD: tuple[Any, ...] = (
    "",
    "x",
    0,
    -1,
    10**15,
    1e300,
    0.5,
    True,
    [],
    [1],
    ["a", 2.5],
    "none",
    "f-1",
    "c-1",
    "resumed",
    3,
)
NUMBERS: tuple[Any, ...] = (0, -1, 1e300, -1e300, "NaN", "+Inf", 2, {"count": 0, "sum": 0}, {"count": 2, "sum": 1e308})
LIFE = sorted(
    name
    for name in all_checks()
    if name.startswith("TS-REC") or "TS-TEL-043" <= name <= "TS-TEL-048" or "TS-TEL-06" in name
)
HORIZON_SECONDS = 600


def odd_run(seed: int) -> list[Stream]:
    """Three attempts of events with random ties, attributes and values, and some updates."""
    random_ = random.Random(seed)
    known = list(events().values())
    streams = []
    for attempt in range(3):
        run = Stream(attempt)
        for _ in range(random_.randrange(12)):
            event = random_.choice(known)
            chosen = [name for name in (*event.attributes, *event.optional_attributes) if random_.random() < 0.8]
            a = {name: random_.choice(ODD) for name in chosen}
            m = {name: random_.choice(NUMBERS) for name in event.values if random_.random() < 0.8}
            for phase in ("detect", "total"):
                if event.name == "train.recovery.end" and random_.random() < 0.5:
                    m[f"train.recovery.duration{{train.recovery.phase={phase}}}"] = random_.choice(NUMBERS)
            tie = {"id": random_.choice(("f-1", "c-1", "l-1"))} if random_.random() < 0.8 else {}
            seconds = random_.randrange(HORIZON_SECONDS)
            run.put(seconds, k="e", name=event.name, a=a, m=m, **tie)
        for _ in range(random_.randrange(5)):
            values: dict[str, Any] = {name: random_.choice(NUMBERS[:7]) for name in JOB if random_.random() < 0.6}
            run.put(random_.randrange(HORIZON_SECONDS), k="m", step=random_.randrange(4), m=values or {JOB[0]: 1})
        streams.append(run)
    return streams


JOB = (
    "train.step.count",
    "train.sample.count",
    "train.learning_rate",
    "train.loss.mean{train.loss.name=total}",
    "train.batch.size",
    "train.token.count{train.token.kind=all}",
    "train.goodput.time{train.time.category=productive}",
)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", range(60))
def test_odd_events_break_no_check(seed: int) -> None:
    run = read(*odd_run(seed))
    for requirement in LIFE:
        with contextlib.suppress(NotApplicable):
            found = violations(requirement, run, policy={"recovery": [{"fault": "hang", "quantile": 0.9999999}]})
            assert all(violation.message for violation in found)
