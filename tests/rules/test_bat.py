"""Batches, ramps, controllers, elastic jobs and gradient noise: boundaries and published schedules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainspec_validate.model.finding import Verdict

B = "batch"
LLAMA_RAMP = """
model: {sequence_length: 8192}
parallelism: {data: 128}
job: {num_tokens: 15.6e12}
batch:
  global_sequences: 2048
  accumulation_steps: 16
  global_tokens: 16777216
  ramp:
    - {from_tokens: 0, global_sequences: 1024, sequence_length: 4096, global_tokens: 4194304}
    - {from_tokens: 252e6, global_sequences: 1024, global_tokens: 8388608}
    - {from_tokens: 2.87e12, global_sequences: 2048, global_tokens: 16777216}
"""
OLMO_RAMP = """
model: {sequence_length: 4096}
parallelism: {data: 64}
job: {num_tokens: 608e9}
batch:
  global_sequences: 4096
  learning_rate: {rule: square-root, base_global_sequences: 1024}
  ramp:
    - {from_tokens: 0, global_sequences: 1024}
    - {from_tokens: 168e9, global_sequences: 2048, learning_rate_factor: 1.41421356}
    - {from_tokens: 503e9, global_sequences: 4096, learning_rate_factor: 2}
"""
DEEPSEEK_RAMP = """
parallelism: {data: 128}
job: {num_tokens: 14.8e12}
batch:
  global_sequences: 15360
  ramp:
    - {from_tokens: 0, global_sequences: 3072, transition: linear}
    - {from_tokens: 469e9, global_sequences: 15360}
"""
RAMP_RULES = [f"TS-BAT-{number:03}" for number in range(7, 14)]


def ramp(*stages: str, more: str = "") -> str:
    return "batch: {" + more + "ramp: [" + ", ".join("{" + stage + "}" for stage in stages) + "]}"


def noise(**change: str) -> str:
    settings = {
        "noise_unit": "sequence",
        "tap": "after-unscale-before-clip",
        "num_groups": "4",
        "estimator": "size-weighted",
        "ema_half_life_steps": "200",
        "bias_corrected": "true",
        **change,
    }
    return "noise_scale: {" + ", ".join(f"{key}: {value}" for key, value in settings.items()) + "}"


def controller(**change: str) -> str:
    settings = {
        "signal": "norm-test",
        "min_global_sequences": "64",
        "max_global_sequences": "1024",
        "interval_steps": "100",
        **change,
    }
    return "controller: {" + ", ".join(f"{key}: {value}" for key, value in settings.items()) + "}"


FIRST, LAST = "from_tokens: 0, global_sequences: 256", "from_tokens: 20e9, global_sequences: 512"
SHARES = "worker_shares: [{num_data_ranks: 3, sequences_per_rank: 144}, {num_data_ranks: 1, sequences_per_rank: 80}]"
LLM_FOUNDRY_48 = """
parallelism: {data: 5}
batch:
  global_sequences: 48
  accumulation_steps: 11
  worker_shares: [{num_data_ranks: 4, sequences_per_rank: 11}, {num_data_ranks: 1, sequences_per_rank: 4}]
"""
ONE_WEIGHT = """
batch:
  worker_shares:
    - {num_data_ranks: 3, sequences_per_rank: 144, gradient_weight: 0.28125}
    - {num_data_ranks: 1, sequences_per_rank: 80}
