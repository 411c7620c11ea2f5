"""Draws what a stack could recognise a scenario by: seed and length of the job, names, and the kind of damage."""

from __future__ import annotations

import random

import msgspec

from trainspec_validate.documents.types.conformance import TestJob
from trainspec_validate.documents.types.scenario import Damage, Scenario, Start

MOST_ADDED_STEPS = 7
"""Optimizer steps by which a job is longer than its scenario says, at most; it is longer by one at least."""
MOST_SEED = 10_000
LEAST_RATE, MOST_RATE = 0.3, 0.7
"""Factors of the learning rate: far enough from 1 to be seen, and so low that no job diverges."""
SHORT_STEPS, LONG_STEPS_LOG10 = (8, 20), (4, 6)
"""Optimizer steps of the shortest jobs, and decimal logarithms of those of the longest, of which a few are trained."""
_FACTOR = 1_000_003
"""Between the seeds of trials of two runs of the suite; more than any number of trials."""


def trial_seed(seed: int, number: int) -> int:
    """Seed of the choices in one trial, by the seed of the run of the suite and the number of the trial."""
    return seed * _FACTOR + number


def run_seed(seed: int) -> int:
    """Seed of the run of the suite that a trial belongs to."""
    return seed // _FACTOR


def drawn_job(job: TestJob, seed: int) -> TestJob:
    """A job with another seed and a few more steps, equal for equal jobs of one run of the suite."""
    chance = random.Random(f"job {seed}")  # noqa: S311 - repeatable choices, nothing secret
    added = chance.randint(1, MOST_ADDED_STEPS)
    return msgspec.structs.replace(job, seed=chance.randrange(1, MOST_SEED), num_steps=job.num_steps + added)


def changed_job(job: TestJob, start: Start, chance: random.Random) -> TestJob:
    """The job of one start, with another accumulation, seed or learning rate where the scenario asks for that."""
    if start.accumulation_steps:
        job = msgspec.structs.replace(job, accumulation_steps=start.accumulation_steps)
    if start.another_seed:
        job = msgspec.structs.replace(job, seed=job.seed + chance.randrange(1, MOST_SEED))
    if start.another_learning_rate:
        job = msgspec.structs.replace(job, learning_rate_factor=round(chance.uniform(LEAST_RATE, MOST_RATE), 4))
    return job


def num_kinds(scenario: Scenario) -> int:
    """Kinds of damage of a scenario, each of which strikes a trial of its own; 1 where none is chosen from."""
    return max((len(act.kinds) for act in scenario.acts if isinstance(act, Damage)), default=1)


def drawn(scenario: Scenario, seed: int, number: int) -> Scenario:
    """The scenario as one trial of it runs: with the drawn job, and one kind of damage for each act of damage."""
    acts = tuple(
        msgspec.structs.replace(act, kinds=(act.kinds[(number - 1) % len(act.kinds)],))
        if isinstance(act, Damage)
        else act
        for act in scenario.acts
    )
    job = drawn_job(scenario.job, seed)
    if scenario.any_length:
        job = msgspec.structs.replace(job, num_steps=_length(random.Random(f"length {seed} {number}"), number))  # noqa: S311
    return msgspec.structs.replace(scenario, job=job, acts=acts)


def _length(chance: random.Random, number: int) -> int:
    """Optimizer steps of a job: fewer than any other scenario has, or many more, in turn."""
    return chance.randint(*SHORT_STEPS) if number % 2 else round(10 ** chance.uniform(*LONG_STEPS_LOG10))


def new_name(chance: random.Random) -> str:
    """A name for a directory or a run that says nothing of the scenario."""
    return f"{chance.getrandbits(40):010x}"
