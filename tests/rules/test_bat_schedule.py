"""Learning-rate schedules against jobs and ramps, their parts, and clipping by norm."""

from __future__ import annotations

from typing import Any

import pytest
from predicted_documents import plan as predicted_plan
from predicted_documents import violations

from trainspec_validate.model.finding import Verdict
from trainspec_validate.model.requirements import load_index

LENGTH = ("TS-BAT-033",)
STEP_TOKENS = 4194304
STABLE = {"kind": "warmup-stable-decay"}


def plan(job: dict[str, Any] | None = None, batch: dict[str, Any] | None = None, **schedule: Any) -> dict[str, Any]:
    rate = {"kind": "cosine", "peak": 3e-4, **schedule}
    return {"optimizer": {"name": "adamw", "learning_rate": rate}, "job": job, "batch": batch or {}}


@pytest.mark.parametrize(
    ("job", "schedule", "key"),
    [
        ({"num_steps": 20000}, {"total_steps": 20000}, None),
        ({"num_steps": 20000}, {"total_steps": 20190}, None),
        ({"num_steps": 20000}, {"total_steps": 26000}, None),
        ({"num_steps": 20000}, {"total_steps": 26001}, "total_steps"),
        ({"num_steps": 20000}, {"total_steps": 19700}, "total_steps"),
        ({"num_steps": 20000}, {"total_steps": 19700, "final": 0.0}, "total_steps"),
        ({"num_steps": 20000}, {"total_steps": 15400, "final": 1e-5}, None),
        ({"num_steps": 20000}, {"total_steps": 15300, "final": 1e-5}, "total_steps"),
        ({"num_steps": None, "num_tokens": 270e9}, {"warmup_tokens": 1e9, "decay_tokens": 340e9}, None),  # MT-NLG
        ({"num_steps": None, "num_tokens": 3.9e12}, {"total_tokens": 5e12, "final": 3e-5}, None),  # OLMo 2 7B
        ({"num_steps": None, "num_tokens": 366e9}, {"total_tokens": 410e9, "final": 6e-6}, None),  # BLOOM
        ({"num_steps": None, "num_tokens": 366e9}, {"decay_tokens": 410e9, "final": 6e-6}, None),
        ({"num_steps": None, "num_tokens": 300e9}, {"total_tokens": 260e9, "final": 6e-6}, None),  # GPT-3
        ({"num_steps": 20000}, {"total_steps": 10000}, "total_steps"),
        ({"num_steps": None, "num_tokens": 20000 * STEP_TOKENS}, {"total_steps": 20000}, None),
        ({"num_steps": None, "num_tokens": 30000 * STEP_TOKENS}, {"total_steps": 20000}, "total_steps"),
        ({"num_steps": 20000, "num_tokens": None}, {"total_tokens": 20000 * STEP_TOKENS}, None),
        ({"num_steps": 20000, "num_tokens": None}, {"total_tokens": 2e12}, "total_tokens"),
        ({"num_steps": 50}, {"total_steps": 51}, None),
        ({"num_steps": 20000}, {"total_steps": 20000, "warmup_steps": 500, "decay_steps": 100}, "decay_steps"),
        ({"num_steps": 20000}, {"total_steps": 20000, "warmup_steps": 500, "decay_steps": 15000}, None),
        ({"num_steps": 20000}, {"total_steps": 20000, "warmup_steps": 500, "decay_steps": 14800}, "decay_steps"),
        ({"num_steps": 20000}, {"total_steps": 20000, "warmup_tokens": 4e10, "decay_steps": 9000}, None),
        ({"num_steps": 20000}, {"total_steps": 20000, "kind": "warmup-stable-decay", "decay_steps": 100}, None),
        ({"num_steps": None, "num_tokens": 300e9}, {"decay_tokens": 260e9, "final": 6e-6}, None),
        ({"num_steps": None, "num_tokens": 300e9}, {"decay_tokens": 2.6e9, "final": 6e-6}, "decay_tokens"),
        ({"num_steps": 20000}, {**STABLE, "warmup_steps": 18000, "decay_steps": 2000}, None),
        ({"num_steps": 20000}, {**STABLE, "warmup_steps": 19900, "decay_steps": 2000}, "decay_steps"),
        ({"num_steps": 20000}, {"warmup_steps": 19900, "decay_steps": 2000}, None),
    ],
)
def test_schedule_and_job(findings, job, schedule, key) -> None:
    found = findings(plan=plan(job, **schedule), select=LENGTH)
    assert found == (set() if key is None else {("TS-BAT-033", f"optimizer.learning_rate.{key}")})


