"""Performance figures: tolerances on both sides, published spellings, and what does not apply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainspec_validate.model.finding import Verdict

F = "performance"
PEAK = "flops_convention: 6n-causal-attention, peak_flops_per_second: 989e12, peak_format: bf16"


def perf(figures: str, kind: str = "measured") -> str:
    return f"performance: {{kind: {kind}, {figures}}}\n"


PALM = """
model: {name: palm, family: dense-transformer, num_parameters: 540.35e9, num_layers: 118, hidden_size: 18432,
  num_attention_heads: 48, num_key_value_heads: 1, head_size: 256, ffn_hidden_size: 73728, gated_ffn: true,
  vocabulary_size: 256000, tied_embeddings: true, sequence_length: 2048, attention: multi-query}
"""
QWEN3_235B = """
model: {name: qwen3-235b, family: moe-transformer, num_parameters: 235.1e9, num_active_parameters: 22.1e9,
  num_layers: 94, hidden_size: 4096, num_attention_heads: 64, num_key_value_heads: 4, head_size: 128,
  ffn_hidden_size: null, vocabulary_size: 151936, sequence_length: 4096,
  experts: {num_experts: 128, num_active_experts: 8, ffn_hidden_size: 1536}}
"""
GPT_175B = """
model: {name: gpt-175b, family: dense-transformer, num_parameters: 174.6e9, num_layers: 96,
  hidden_size: 12288, num_attention_heads: 96, num_key_value_heads: null, ffn_hidden_size: 49152,
  gated_ffn: false, vocabulary_size: 51200, sequence_length: 2048, attention: full}
"""
CONTROLLER = """
batch:
  controller: {signal: loss, min_global_sequences: 4, max_global_sequences: 512, interval_steps: 1}
