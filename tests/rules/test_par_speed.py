"""A speed is judged alike in whichever form a plan states it: steps, tokens, samples, operations or utilisation."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]

RIGHT = {
    "step_seconds": 30.0,
    "tokens_per_second": 139810.0,
    "tokens_per_second_per_accelerator": 1092.3,
    "samples_per_second": 512 / 30,
    "model_flops_per_second_per_accelerator": 480e12,
    "model_flops_per_second": 128 * 480e12,
}
"""One speed of the base plan: 512 sequences of 8,192 tokens in 30 s on 128 ranks, 70.55 billion parameters."""
ERROR = 2
RULES = ("TS-PAR-033", "TS-PAR-034", "TS-PAR-041", "TS-PAR-042", "TS-PAR-043", "TS-CKP-010")


def _plan(kind: str = "measured", **figures: float) -> str:
    return f"performance: {{kind: {kind}, {', '.join(f'{key}: {value!r}' for key, value in figures.items())}}}"


@pytest.mark.parametrize("key", RIGHT)
def test_every_form_of_a_right_speed_passes(findings: Findings, key: str) -> None:
    assert findings(plan=_plan(**{key: RIGHT[key]}), select=(*RULES, "TS-PAR-035")) == set()


@pytest.mark.parametrize("key", RIGHT)
def test_every_form_of_a_speed_above_the_peak_is_an_error(findings: Findings, key: str) -> None:
    faster = RIGHT[key] / 6 if key == "step_seconds" else RIGHT[key] * 6
    found = findings(plan=_plan(**{key: faster}), select=(*RULES, "TS-PAR-035"))
    assert ("TS-PAR-042", f"performance.{key}") in found
    assert {requirement for requirement, _ in found} == {"TS-PAR-033", "TS-PAR-035", "TS-PAR-042", "TS-CKP-010"}


@pytest.mark.parametrize(("rate", "wrong"), [(40, True), (50, False), (1870, False), (1900, True)])
def test_share_of_the_peak(findings: Findings, rate: float, wrong: bool) -> None:
    """A rate of 2,371 tokens/s of 69.5 billion parameters without their embeddings is the peak of 989 TFLOP/s."""
    found = findings(plan=_plan(tokens_per_second_per_accelerator=rate), select=("TS-PAR-042", "TS-PAR-043"))
    assert found == ({("TS-PAR-043", "performance.tokens_per_second_per_accelerator")} if wrong else set())


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"samples_per_second": 17.07, "tokens_per_second": 139810}, set()),
        ({"samples_per_second": 17.6, "tokens_per_second": 139810}, {("TS-PAR-023", "samples_per_second")}),
        ({"model_flops_per_second": 6.2e16, "tokens_per_second": 139810}, set()),
        ({"model_flops_per_second": 8e16, "tokens_per_second": 139810}, {("TS-PAR-024", "model_flops_per_second")}),
        ({"model_flops_per_second": 8e16, "step_seconds": 30}, {("TS-PAR-024", "model_flops_per_second")}),
    ],
)
def test_two_speeds_agree(findings: Findings, figures: dict[str, float], found: set[tuple[str, str]]) -> None:
    judged = findings(plan=_plan(**figures), select=("TS-PAR-023", "TS-PAR-024"))
    assert judged == {(requirement, f"performance.{key}") for requirement, key in found}


@pytest.mark.parametrize(("share", "wrong"), [(0.46, False), (0.5, False), (0.3, True), (0.9, True)])
def test_utilisation_agrees_with_tokens(findings: Findings, share: float, wrong: bool) -> None:
    plan = _plan(tokens_per_second=139810, model_flops_utilisation=share, peak_flops_per_second=989e12)
    found = findings(plan=plan, select=("TS-PAR-028",))
    assert found == ({("TS-PAR-028", "performance.model_flops_utilisation")} if wrong else set())


def test_frozen_parameters_need_no_backward_pass(findings: Findings) -> None:
    """Ranks that only adapt a model may do a third of the operations."""
    plan = "lora: {rank: 8, targets: [query, value]}\n" + _plan(tokens_per_second_per_accelerator=3000)
    assert findings(plan=plan, select=("TS-PAR-042",)) == set()


def test_samples_without_tokens_are_held_against_the_peak(findings: Findings) -> None:
    model = "model: {family: cnn, num_parameters: 25.6e6, sequence_length: null}\nbatch: {global_tokens: null}\n"
    for rate, wrong in ((128 * 3000, False), (128 * 90000, True)):
        found = findings(plan=model + _plan(samples_per_second=rate, flops_per_sample=24.6e9), select=("TS-PAR-042",))
        assert bool(found) is wrong


def test_formats_of_the_recipe_have_their_own_peak(findings: Findings) -> None:
    plan = "precision: {recipe: {format: fp8-hybrid, scaling: delayed}}\n"
    plan += _plan(tokens_per_second_per_accelerator=3000)
    assert findings(plan=plan, select=("TS-PAR-042",)) == set()


BOUNDS = "min_global_sequences: 256, max_global_sequences: 512"
CONTROLLER = f"batch: {{controller: {{signal: loss, interval_steps: 9, {BOUNDS}}}}}\n"
RAMP = "batch: {ramp: [{from_tokens: 0, global_sequences: 256}, {from_tokens: 1e9, global_sequences: 512}]}\n"


@pytest.mark.parametrize(
    "schedule",
    [
        RAMP,
        CONTROLLER,
    ],
)
@pytest.mark.parametrize(
    ("figures", "requirement", "expected"),
    [
        ({"step_seconds": 30, "model_flops_per_second": 6.2e16}, "TS-PAR-024", "pass"),
        ({"step_seconds": 15, "model_flops_per_second": 6.2e16}, "TS-PAR-024", "not-run"),
        ({"step_seconds": 20, "model_flops_per_second": 6.2e16}, "TS-PAR-024", "not-run"),
        ({"step_seconds": 40, "model_flops_per_second": 6.2e16}, "TS-PAR-024", "fail"),
        ({"step_seconds": 10, "model_flops_per_second": 6.2e16}, "TS-PAR-024", "fail"),
        ({"tokens_per_second": 139810, "model_flops_per_second": 4e16}, "TS-PAR-024", "fail"),
        ({"samples_per_second": 17.07, "model_flops_per_second": 4e16}, "TS-PAR-024", "fail"),
        ({"step_seconds": 30, "model_flops_utilisation": 0.49}, "TS-PAR-028", "pass"),
        ({"step_seconds": 20, "model_flops_utilisation": 0.49}, "TS-PAR-028", "not-run"),
        ({"step_seconds": 30, "model_flops_utilisation": 0.62}, "TS-PAR-028", "fail"),
        ({"step_seconds": 80, "model_flops_utilisation": 0.49}, "TS-PAR-028", "fail"),
        ({"step_seconds": 20, "tokens_per_second": 139810}, "TS-PAR-023", "not-run"),
        ({"step_seconds": 30, "tokens_per_second": 139810}, "TS-PAR-023", "pass"),
        ({"step_seconds": 10, "tokens_per_second": 139810}, "TS-PAR-023", "fail"),
        ({"step_seconds": 40, "samples_per_second": 17.07}, "TS-PAR-023", "fail"),
        ({"step_seconds": 20, "samples_per_second": 17.07}, "TS-PAR-023", "not-run"),
        ({"samples_per_second": 20, "tokens_per_second": 139810}, "TS-PAR-023", "fail"),
    ],
)
def test_a_changing_batch_does_not_hide_a_contradiction(
    verdict: Callable[..., Verdict], schedule: str, figures: dict[str, float], requirement: str, expected: str
) -> None:
    """Nemotron-4 340B publishes a time of a step for each stage of its ramp (arXiv:2406.11704, table 2)."""
    if "model_flops_utilisation" in figures:
        figures = figures | {"peak_flops_per_second": 989e12}
    assert verdict(requirement, plan=schedule + _plan(**figures)).value == expected


@pytest.mark.parametrize("key", ["model_flops_utilisation", "hardware_flops_utilisation"])
@pytest.mark.parametrize(("share", "wrong"), [(0.95, True), (0.81, True), (0.8, False), (0.02, False), (0.0041, True)])
def test_a_utilisation_is_judged_without_its_convention(
    findings: Findings, key: str, share: float, wrong: bool
) -> None:
    found = findings(plan=_plan("published", **{key: share}), select=("TS-PAR-052",))
    assert found == ({("TS-PAR-052", f"performance.{key}")} if wrong else set())


@pytest.mark.parametrize("flops", [24.6e9, 24.6e6, 24.6e3])
def test_samples_of_too_few_operations_are_no_plausible_share_of_the_peak(findings: Findings, flops: float) -> None:
    model = "model: {family: cnn, num_parameters: 25.6e6, sequence_length: null}\nbatch: {global_tokens: null}\n"
    plan = model + _plan(samples_per_second=128 * 3000, flops_per_sample=flops)
    assert bool(findings(plan=plan, select=("TS-PAR-043",))) is (flops < 24e9)


@pytest.mark.parametrize("key", ["model_flops_per_second_per_accelerator", "model_flops_per_second"])
@pytest.mark.parametrize("speed", [{}, {"step_seconds": 30}])
@pytest.mark.parametrize(("rate", "wrong"), [(480e12, False), (980e12, False), (1100e12, True)])
def test_a_stated_rate_above_the_peak_is_found_next_to_any_speed(
    findings: Findings, key: str, speed: dict[str, float], rate: float, wrong: bool
) -> None:
    figures = speed | {key: rate * (1 if key.endswith("accelerator") else 128)}
    for plan in (_plan(**figures), RAMP + _plan(**figures)):
        convention = plan.replace("{kind: measured", "{kind: measured, flops_convention: 6n-causal-attention")
        found = findings(plan=convention, select=("TS-PAR-042",))
        assert found == ({("TS-PAR-042", f"performance.{key}")} if wrong else set())


def test_a_convention_that_counts_masked_attention_may_exceed_the_peak(findings: Findings) -> None:
    """Kernels leave out the masked half, which is most of the operations of long sequences."""
    long = "model: {sequence_length: 131072}\nbatch: {global_tokens: null}\n"
    rate = "performance: {kind: measured, model_flops_per_second_per_accelerator: 1100e12, flops_convention: %s}"
    for convention, wrong in (("palm", False), ("6n-causal-attention", True)):
        plan = long + rate.replace("%s", convention) + "\nparallelism: {context: 1}"
        assert bool(findings(plan=plan, select=("TS-PAR-042",))) is wrong


LORA = "lora: {rank: 8, targets: [query, value]}\n"
HYBRID = "model: {family: hybrid, num_attention_layers: 80, num_ffn_layers: 80}\n"
FURTHER = (1.0, 6.0, 1e3, 1e9)


@pytest.mark.parametrize("key", RIGHT)
@pytest.mark.parametrize("model", ["", LORA, HYBRID])
@pytest.mark.parametrize("peak", [{}, {"peak_flops_per_second": 989e12}])
@pytest.mark.parametrize("faster", [True, False])
def test_a_larger_error_has_no_milder_verdict(
    severity: Callable[..., int], key: str, model: str, peak: dict[str, float], faster: bool
) -> None:
    """A speed that is off by a thousand is no better than one that is off by ten, for each requirement alone too."""
    up = faster is not (key == "step_seconds")
    for select in ((), ("TS-PAR-042",)):
        found = [
            severity(plan=model + _plan(**{key: RIGHT[key] * (factor if up else 1 / factor)}, **peak), select=select)
            for factor in FURTHER
        ]
        assert all(before <= after for before, after in itertools.pairwise(found)), found
    assert not faster or severity(plan=model + _plan(**{key: RIGHT[key] * (60 if up else 1 / 60)}, **peak)) == ERROR


@pytest.mark.parametrize("family", ["hybrid", "state-space"])
@pytest.mark.parametrize(("share", "wrong"), [(1.0, False), (0.1, True), (1e-4, True)])
def test_parameters_bound_the_speed_of_every_model_whose_tokens_visit_them(
    findings: Findings, family: str, share: float, wrong: bool
) -> None:
    model = f"model: {{family: {family}, attention: none}}\n"
    found = findings(plan=model + _plan(step_seconds=30 * share), select=("TS-PAR-042",))
    assert found == ({("TS-PAR-042", "performance.step_seconds")} if wrong else set())


@pytest.mark.parametrize("family", ["other", "vision-transformer"])
def test_a_stated_count_of_operations_bounds_a_speed(
    findings: Findings, verdict: Callable[..., Verdict], family: str
) -> None:
    model = f"model: {{family: {family}}}\n"
    for requirement in ("TS-PAR-034", "TS-PAR-041", "TS-PAR-042"):
        peak = {"peak_flops_per_second": 989e12}
        assert verdict(requirement, plan=model + _plan(step_seconds=3, **peak)) is Verdict.NOT_RUN
    for step, wrong in ((30, False), (1, True)):
        found = findings(plan=model + _plan(step_seconds=step, flops_per_token=423e9), select=("TS-PAR-042",))
        assert bool(found) is wrong


def test_experts_that_no_token_visits_take_no_operations(verdict: Callable[..., Verdict]) -> None:
    model = "model: {family: moe-transformer, vocabulary_size: null}\n"
    plan = model + _plan(tokens_per_second_per_accelerator=8000, peak_flops_per_second=989e12)
    for requirement in ("TS-PAR-034", "TS-PAR-042"):
        assert verdict(requirement, plan=plan) is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("requirement", "rate", "wrong"),
    [("TS-PAR-043", 10, False), ("TS-PAR-043", 2, True), ("TS-PAR-041", 1.5, False), ("TS-PAR-041", 0.1, True)],
)
def test_long_sequences_spend_their_operations_in_attention(
    findings: Findings, requirement: str, rate: float, wrong: bool
) -> None:
    """Of 1,048,576 tokens the attention of 80 layers of 8,192 takes 8.2 TFLOP a token, next to 0.42 of parameters.

    Rows of 262,144 tokens: pytorch/torchtitan@b5bcd76c6:benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md.
    """
    plan = _plan(tokens_per_second_per_accelerator=rate) + "\nmodel: {sequence_length: 1048576}"
    found = findings(plan=plan + "\nbatch: {global_tokens: null}", select=(requirement,))
    assert found == ({(requirement, "performance.tokens_per_second_per_accelerator")} if wrong else set())


@pytest.mark.parametrize(
    ("kind", "samples", "wrong"),
    [
        *(("published", 13, False), ("measured", 13, True), ("published", 12, True), ("published", 13.0001, True)),
        *(("published", 14, False), ("published", 15, True)),
    ],
)
def test_a_published_rate_may_be_cut_off(findings: Findings, kind: str, samples: float, wrong: bool) -> None:
    """13.8 samples/s: mosaicml/llm-foundry@8c8dd48f7:scripts/train/benchmarking/README.md prints whole numbers."""
    plan = _plan(kind, samples_per_second=samples, tokens_per_second=13.8 * 8192)
    assert bool(findings(plan=plan, select=("TS-PAR-023",))) is wrong