@pytest.mark.parametrize(
    ("name", "peak", "parameters", "wrong"),
    [
        ("adamw", 3.0, 1e6, True),
        ("adam", 0.11, 1e6, True),
        ("lion", 1.0, 1e6, True),
        ("adamw", 0.1, 1e6, False),
        ("adamw", 6e-4, 0.125e9, False),  # GPT-3 125M, arXiv:2005.14165 table 2.1
        ("adamw", 6e-2, 0.125e9, True),
        ("adamw", 0.6e-4, 175e9, False),  # GPT-3 175B
        ("adamw", 0.6e-2, 175e9, True),
        ("adamw", 0.01, 2.4e9, False),  # MiniCPM, arXiv:2404.06395
        ("adamw", 3e-2, 8.03e9, True),
        ("sgd", 3.0, 8.03e9, False),
        ("adafactor", 1.0, 11e9, False),  # T5 with relative steps
    ],
)
def test_peak_of_optimizers_with_steps_as_long_as_the_rate(findings, name, peak, parameters, wrong) -> None:
    optimizer = {"name": name, "learning_rate": {"kind": "constant", "peak": peak}}
    found = findings(plan={"optimizer": optimizer, "model": {"num_parameters": parameters}}, select=("TS-BAT-042",))
    assert found == ({("TS-BAT-042", "optimizer.learning_rate.peak")} if wrong else set())
    assert load_index().by_id["TS-BAT-042"].level == "SHOULD"


@pytest.mark.parametrize(("extra", "wrong"), [({"num_active_parameters": 2.4e9}, False), ({}, True)])
def test_the_peak_of_a_mixture_is_judged_by_the_parameters_of_a_token(findings, extra, wrong) -> None:
    excerpt = {**plan(peak=0.01), "model": {"num_parameters": 70.55e9, **extra}}
    assert bool(findings(plan=excerpt, select=("TS-BAT-042",))) is wrong


def test_the_peak_of_adapters_is_judged_by_what_they_train(findings) -> None:
    excerpt = {**plan(peak=5e-3), "num_parameters_trained": 40e6}
    assert findings(plan=excerpt, select=("TS-BAT-042",)) == set()
    assert findings(plan=plan(peak=5e-3), select=("TS-BAT-042",)) != set()


@pytest.mark.parametrize(
    ("job", "schedule", "key"),
    [
        ({"num_steps": 20000}, {"warmup_steps": 2}, "warmup_steps"),
        ({"num_steps": 20000}, {"warmup_steps": 9}, "warmup_steps"),
        ({"num_steps": 20000}, {"warmup_steps": 10}, None),
        ({"num_steps": 20000}, {"warmup_steps": 0}, None),
        ({"num_steps": 20000}, {}, None),
        ({"num_steps": 9000}, {"warmup_steps": 2}, None),
        ({"num_steps": 9000}, {"warmup_steps": 8999}, None),
        ({"num_steps": 9000}, {"warmup_steps": 9000}, "warmup_steps"),
        ({"num_steps": 9000}, {"warmup_steps": 9000, "total_steps": 9000}, "warmup_steps"),
        ({"num_steps": 9000}, {"warmup_steps": 9001, "total_steps": 9000}, None),  # TS-BAT-034 reports it
        ({"num_steps": None, "num_tokens": 9e3 * STEP_TOKENS}, {"warmup_tokens": 9e3 * STEP_TOKENS}, "warmup_tokens"),
        ({"num_steps": 9000}, {"warmup_steps": 9001}, "warmup_steps"),
        ({"num_steps": 9000}, {"warmup_steps": 9001, "total_steps": 20000}, None),
        ({"num_steps": None, "num_tokens": 20000 * STEP_TOKENS}, {"warmup_steps": 2_000_000}, "warmup_steps"),
        ({"num_steps": None, "num_tokens": None}, {"warmup_steps": 2}, None),
        ({"num_steps": None, "num_tokens": None}, {"warmup_steps": 2, "total_steps": 50000}, "warmup_steps"),
        ({"num_steps": None, "num_tokens": 20000 * STEP_TOKENS}, {"warmup_tokens": 3 * STEP_TOKENS}, "warmup_tokens"),
        ({"num_steps": None, "num_tokens": 20000 * STEP_TOKENS}, {"warmup_tokens": 30 * STEP_TOKENS}, None),
    ],
)
def test_warmup_of_a_long_job(findings, job, schedule, key) -> None:
    found = findings(plan=plan(job, **schedule), select=("TS-BAT-043",))
    assert found == (set() if key is None else {("TS-BAT-043", f"optimizer.learning_rate.{key}")})