"""
NOISY = controller(signal="gradient-noise-scale", critical_batch_evidence="branched runs")
DIGEST = "sha256:" + "a" * 64

CASES: list[tuple[str, str, set[str]]] = [
    # NVIDIA 25.11, Llama 3.1 405B on GB300: 1,536 = 8 x 1 x 192
    ("TS-BAT-001", "parallelism: {data: 8}\nbatch: {global_sequences: 1536, accumulation_steps: 192}", set()),
    ("TS-BAT-001", "batch: {micro_sequences: 8}", {f"{B}.global_sequences"}),
    ("TS-BAT-001", "parallelism: {data: 32}", {f"{B}.global_sequences"}),
    ("TS-BAT-002", "batch: {variable_length: true, global_tokens: 3500000}", set()),
    ("TS-BAT-002", "batch: {variable_length: true, global_tokens: 4194305}", {f"{B}.global_tokens"}),
    ("TS-BAT-002", "batch: {global_tokens: 4194303}", {f"{B}.global_tokens"}),
    # llm-foundry: 48 as 11, 11, 11, 11, 4
    (
        "TS-BAT-003",
        LLM_FOUNDRY_48,
        set(),
    ),
    (
        "TS-BAT-003",
        f"batch: {{accumulation_steps: 144, {SHARES}}}\nparallelism: {{data: 5}}",
        {f"{B}.worker_shares"},
    ),
    ("TS-BAT-003", f"batch: {{accumulation_steps: 128, {SHARES}}}", {f"{B}.accumulation_steps"}),
    ("TS-BAT-003", f"batch: {{micro_sequences: 10, accumulation_steps: 15, {SHARES}}}", set()),
    (
        "TS-BAT-004",
        ONE_WEIGHT,
        {f"{B}.worker_shares.1"},
    ),
    (
        "TS-BAT-005",
        f"batch: {{loss_reduction: mean-of-micro-batch-means, {SHARES}}}",
        {f"{B}.loss_reduction"},
    ),
    ("TS-BAT-005", "batch: {variable_length: true, loss_reduction: sum}", set()),
    ("TS-BAT-006", "batch: {critical_global_tokens: 4194304}", set()),
    (
        "TS-BAT-006",
        "batch: {global_tokens: null, critical_global_tokens: 4194303}",
        {f"{B}.global_sequences"},
    ),
    # published schedules
    *((requirement, text, set()) for requirement in RAMP_RULES for text in (LLAMA_RAMP, OLMO_RAMP, DEEPSEEK_RAMP)),
    ("TS-BAT-007", ramp(FIRST, "from_tokens: 0, global_sequences: 512"), {f"{B}.ramp.1.from_tokens"}),
    ("TS-BAT-007", ramp(FIRST, "from_tokens: 84e9, global_sequences: 512"), {f"{B}.ramp.1.from_tokens"}),
    (
        "TS-BAT-008",
        ramp(FIRST, "from_tokens: 1e9, global_sequences: 256, sequence_length: 4096"),
        {f"{B}.ramp.1.global_sequences"},
    ),
    ("TS-BAT-009", ramp(FIRST, LAST + ", sequence_length: 4096"), {f"{B}.ramp.1.sequence_length"}),
    ("TS-BAT-009", ramp(FIRST, LAST + ", transition: linear"), {f"{B}.ramp.1.transition"}),
    ("TS-BAT-010", ramp(FIRST + ", global_tokens: 2097151", LAST), {f"{B}.ramp.0.global_tokens"}),
    ("TS-BAT-010", ramp(FIRST + ", global_tokens: 2097151", LAST, more="variable_length: true, "), set()),
    (
        "TS-BAT-012",
        ramp(FIRST, LAST + ", learning_rate_factor: 2", more="learning_rate: {rule: linear}, "),
        set(),
    ),
    (
        "TS-BAT-012",
        ramp(FIRST, LAST + ", learning_rate_factor: 2.00001", more="learning_rate: {rule: linear}, "),
        {f"{B}.ramp.1.learning_rate_factor"},
    ),
    ("TS-BAT-012", ramp(FIRST, LAST, more="learning_rate: {rule: linear}, "), {f"{B}.ramp.1"}),
    (
        "TS-BAT-012",
        ramp(FIRST, LAST + ", learning_rate_factor: 1.7", more="learning_rate: {rule: adascale}, "),
        set(),
    ),
    (
        "TS-BAT-012",
        ramp(FIRST, LAST + ", learning_rate_factor: 2.1", more="learning_rate: {rule: adascale}, "),
        {f"{B}.ramp.1.learning_rate_factor"},
    ),
    (
        "TS-BAT-012",
        ramp(FIRST, LAST + ", learning_rate_factor: 1.5", more="learning_rate: {rule: adam-square-root}, "),
        {f"{B}.ramp.1.learning_rate_factor"},
    ),
    (
        "TS-BAT-012",
        ramp(FIRST, LAST + ", learning_rate_factor: 1.3", more="learning_rate: {rule: declared}, "),
        set(),
    ),
    ("TS-BAT-012", ramp(FIRST, LAST, more="learning_rate: {rule: declared}, "), {f"{B}.ramp.1"}),
    ("TS-BAT-012", ramp(FIRST, LAST + ", learning_rate_factor: 2"), {f"{B}.ramp.1.learning_rate_factor"}),
    (
        "TS-BAT-013",
        ramp(FIRST, LAST, more="learning_rate: {rule: linear, base_global_sequences: 32}, "),
        {f"{B}.learning_rate.base_global_sequences"},
    ),
    # controllers
    (
        "TS-BAT-014",
        f"batch: {{{controller(min_global_sequences='516')}}}",
        {f"{B}.controller.min_global_sequences"},
    ),
    (
        "TS-BAT-014",
        f"batch: {{{controller(min_global_sequences='66')}}}",
        {f"{B}.controller.min_global_sequences"},
    ),
    (
        "TS-BAT-014",
        f"batch: {{{controller()}, ramp: [{{from_tokens: 0, global_sequences: 32}}]}}",
        {f"{B}.controller.min_global_sequences"},
    ),
    (
        "TS-BAT-016",
        f"batch: {{{NOISY}}}",
        {f"{B}.controller.signal"},
    ),
    (
        "TS-BAT-016",
        f"batch: {{{NOISY}, {noise()}}}",
        set(),
    ),
    (
        "TS-BAT-016",
        f"batch: {{critical_global_tokens: 8388608, {controller(signal='gradient-noise-scale')}, {noise()}}}",
        set(),
    ),
    (
        "TS-BAT-016",
        f"batch: {{critical_global_tokens: 8388607, {controller(signal='gradient-noise-scale')}, {noise()}}}",
        {f"{B}.controller.max_global_sequences"},
    ),
    # elastic
    ("TS-BAT-018", "batch: {elastic: {data_degrees: [1, 2, 4, 8, 512], micro_sequences: [1, 512]}}", set()),
    (
        "TS-BAT-018",
        "batch: {elastic: {data_degrees: [2, 4], micro_sequences: [1, 3]}}",
        {f"{B}.elastic.micro_sequences.1"},
    ),
    ("TS-BAT-015", f"batch: {{{controller(interval_steps='20000')}}}", set()),
    (
        "TS-BAT-015",
        f"batch: {{{controller(interval_steps='20001')}}}",
        {f"{B}.controller.interval_steps"},
    ),
    (
        "TS-BAT-018",
        "batch: {elastic: {data_degrees: [4, 256], micro_sequences: [4]}}",
        {f"{B}.elastic.data_degrees.1"},
    ),
    (
        "TS-BAT-019",
        "batch: {elastic: {data_degrees: [4], micro_sequences: [2]}}",
        {f"{B}.elastic.micro_sequences"},
    ),
    (
        "TS-BAT-020",
        f"batch: {{elastic: {{data_degrees: [4], micro_sequences: [1], runtime_digest: '{DIGEST}'}}}}",
        {f"{B}.elastic.runtime_digest"},
    ),
    # noise
    ("TS-BAT-022", f"batch: {{{noise(bias_corrected='1')}}}", {f"{B}.noise_scale.bias_corrected"}),
    ("TS-BAT-022", f"batch: {{{noise(noise_unit='batch')}}}", {f"{B}.noise_scale.noise_unit"}),
    ("TS-BAT-023", f"batch: {{{noise(tap='before-unscale')}}}", {f"{B}.noise_scale.tap"}),
    ("TS-BAT-024", f"batch: {{{noise(num_groups='1')}}}", {f"{B}.noise_scale.num_groups"}),
    ("TS-BAT-024", f"batch: {{{noise(num_groups='2')}}}", set()),
    ("TS-BAT-024", f"batch: {{{noise(num_groups='3')}}}", {f"{B}.noise_scale.num_groups"}),
    ("TS-BAT-024", f"batch: {{{noise(num_groups='1024')}}}", {f"{B}.noise_scale.num_groups"}),
    ("TS-BAT-025", f"batch: {{{SHARES}, {noise()}}}", {f"{B}.noise_scale.group_sizes"}),
    (
        "TS-BAT-025",
        f"batch: {{variable_length: true, {noise(noise_unit='token')}}}",
        {f"{B}.noise_scale.group_sizes"},
    ),
    ("TS-BAT-025", f"batch: {{variable_length: true, {noise(noise_unit='sequence')}}}", set()),
    ("TS-BAT-025", f"batch: {{{noise(estimator='unweighted')}}}", set()),
    ("TS-BAT-027", f"batch: {{{noise(accumulation_format='fp64')}}}", set()),
    ("TS-BAT-028", f"batch: {{{noise(ema_half_life_steps='2000')}}}", set()),
    (
        "TS-BAT-028",
        f"batch: {{{noise(ema_half_life_steps='2001')}}}",
        {f"{B}.noise_scale.ema_half_life_steps"},
    ),
]


@pytest.mark.parametrize(("requirement", "plan", "places"), CASES)
def test_case(findings: Callable[..., set[tuple[str, str]]], requirement: str, plan: str, places: set[str]) -> None:
    assert findings(plan=plan, select=(requirement,)) == {(requirement, place) for place in places}


NOT_APPLICABLE = [
    ("TS-BAT-001", f"batch: {{{SHARES}}}"),
    ("TS-BAT-002", "batch: {global_tokens: null}"),
    *((f"TS-BAT-{number:03}", "") for number in (*range(3, 12), *range(13, 17), *range(18, 22), *range(23, 29))),
    ("TS-BAT-008", ramp(FIRST)),
    ("TS-BAT-010", ramp(FIRST, LAST)),
    ("TS-BAT-011", f"batch: {{{SHARES}, ramp: [{{{FIRST}}}]}}"),
    ("TS-BAT-012", ramp(FIRST, LAST, more="learning_rate: null, ")),
    ("TS-BAT-020", "batch: {elastic: {data_degrees: [4], micro_sequences: [1]}}"),
    ("TS-BAT-028", f"job: null\nbatch: {{{noise()}}}"),
]


@pytest.mark.parametrize(("requirement", "plan"), NOT_APPLICABLE)
def test_not_applicable(verdict: Callable[..., Verdict], requirement: str, plan: str) -> None:
    assert verdict(requirement, plan=plan) is Verdict.NOT_APPLICABLE


def test_a_last_stage_that_grows_points_at_the_stage_before(helps: Callable[..., list[str]]) -> None:
    (found,) = helps(plan=ramp(FIRST, LAST + ", transition: linear"), select=("TS-BAT-009",))
    assert found == "set transition: step; to grow up to this stage, write transition: linear in stage 1, before it"