"""
LATENT = "model: {attention: latent, num_key_value_heads: null}\n"

CASES: list[tuple[str, str, set[str]]] = [
    (
        "TS-PAR-022",
        "metadata: {sources: [{title: a, reference: b}]}\n" + perf("step_seconds: 30", "published"),
        set(),
    ),
    # throughput: 4,194,304 tokens in 30 s are 139,810 a second
    ("TS-PAR-023", perf("tokens_per_second: 141100, step_seconds: 30"), set()),
    ("TS-PAR-023", perf("tokens_per_second: 141300, step_seconds: 30"), {f"{F}.step_seconds"}),
    ("TS-PAR-023", perf("tokens_per_second: 141300, step_seconds: 30", "published"), set()),
    ("TS-PAR-023", perf("tokens_per_second: 144300, step_seconds: 30", "published"), {f"{F}.step_seconds"}),
    ("TS-PAR-023", perf("tokens_per_second_per_accelerator: 1092, step_seconds: 30"), set()),
    (
        "TS-PAR-023",
        perf("tokens_per_second_per_accelerator: 1092, step_seconds: 0.03"),
        {f"{F}.step_seconds"},
    ),
    (
        "TS-PAR-023",
        perf("tokens_per_second: 139810, tokens_per_second_per_accelerator: 139810"),
        {f"{F}.tokens_per_second_per_accelerator"},
    ),
    # operations
    (
        "TS-PAR-024",
        perf("tokens_per_second: 139810, flops_per_token: 449.2e9, model_flops_per_second: 62.8e15"),
        set(),
    ),
    (
        "TS-PAR-024",
        perf("tokens_per_second: 139810, flops_per_token: 449.2e9, model_flops_per_second: 62.8e12"),
        {f"{F}.flops_per_token"},
    ),
    # operations per token, each convention in its makers' own numbers
    (
        "TS-PAR-025",
        QWEN3_235B + perf("flops_per_token: 147.9e9, flops_convention: 6n-causal-attention"),
        set(),
    ),
    (
        "TS-PAR-025",
        QWEN3_235B + perf("flops_per_token: 167e9, flops_convention: 6n-causal-attention"),
        {f"{F}.flops_per_token"},
    ),
    ("TS-PAR-025", GPT_175B + perf("flops_per_token: 1076e9, flops_convention: megatron-2022-model"), set()),
    (
        "TS-PAR-025",
        GPT_175B + perf("flops_per_token: 1434e9, flops_convention: megatron-2021-hardware"),
        set(),
    ),
    (
        "TS-PAR-025",
        GPT_175B + perf("flops_per_token: 1076e9, flops_convention: megatron-2021-hardware"),
        {f"{F}.flops_per_token"},
    ),
    ("TS-PAR-025", PALM + perf("flops_per_token: 3277.7e9, flops_convention: palm"), set()),
    ("TS-PAR-025", perf("flops_per_token: 423.3e9, flops_convention: 6n"), set()),
    ("TS-PAR-025", perf("flops_per_token: 487.7e9, flops_convention: 6n-full-attention"), set()),
    ("TS-PAR-025", perf("flops_per_token: 600e9, flops_convention: framework"), set()),
    ("TS-PAR-025", perf("flops_per_token: 449.2e6, flops_convention: framework"), {f"{F}.flops_per_token"}),
    ("TS-PAR-025", perf("flops_per_token: 200e9, flops_convention: framework"), {f"{F}.flops_per_token"}),
    ("TS-PAR-025", perf("flops_per_token: 900e9, flops_convention: framework"), {f"{F}.flops_per_token"}),
    ("TS-PAR-025", GPT_175B + perf("flops_per_token: 1434e9, flops_convention: framework"), set()),
    ("TS-PAR-025", perf("flops_per_token: 3600e9, flops_convention: framework"), {f"{F}.flops_per_token"}),
    ("TS-PAR-025", LATENT + perf("flops_per_token: 430e9, flops_convention: 6n-causal-attention"), set()),
    (
        "TS-PAR-025",
        LATENT + perf("flops_per_token: 460e9, flops_convention: 6n-causal-attention"),
        {f"{F}.flops_per_token"},
    ),
    ("TS-PAR-025", "model: {family: other}\n" + perf("flops_per_token: 423e9, flops_convention: 6n"), set()),
    (
        "TS-PAR-025",
        "model: {family: other}\n" + perf("flops_per_token: 423e12, flops_convention: 6n"),
        {f"{F}.flops_per_token"},
    ),
    # basis
    ("TS-PAR-026", perf(f"model_flops_utilisation: 0.4, {PEAK}"), set()),
    (
        "TS-PAR-026",
        perf("hardware_flops_utilisation: 0.4, flops_convention: 6n"),
        {f"{F}.hardware_flops_utilisation"},
    ),
    # peak: 989 and 989.5 are both printed; half of the bf16 peak is none
    ("TS-PAR-027", perf("peak_flops_per_second: 989.5e12, peak_format: bf16"), set()),
    ("TS-PAR-027", perf("peak_flops_per_second: 1979e12, peak_format: fp8-e4m3"), set()),
    ("TS-PAR-027", perf("peak_flops_per_second: 989e12, peak_format: fp8"), {f"{F}.peak_flops_per_second"}),
    # utilisation: half a point, one point where published (Llama 3 prints 400 TFLOP/s and 41 %)
    (
        "TS-PAR-028",
        perf(
            f"model_flops_per_second_per_accelerator: 400e12, model_flops_utilisation: 0.41, {PEAK}",
            "published",
        ),
        set(),
    ),
    (
        "TS-PAR-028",
        perf(f"model_flops_per_second_per_accelerator: 400e12, model_flops_utilisation: 0.41, {PEAK}"),
        {f"{F}.model_flops_utilisation"},
    ),
    (
        "TS-PAR-028",
        perf(f"tokens_per_second: 139810, flops_per_token: 449.2e9, model_flops_utilisation: 0.496, {PEAK}"),
        set(),
    ),
    (
        "TS-PAR-028",
        perf(f"tokens_per_second: 139810, flops_per_token: 449.2e9, model_flops_utilisation: 0.51, {PEAK}"),
        {f"{F}.model_flops_utilisation"},
    ),
    # hardware utilisation: PaLM's pair, MosaicML's exact four thirds
    ("TS-PAR-029", perf("model_flops_utilisation: 0.462, hardware_flops_utilisation: 0.578"), set()),
    ("TS-PAR-029", perf("model_flops_utilisation: 0.40, hardware_flops_utilisation: 0.66"), set()),
    ("TS-PAR-053", perf("model_flops_utilisation: 0.4125, hardware_flops_utilisation: 0.55"), set()),
    (
        "TS-PAR-053",
        perf("model_flops_utilisation: 0.40, hardware_flops_utilisation: 0.66"),
        {f"{F}.hardware_flops_utilisation"},
    ),
    (
        "TS-PAR-029",
        perf("model_flops_utilisation: 0.41, hardware_flops_utilisation: 0.40"),
        {f"{F}.hardware_flops_utilisation"},
    ),
    (
        "TS-PAR-050",
        perf("model_flops_utilisation: 0.44, flops_convention: megatron-2021-hardware"),
        {f"{F}.model_flops_utilisation"},
    ),
    (
        "TS-PAR-030",
        perf("hardware_flops_utilisation: 0.81, matmul_fraction: 0.8"),
        {f"{F}.hardware_flops_utilisation"},
    ),
    ("TS-PAR-030", perf("model_flops_utilisation: 0.8, matmul_fraction: 0.8"), set()),
    ("TS-PAR-031", perf("data_stall_fraction: 0.1"), {f"{F}.data_stall_fraction"}),
    # tokens of the job
    ("TS-PAR-032", "job: {num_steps: 20001}", set()),
    ("TS-PAR-032", "job: {num_steps: 160000}", {"job.num_tokens"}),
    ("TS-PAR-032", "job: {num_steps: 122880, num_tokens: 0.5e12}", set()),  # 515.4e9, rounded to one digit
    ("TS-PAR-032", "job: {num_steps: 125829, num_tokens: 0.5e12}", {"job.num_tokens"}),  # 527.8e9 is 5.6 % more
    ("TS-PAR-032", "job: {num_steps: 122880, num_tokens: 520e9}", set()),  # two digits
    ("TS-PAR-032", "job: {num_steps: 122880, num_tokens: 530e9}", {"job.num_tokens"}),
    ("TS-PAR-032", "job: {num_steps: 122880, num_tokens: 500000000001}", {"job.num_tokens"}),
    ("TS-PAR-032", "job: {num_steps: 122880, num_tokens: 0}", {"job.num_tokens"}),
    (
        "TS-PAR-032",
        "batch: {ramp: [{from_tokens: 0, global_sequences: 256}]}\njob: {num_steps: 30000}",
        set(),
    ),
    (
        "TS-PAR-032",
        "batch: {ramp: [{from_tokens: 0, global_sequences: 256}]}\njob: {num_steps: 50000}",
        {"job.num_tokens"},
    ),
    ("TS-PAR-032", CONTROLLER + "job: {num_steps: 200000}", set()),
    ("TS-PAR-032", CONTROLLER + "job: {num_steps: 20000, num_tokens: 84e12}", {"job.num_tokens"}),
    ("TS-PAR-033", perf("step_seconds: 30") + "job: {planned_seconds: 745e3}", set()),
    ("TS-PAR-033", perf("step_seconds: 30") + "job: {planned_seconds: 760e3}", {"job.planned_seconds"}),
]


@pytest.mark.parametrize(("requirement", "plan", "places"), CASES)
def test_case(findings: Callable[..., set[tuple[str, str]]], requirement: str, plan: str, places: set[str]) -> None:
    assert findings(plan=plan, select=(requirement,)) == {(requirement, place) for place in places}


def test_peak_of_one_die(findings: Callable[..., set[tuple[str, str]]]) -> None:
    cluster = (
        "node_groups: [{name: compute, accelerator: {model: amd-mi250x-128gb, num_ranks_per_accelerator: 2,"
        " memory_bytes: 128e9, peak_rates: []}}]"
    )
    one_die = perf("peak_flops_per_second: 191.5e12, peak_format: bf16")
    package = perf("peak_flops_per_second: 383e12, peak_format: bf16")
    assert findings(cluster=cluster, plan=one_die, select=("TS-PAR-027",)) == set()
    assert findings(cluster=cluster, plan=package, select=("TS-PAR-027",)) == {
        ("TS-PAR-027", f"{F}.peak_flops_per_second")
    }


def test_the_help_says_which_peak_is_likely_wrong(helps: Callable[..., list[str]]) -> None:
    halved = "node_groups: [{name: compute, accelerator: {peak_rates: [{format: bf16, flops_per_second: 494.5e12}]}}]"
    dense, sparse = perf(f"{PEAK}"), perf(PEAK.replace("989e12", "1979e12"))
    (help_text,) = helps(cluster=halved, plan=dense, select=("TS-PAR-027",))
    assert help_text == "the catalog has 989 TFLOP/s as well: correct `peak_rates` of the cluster"
    assert helps(plan=sparse, select=("TS-PAR-027",)) == ["the larger figure is the one for structured sparsity"]


@pytest.mark.parametrize(
    ("requirement", "plan"),
    [
        *((f"TS-PAR-0{number}", "") for number in (*range(22, 32), 33)),
        ("TS-PAR-022", perf("step_seconds: 30")),
        ("TS-PAR-023", perf("step_seconds: 30")),
        ("TS-PAR-024", perf("model_flops_per_second: 1e15")),
        ("TS-PAR-028", perf("model_flops_utilisation: 0.4")),
        ("TS-PAR-029", perf("model_flops_utilisation: 0.4")),
        ("TS-PAR-053", perf("model_flops_utilisation: 0.4")),
        ("TS-PAR-050", perf("hardware_flops_utilisation: 0.4, flops_convention: megatron-2021-hardware")),
        ("TS-PAR-032", "job: null"),
    ],
)
def test_not_applicable(verdict: Callable[..., Verdict], requirement: str, plan: str) -> None:
    assert verdict(requirement, plan=plan) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("requirement", "plan"),
    [
        ("TS-PAR-025", perf("flops_per_token: 1e9, flops_convention: 6n") + "num_parameters_trained: 1e6"),
        ("TS-PAR-025", "model: {family: cnn}\n" + perf("flops_per_token: 1e9, flops_convention: framework")),
        ("TS-PAR-027", perf("peak_flops_per_second: 1e15, peak_format: fp6")),
        ("TS-PAR-027", perf("peak_flops_per_second: 624e12")),
    ],
)
def test_stated_figures_that_nothing_reaches_are_not_judged(
    verdict: Callable[..., Verdict], requirement: str, plan: str
) -> None:
    assert verdict(requirement, plan=plan) is Verdict.NOT_RUN
