"""Learning-rate schedules against jobs and ramps, their parts, and clipping by norm."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.model.requirements import load_index

LENGTH = ("TS-BAT-033",)
STEP_TOKENS = 4194304


def plan(job: dict[str, Any] | None = None, batch: dict[str, Any] | None = None, **schedule: Any) -> dict[str, Any]:
    rate = {"kind": "cosine", "peak": 3e-4, **schedule}
    return {"optimizer": {"name": "adamw", "learning_rate": rate}, "job": job, "batch": batch or {}}


@pytest.mark.parametrize(
    ("job", "schedule", "key"),
    [
        ({"num_steps": 20000}, {"total_steps": 20000}, None),
        ({"num_steps": 20000}, {"total_steps": 20190}, None),
        ({"num_steps": 20000}, {"total_steps": 20300}, "total_steps"),
        ({"num_steps": 20000}, {"total_steps": 10000}, "total_steps"),
        ({"num_steps": None, "num_tokens": 20000 * STEP_TOKENS}, {"total_steps": 20000}, None),
        ({"num_steps": None, "num_tokens": 30000 * STEP_TOKENS}, {"total_steps": 20000}, "total_steps"),
        ({"num_steps": 20000, "num_tokens": None}, {"total_tokens": 20000 * STEP_TOKENS}, None),
        ({"num_steps": 20000, "num_tokens": None}, {"total_tokens": 2e12}, "total_tokens"),
        ({"num_steps": 50}, {"total_steps": 51}, None),
    ],
)
def test_schedule_and_job(findings, job, schedule, key) -> None:
    found = findings(plan=plan(job, **schedule), select=LENGTH)
    assert found == (set() if key is None else {("TS-BAT-033", f"optimizer.learning_rate.{key}")})


@pytest.mark.parametrize(
    ("name", "peak", "wrong"),
    [
        ("adamw", 3.0, True),
        ("adam", 0.11, True),
        ("lion", 1.0, True),
        ("adamw", 0.1, False),
        ("adamw", 6e-4, False),  # GPT-3 125M, arXiv:2005.14165 table 2.1
        ("sgd", 3.0, False),
        ("adafactor", 1.0, False),  # T5 with relative steps
    ],
)
def test_peak_of_optimizers_with_steps_as_long_as_the_rate(findings, name, peak, wrong) -> None:
    excerpt = {"optimizer": {"name": name, "learning_rate": {"kind": "constant", "peak": peak}}}
    found = findings(plan=excerpt, select=("TS-BAT-042",))
    assert found == ({("TS-BAT-042", "optimizer.learning_rate.peak")} if wrong else set())
    assert load_index().by_id["TS-BAT-042"].level == "SHOULD"


def test_a_job_that_ends_before_its_schedule_is_a_warning() -> None:
    """OLMo 2 7B decays over 5 trillion tokens and stops after 3.9 trillion."""
    assert load_index().by_id["TS-BAT-033"].level == "SHOULD"


def test_steps_are_counted_along_the_ramp(findings) -> None:
    """10 billion tokens at half the batch and 10 at the whole one: 4,768 and 2,384 steps."""
    ramp = [{"from_tokens": 0, "global_sequences": 256}, {"from_tokens": 10e9, "global_sequences": 512}]
    job = {"num_steps": None, "num_tokens": 20e9}
    for total, wrong in ((7153, False), (4768, True), (9537, True)):
        found = findings(plan=plan(job, {"ramp": ramp}, total_steps=total), select=LENGTH)
        assert bool(found) is wrong


def test_length_without_a_job_or_a_total_is_not_judged(verdict) -> None:
    assert verdict("TS-BAT-033", plan=plan()) is Verdict.NOT_APPLICABLE
    assert verdict("TS-BAT-033", plan=plan(None, total_steps=5) | {"job": None}) is Verdict.NOT_APPLICABLE
    assert verdict("TS-BAT-033", plan={}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("schedule", "key"),
    [
        ({"warmup_steps": 2000, "total_steps": 2000}, None),
        ({"warmup_steps": 2001, "total_steps": 2000}, "warmup_steps"),
        ({"warmup_steps": 500, "decay_steps": 1600, "total_steps": 2000}, "decay_steps"),
        ({"warmup_tokens": 4e9, "total_tokens": 3e9}, "warmup_tokens"),
        ({"final": 3e-5}, None),
        ({"final": 3e-3}, "final"),
        ({"kind": "constant", "decay_steps": 10}, "kind"),
        ({"kind": "warmup-stable-decay"}, "kind"),
        # Kimi K2: 500 steps of warm-up, 10 trillion tokens constant, 5.5 trillion of decay.
        ({"kind": "warmup-stable-decay", "warmup_steps": 500, "decay_tokens": 5.5e12, "total_tokens": 15.5e12}, None),
    ],
)
def test_parts(findings, schedule, key) -> None:
    found = findings(plan=plan(**schedule), select=("TS-BAT-034",))
    assert found == (set() if key is None else {("TS-BAT-034", f"optimizer.learning_rate.{key}")})


@pytest.mark.parametrize(
    ("kind", "parallelism", "wrong"),
    [
        ("local-norm", {}, True),
        ("local-norm", {"tensor": 1, "pipeline": 1, "sharding": "parameters"}, True),
        ("local-norm", {"tensor": 1, "pipeline": 1, "sharding": "optimizer"}, False),
        ("global-norm", {}, False),
        ("value", {}, False),
    ],
)
def test_clipping(findings, kind, parallelism, wrong) -> None:
    clipping = {"optimizer": {"name": "adamw", "clipping": {"kind": kind, "threshold": 1}}, "parallelism": parallelism}
    found = findings(plan=clipping, select=("TS-BAT-035",))
    assert found == ({("TS-BAT-035", "optimizer.clipping.kind")} if wrong else set())