@pytest.mark.parametrize(
    ("kind", "threshold", "wrong"),
    [
        ("global-norm", 1.0, False),
        ("global-norm", 0.01, False),  # Mask2Former
        ("global-norm", 1000.0, False),  # DreamerV3
        ("global-norm", 1e6, True),
        ("value", 1e5, True),
        ("global-norm", 1e-6, True),
    ],
)
def test_clipping_thresholds(findings, kind, threshold, wrong) -> None:
    excerpt = {"optimizer": {"name": "adamw", "clipping": {"kind": kind, "threshold": threshold}}}
    found = findings(plan=excerpt, select=("TS-BAT-044",))
    assert found == ({("TS-BAT-044", "optimizer.clipping.threshold")} if wrong else set())


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
        ({"warmup_steps": 50, "warmup_tokens": 1e12, "total_tokens": 2e12}, "warmup_tokens"),
        ({"warmup_steps": 1000, "warmup_tokens": 1e6}, "warmup_tokens"),
        ({"decay_steps": 10, "decay_tokens": 4e11, "total_tokens": 5e11}, "decay_tokens"),
        ({"final": 3e-5}, None),
        ({"final": 3e-3}, "final"),
        ({"kind": "constant", "decay_steps": 10}, "kind"),
        ({"kind": "constant", "final": 3e-4}, None),
        ({"kind": "constant", "final": 3e-5}, "final"),
        ({"kind": "constant", "final": 0.0}, "final"),
        ({"kind": "warmup-stable-decay"}, "kind"),
        # Kimi K2: 500 steps of warm-up, 10 trillion tokens constant, 5.5 trillion of decay.
        ({"kind": "warmup-stable-decay", "warmup_steps": 500, "decay_tokens": 5.5e12, "total_tokens": 15.5e12}, None),
    ],
)
def test_parts(findings, schedule, key) -> None:
    found = findings(plan=plan(**schedule), select=("TS-BAT-034",))
    assert found == (set() if key is None else {("TS-BAT-034", f"optimizer.learning_rate.{key}")})


def test_a_decay_counts_from_the_end_of_the_warmup() -> None:
    schedule = {"kind": "cosine", "peak": 3e-4, "warmup_steps": 500, "decay_steps": 2000, "total_steps": 2000}
    (found,) = violations("TS-BAT-034", predicted_plan({"optimizer": {"name": "adamw", "learning_rate": schedule}}))
    assert found.help == (
        "a decay counts from the end of the warm-up, so decay_steps is 1,500 at most; lr_decay_iters of Megatron-LM "
        "counts from the first step"
    )


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


@pytest.mark.parametrize(
    ("peak", "job", "wrong"),
    [
        (1.5e-9, {}, True),
        (1e-7, {}, False),  # reinforcement learning of Tulu 3, arXiv:2411.15124
        (1.5e-7, {"job": {"num_tokens": 15e12}}, True),
        (7.3e-6, {"job": {"num_tokens": 167e9}}, False),  # the end of DeepSeek-V3, arXiv:2412.19437
        (1.5e-7, {"job": {"num_tokens": 10e9}}, False),
        (1.5e-7, {"job": {"num_tokens": 15e12}, "rollout": {"num_prompts": 512, "num_responses_per_prompt": 1}}, False),
    ],
)
def test_a_peak_below_all_published_ones(findings, peak: float, job: dict[str, object], wrong: bool) -> None:
    found = findings(plan={**plan(peak=peak), **job}, select=("TS-BAT-042",))
    assert found == ({("TS-BAT-042", "optimizer.learning_rate.peak")} if wrong else set())
