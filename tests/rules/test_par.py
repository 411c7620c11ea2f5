"""Degrees, pipelines, shapes and synchrony: boundaries, producers' own layouts, and what does not apply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainspec_validate.model.finding import Verdict

LLAMA_405B = """
model: {name: llama-3.1-405b, family: dense-transformer, num_parameters: 405.85e9, num_layers: 126,
  hidden_size: 16384, num_attention_heads: 128, num_key_value_heads: 8, ffn_hidden_size: 53248,
  gated_ffn: true, vocabulary_size: 128256, sequence_length: 8192, attention: grouped-query}
"""
DEEPSEEK_V3 = """
model: {name: deepseek-v3, family: moe-transformer, num_parameters: 671e9, num_active_parameters: 37e9,
  num_layers: 61, hidden_size: 7168, num_attention_heads: 128, head_size: 128, num_key_value_heads: null,
  ffn_hidden_size: 18432, gated_ffn: true, vocabulary_size: 129280, sequence_length: 4096, attention: latent,
  experts: {num_experts: 256, num_active_experts: 8, num_shared_experts: 1, ffn_hidden_size: 2048,
  num_layers: 58}}
"""
GPT_OSS_120B = """
model: {name: gpt-oss-120b, family: moe-transformer, num_parameters: 116.8e9, num_active_parameters: 5.1e9,
  num_layers: 36, hidden_size: 2880, num_attention_heads: 64, num_key_value_heads: 8, head_size: 64,
  ffn_hidden_size: null, gated_ffn: true, vocabulary_size: 201088, sequence_length: 4096,
  attention: sliding-window, experts: {num_experts: 128, num_active_experts: 4, ffn_hidden_size: 2880}}
"""
MOE = "model: {family: moe-transformer, num_active_parameters: 42.36e9, experts: {num_experts: 8, \
num_active_experts: 4, ffn_hidden_size: 3584}}"

STALE = """
synchrony: {mode: asynchronous, max_staleness_steps: 4, extension: org.example.stale}
extensions: {org.example.stale: {}}
"""
P, M, B = "parallelism", "model", "batch"

CASES: list[tuple[str, str, set[str]]] = [
    # world size
    ("TS-PAR-001", "parallelism: {data: 2, context: 2}", set()),
    ("TS-PAR-001", "parallelism: {data: 3}", {f"{P}.num_accelerators"}),
    ("TS-PAR-001", "parallelism: {context: 8}", {f"{P}.num_accelerators"}),
    # expert degree: NVIDIA's Qwen3-235B on H100 has expert 32 with tensor 2 and data 16, experts not split
    (
        "TS-PAR-003",
        MOE.replace("num_experts: 8", "num_experts: 128")
        + "\nparallelism: {data: 16, tensor: 2, expert: 32, expert_tensor: 1}",
        set(),
    ),
    (
        "TS-PAR-003",
        MOE.replace("num_experts: 8", "num_experts: 128") + "\nparallelism: {data: 16, tensor: 2, expert: 32}",
        {f"{P}.expert"},
    ),
    ("TS-PAR-003", MOE + "\nparallelism: {expert: 4, expert_tensor: 8}", set()),
    ("TS-PAR-003", MOE + "\nparallelism: {expert: 16, expert_tensor: 1}", {f"{P}.expert"}),
    ("TS-PAR-003", MOE + "\nparallelism: {expert_tensor: 3}", {f"{P}.expert_tensor"}),
    ("TS-PAR-003", "parallelism: {expert_tensor: 2}", {f"{P}.expert_tensor"}),
    # sharding
    ("TS-PAR-004", "parallelism: {sharding_degree: 4}", set()),
    ("TS-PAR-004", "parallelism: {sharding_degree: 8}", {f"{P}.sharding_degree"}),
    ("TS-PAR-004", "parallelism: {sharding_degree: 8, data: 4, context: 2, tensor: 4}", set()),
    ("TS-PAR-004", "parallelism: {sharding: none, sharding_degree: 4}", {f"{P}.sharding_degree"}),
    ("TS-PAR-005", "parallelism: {sharding: parameters, pipeline: 1}", set()),
    # order
    ("TS-PAR-006", "parallelism: {order: [pipeline, data, tensor]}", set()),
    ("TS-PAR-006", "parallelism: {order: [tensor, data]}", {f"{P}.order"}),
    ("TS-PAR-006", "parallelism: {order: []}", {f"{P}.order"}),
    # pipeline
    ("TS-PAR-008", "parallelism: {schedule: none}", {f"{P}.schedule"}),
    ("TS-PAR-008", "parallelism: {pipeline: 1}", {f"{P}.schedule"}),
    ("TS-PAR-008", "parallelism: {pipeline: 1, schedule: none}", set()),
    ("TS-PAR-009", "parallelism: {schedule: interleaved-1f1b}", {f"{P}.schedule"}),
    ("TS-PAR-009", "parallelism: {schedule: dual-pipe, num_virtual_stages: 2}", set()),
    (
        "TS-PAR-009",
        "parallelism: {pipeline: 1, schedule: other, num_virtual_stages: 2}",
        {f"{P}.num_virtual_stages"},
    ),
    ("TS-PAR-010", "parallelism: {pipeline: 3}", {f"{P}.pipeline"}),
    ("TS-PAR-010", "parallelism: {pipeline: 3, stage_layers: [26, 27, 27]}", set()),
    ("TS-PAR-010", "parallelism: {stage_layers: [40, 40]}", {f"{P}.stage_layers"}),
    # Llama 3: 126 layers on 16 stages, first and last one short; with 8 chunks each, the ends hold none
    ("TS-PAR-010", LLAMA_405B + "parallelism: {pipeline: 16}", {f"{P}.pipeline"}),
    (
        "TS-PAR-010",
        LLAMA_405B + f"parallelism: {{pipeline: 16, num_virtual_stages: 8, stage_layers: {[0] + [1] * 126 + [0]}}}",
        set(),
    ),
    (
        "TS-PAR-011",
        "parallelism: {schedule: interleaved-1f1b}\nbatch: {accumulation_steps: 130}",
        {f"{B}.accumulation_steps"},
    ),
    ("TS-PAR-011", "parallelism: {schedule: other}\nbatch: {accumulation_steps: 130}", set()),
    # bubble: 3 / (v m) against one half
    ("TS-PAR-012", "batch: {accumulation_steps: 6}", set()),
    ("TS-PAR-012", "batch: {accumulation_steps: 5}", {f"{B}.accumulation_steps"}),
    ("TS-PAR-012", "parallelism: {schedule: zero-bubble}\nbatch: {accumulation_steps: 2}", set()),
    ("TS-PAR-012", "parallelism: {schedule: dual-pipe}\nbatch: {accumulation_steps: 1}", set()),
    # shape
    ("TS-PAR-013", "model: {vocabulary_size: null}", {f"{M}.family"}),
    ("TS-PAR-013", "model: {num_active_parameters: 1e9}", {f"{M}.num_active_parameters"}),
    ("TS-PAR-013", "model: {family: moe-transformer}", {f"{M}.family"}),
    ("TS-PAR-013", "model: {family: state-space, num_attention_heads: null}", set()),
    ("TS-PAR-013", DEEPSEEK_V3, set()),
    ("TS-PAR-013", DEEPSEEK_V3.replace("ffn_hidden_size: 18432", "ffn_hidden_size: null"), {f"{M}.family"}),
    ("TS-PAR-013", GPT_OSS_120B, set()),
    ("TS-PAR-014", MOE.replace("42.36e9", "80e9"), {f"{M}.num_active_parameters"}),
    ("TS-PAR-014", MOE.replace("3584}", "3584, num_layers: 81}"), {f"{M}.experts.num_layers"}),
    ("TS-PAR-015", "model: {num_key_value_heads: 6}", {f"{M}.num_key_value_heads"}),
    ("TS-PAR-015", "model: {num_key_value_heads: 64}", {f"{M}.attention"}),
    ("TS-PAR-015", "model: {attention: multi-query, num_key_value_heads: 1}", set()),
    ("TS-PAR-015", "model: {attention: full, num_key_value_heads: 64}", set()),
    (
        "TS-PAR-015",
        "model: {num_attention_heads: 48, num_key_value_heads: 8, head_size: null}",
        {f"{M}.num_attention_heads"},
    ),
    ("TS-PAR-015", "model: {num_attention_heads: 48, num_key_value_heads: 8, head_size: 128}", set()),
    ("TS-PAR-016", "model: {num_attention_heads: 60}", {f"{M}.num_attention_heads"}),
    ("TS-PAR-016", "model: {ffn_hidden_size: 28673}", {f"{M}.ffn_hidden_size"}),
    # XLA pads shards, and nothing says how an unnamed framework cuts its embedding (PaLM, arXiv:2204.02311)
    ("TS-PAR-016", "model: {vocabulary_size: 128257}", set()),
    ("TS-PAR-016", "model: {vocabulary_size: 128257}\nframework: {name: maxtext}", set()),
    ("TS-PAR-016", "model: {vocabulary_size: 128257}\nframework: {name: megatron-lm}", {f"{M}.vocabulary_size"}),
    # fewer key and value heads than tensor ranks are copied
    ("TS-PAR-051", "model: {num_key_value_heads: 4}", set()),
    ("TS-PAR-051", "model: {num_key_value_heads: 6}", {f"{M}.num_key_value_heads"}),
    (
        "TS-PAR-016",
        MOE.replace("3584", "3580") + "\nparallelism: {expert_tensor: 8}",
        {f"{M}.experts.ffn_hidden_size"},
    ),
    ("TS-PAR-016", MOE.replace("3584", "3580") + "\nparallelism: {expert_tensor: 1}", set()),
    ("TS-PAR-017", "model: {sequence_length: 8196}\nparallelism: {sequence: false}", set()),
    ("TS-PAR-017", "model: {sequence_length: 8196}", {f"{M}.sequence_length"}),
    (
        "TS-PAR-017",
        "batch: {ramp: [{from_tokens: 0, global_sequences: 4, sequence_length: 4100}]}",
        {f"{B}.ramp.0.sequence_length"},
    ),
    ("TS-PAR-018", "parallelism: {context: 4}\nmodel: {sequence_length: 8196}", {f"{M}.sequence_length"}),
    ("TS-PAR-018", "parallelism: {context: 4}\nmodel: {sequence_length: 8200}", set()),
    ("TS-PAR-048", "parallelism: {context: 4}", {f"{P}.context"}),
    ("TS-PAR-048", "parallelism: {context: 4, context_method: ring}", set()),
    # 64 heads on 8 tensor ranks: 8 context ranks have one each
    ("TS-PAR-049", "parallelism: {context: 8, context_method: head-parallel}", set()),
    ("TS-PAR-049", "parallelism: {context: 16, context_method: head-parallel}", {f"{P}.context_method"}),
    ("TS-PAR-049", "parallelism: {context: 3, context_method: head-parallel}", {f"{P}.context_method"}),
    ("TS-PAR-049", "parallelism: {tensor: 1, context: 16, context_method: head-parallel}", set()),
    # parameters: within 1 % and the last digit
    ("TS-PAR-019", "model: {num_parameters: 70.81e9}", set()),
    ("TS-PAR-019", "model: {num_parameters: 70.91e9}", {f"{M}.num_parameters"}),
    ("TS-PAR-019", "model: {num_parameters: 70.34e9}", set()),
    ("TS-PAR-019", "model: {num_parameters: 70.33e9}", {f"{M}.num_parameters"}),
    ("TS-PAR-019", "model: {num_parameters: 70e9}", set()),
    ("TS-PAR-019", "model: {vocabulary_size: 256512}", {f"{M}.num_parameters"}),
    ("TS-PAR-019", "model: {num_parameters: 70.55e6}", {f"{M}.num_parameters"}),
    ("TS-PAR-019", "model: {num_layers: 88}", {f"{M}.num_parameters"}),
    *(("TS-PAR-019", model, set()) for model in (LLAMA_405B, DEEPSEEK_V3, GPT_OSS_120B)),
    ("TS-PAR-019", DEEPSEEK_V3.replace("num_layers: 58", "num_layers: 48"), {f"{M}.num_parameters"}),
    *(("TS-PAR-020", model, set()) for model in (DEEPSEEK_V3, GPT_OSS_120B)),
    (
        "TS-PAR-020",
        DEEPSEEK_V3.replace("num_active_experts: 8", "num_active_experts: 16"),
        {f"{M}.num_active_parameters"},
    ),
    ("TS-PAR-020", GPT_OSS_120B.replace("5.1e9", "51e9"), {f"{M}.num_active_parameters"}),
    # latent attention has what the others leave of num_parameters
    *(
        ("TS-PAR-020", DEEPSEEK_V3.replace(*slip), {f"{M}.num_active_parameters"})
        for slip in (
            ("37e9", "54.79e9"),
            ("37e9", "25e9"),
            ("37e9", "3.7e9"),
            ("num_active_experts: 8", "num_active_experts: 1"),
            ("num_active_experts: 8", "num_active_experts: 2"),
        )
    ),
    *(("TS-PAR-020", DEEPSEEK_V3.replace("37e9", count), set()) for count in ("37.5e9", "36.6e9", "38e9")),
    # synchrony
    ("TS-PAR-021", "synchrony: {max_staleness_steps: 2}", {"synchrony.max_staleness_steps"}),
    (
        "TS-PAR-021",
        "synchrony: {mode: asynchronous, extension: org.example.hogwild}",
        {"synchrony.mode", "synchrony.extension"},
    ),
    (
        "TS-PAR-021",
        STALE,
        set(),
    ),
]


@pytest.mark.parametrize(("requirement", "plan", "places"), CASES)
def test_case(findings: Callable[..., set[tuple[str, str]]], requirement: str, plan: str, places: set[str]) -> None:
    assert findings(plan=plan, select=(requirement,)) == {(requirement, place) for place in places}


def test_ranks_on_dies(findings: Callable[..., set[tuple[str, str]]]) -> None:
    two = (
        "node_groups: [{name: compute, accelerator: {model: amd-mi250x-128gb, num_ranks_per_accelerator: 2,"
        " memory_bytes: 128e9, peak_rates: []}}]"
    )
    plan = "parallelism: {num_accelerators: 256, data: 8}"
    assert findings(cluster=two, plan=plan, select=("TS-PAR-002",)) == set()
    assert findings(plan=plan, select=("TS-PAR-002",)) == {("TS-PAR-002", f"{P}.num_accelerators")}


def test_ranks_of_the_named_group(findings: Callable[..., set[tuple[str, str]]]) -> None:
    spare = "{name: spare, num_nodes: 1, num_accelerators_per_node: 8, accelerator: {model: x}}"
    groups = f"num_nodes: 17\nnode_groups: [{spare}]"
    wanted = {("TS-PAR-002", f"{P}.num_accelerators")}
    assert findings(cluster=groups, plan="node_group: compute", select=("TS-PAR-002",)) == set()
    assert findings(cluster=groups, plan="node_group: spare", select=("TS-PAR-002",)) == wanted


@pytest.mark.parametrize(
    ("requirement", "plan"),
    [
        ("TS-PAR-003", ""),
        ("TS-PAR-004", ""),
        ("TS-PAR-005", "parallelism: {pipeline: 1}"),
        ("TS-PAR-007", "parallelism: {sequence: false}"),
        ("TS-PAR-009", ""),
        ("TS-PAR-010", "parallelism: {pipeline: 1}"),
        ("TS-PAR-011", ""),
        ("TS-PAR-012", "parallelism: {pipeline: 1, schedule: null}"),
        ("TS-PAR-013", "model: {family: cnn}"),
        ("TS-PAR-014", ""),
        ("TS-PAR-015", "model: {family: cnn, num_attention_heads: null}"),
        ("TS-PAR-016", "parallelism: {tensor: 1}"),
        ("TS-PAR-051", "parallelism: {tensor: 1}"),
        ("TS-PAR-051", "model: {num_key_value_heads: null}"),
        ("TS-PAR-017", "parallelism: {sequence: false}"),
        ("TS-PAR-018", ""),
        ("TS-PAR-048", ""),
        ("TS-PAR-048", "model: {attention: none}\nparallelism: {context: 2}"),
        ("TS-PAR-049", "parallelism: {context_method: head-parallel}"),
        ("TS-PAR-049", "parallelism: {context: 3, context_method: head-parallel-ring}"),
        ("TS-PAR-020", ""),
    ],
)
def test_not_applicable(verdict: Callable[..., Verdict], requirement: str, plan: str) -> None:
    assert verdict(requirement, plan=plan) is Verdict.NOT_APPLICABLE


def test_parameters_of_a_shape_without_a_formula_are_not_judged(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-PAR-019", plan="model: {attention: linear}") is Verdict.NOT_RUN


def test_ranks_need_a_known_group(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-PAR-002", plan="node_group: elsewhere") is Verdict.NOT_RUN
    assert verdict("TS-PAR-002", plan="cluster: null", cluster=None) is Verdict.NOT_RUN


@pytest.mark.parametrize(("rate", "wrong"), [(2, True), (2.5, False), (1100, False), (141e3, False), (142e3, True)])
def test_speed_is_possible(findings: Callable[..., set[tuple[str, str]]], rate: float, wrong: bool) -> None:
    """70.55 billion parameters: 1 TFLOP/s is 2.4 tokens/s with six operations, 20 PFLOP/s 142e3 with two."""
    plan = f"performance: {{kind: measured, tokens_per_second_per_accelerator: {rate}}}"
    assert bool(findings(plan=plan, select=("TS-PAR-034", "TS-PAR-041"))) is wrong


@pytest.mark.parametrize(("size", "wrong"), [(31, True), (32, False), (512, False), (513, True)])
def test_width_of_heads(findings: Callable[..., set[tuple[str, str]]], size: int, wrong: bool) -> None:
    assert bool(findings(plan=f"model: {{head_size: {size}}}", select=("TS-PAR-040",))) is wrong


def _shaped(count: str, shape: tuple[int, ...]) -> str:
    layers, hidden, heads, groups, ffn, vocabulary = shape
    attention = "full" if groups == heads else "grouped-query"
    return (
        f"model: {{num_parameters: {count}, num_layers: {layers}, hidden_size: {hidden}, num_attention_heads: {heads}, "
        f"num_key_value_heads: {groups}, head_size: null, ffn_hidden_size: {ffn}, gated_ffn: true, "
        f"vocabulary_size: {vocabulary}, attention: {attention}}}"
    )


LLAMA_2_70B, LLAMA_3_8B = (80, 8192, 64, 8, 28672, 32000), (32, 4096, 32, 8, 14336, 128256)
QWEN_25_7B, QWEN_25_72B = (28, 3584, 28, 4, 18944, 152064), (80, 8192, 64, 8, 29568, 152064)


@pytest.mark.parametrize(
    ("count", "shape", "wrong"),
    [
        ("70e9", LLAMA_2_70B, False),  # 68.98 billion, rounded up by its maker
        ("69e9", LLAMA_2_70B, False),
        ("71e9", LLAMA_2_70B, True),
        ("70.0e9", (80, 8192, 64, 8, 28672, 256000), True),  # 72.6 billion
        ("8e9", LLAMA_3_8B, False),
        ("8030e6", LLAMA_3_8B, False),
        ("8.1e9", LLAMA_3_8B, False),
        ("8.2e9", LLAMA_3_8B, True),
        ("7e9", QWEN_25_7B, False),  # 7.62 billion, cut off by its maker
        ("7.4e9", QWEN_25_7B, True),
        ("72e9", QWEN_25_72B, False),  # 72.7 billion
        ("7.2e9", QWEN_25_72B, True),
        ("8e9", (32, 4096, 32, 8, 14336 * 3 // 2, 128256), True),  # 10.8 billion
    ],
)
def test_published_counts_are_rounded_or_cut_off(
    findings: Callable[..., set[tuple[str, str]]], count: str, shape: tuple[int, ...], wrong: bool
) -> None:
    assert bool(findings(plan=_shaped(count, shape), select=("TS-PAR-019",))) is wrong


@pytest.mark.parametrize(("count", "wrong"), [("1e12", False), ("2e12", True)])
def test_one_digit_is_not_the_whole_count(
    findings: Callable[..., set[tuple[str, str]]], count: str, wrong: bool
) -> None:
    """The 547 billion of 170 such layers round to one trillion, and not to two."""
    plan = LLAMA_405B.replace("405.85e9", count).replace("num_layers: 126", "num_layers: 170")
    assert bool(findings(plan=plan, select=("TS-PAR-019",))) is wrong


def test_a_schedule_without_a_name_leaves_its_bubble_unjudged(verdict: Callable[..., Verdict]) -> None:
    assert verdict("TS-PAR-012", plan="parallelism: {schedule: other}") is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("parallelism", "wrong"),
    [
        ({"stage_layers": [19, 21, 21, 19]}, False),
        ({"stage_layers": [22, 22, 22, 14]}, False),
        ({"stage_layers": [30, 17, 17, 16]}, False),
        ({"stage_layers": [31, 17, 16, 16]}, True),
        ({"stage_layers": [17, 16, 16, 31]}, True),
        ({"stage_layers": [80]}, False),
        ({"stage_layers": [5, 35, 20, 20]}, True),
        ({"stage_layers": [18, 2, 18, 2, 2, 18, 2, 18], "num_virtual_stages": 2}, False),
        ({"stage_layers": [18, 2, 2, 2, 18, 2, 18, 18], "num_virtual_stages": 2}, True),
        ({}, False),
    ],
)
def test_no_pipeline_rank_has_much_more_work_than_the_others(findings, parallelism, wrong) -> None:
    found = findings(plan={"parallelism": parallelism}, select=("TS-PAR-044",))
    assert found == ({("TS-PAR-044", "parallelism.stage_layers")} if wrong else set())


def test_a_pipeline_of_few_layers_is_as_even_as_it_can_be(findings) -> None:
    """Five layers on four ranks leave one with two; an output layer of many layers is a rank of its own."""
    few = {"model": {"num_layers": 5}, "parallelism": {"stage_layers": [1, 2, 1, 1]}}
    assert findings(plan=few, select=("TS-PAR-044",)) == set()
    wide = {"model": {"num_layers": 9, "vocabulary_size": 2_000_000}, "parallelism": {"stage_layers": [3, 3, 3, 0]}}
    assert findings(plan=wide, select=("TS-PAR-044",)) == set()


def test_experts_of_an_unknown_model_are_not_judged(findings, verdict) -> None:
    plan = {"parallelism": {"expert": 2}}
    assert findings(plan=plan, select=("TS-PAR-003",)) == {("TS-PAR-003", "parallelism.expert")}
    found = findings(plan={**plan, "model": {"family": None}}, select=("TS-PAR-003",))
    assert "TS-PAR-003" not in {requirement for requirement, _ in found}
    assert verdict("TS-PAR-003", plan={**plan, "model": {"family": None}}) is Verdict.NOT_RUN


# GLM-4.5-Air: 46 layers, the first without experts, one shared expert in each of the others (arXiv:2508.06471).
GLM_AIR = """
model: {name: glm-4.5-air, family: moe-transformer, num_parameters: 106.85e9, num_active_parameters: 12.1e9,
  num_layers: 46, hidden_size: 4096, num_attention_heads: 96, num_key_value_heads: 8, head_size: 128,
  ffn_hidden_size: 10944, gated_ffn: true, vocabulary_size: 151552, sequence_length: 4096, attention: grouped-query,
  experts: {num_experts: 128, num_active_experts: 8, num_shared_experts: 1, ffn_hidden_size: 1408, num_layers: 45}}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("num_shared_experts: 1, ", "", "experts.num_shared_experts: 1,"),
        ("num_shared_experts: 1", "num_shared_experts: 2", "experts.num_shared_experts: 1,"),
        ("num_layers: 45", "num_layers: 43", "experts.num_layers: 45,"),
        ("gated_ffn: true", "gated_ffn: false", "gated_ffn: true,"),
    ],
)
def test_a_mixture_with_one_slip_is_told_which(
    helps: Callable[..., list[str]], right: str, wrong: str, told: str
) -> None:
    assert helps(plan=GLM_AIR, select=("TS-PAR-019",)) == []
    (help_text,) = helps(plan=GLM_AIR.replace(right, wrong), select=("TS-PAR-019",))
    assert told in help_text


@pytest.mark.parametrize(
    ("count", "right"),
    [
        ("352.8e9", True),
        ("355e9", True),  # arXiv:2508.06471 counts the layer for multi-token prediction, and no embeddings
        ("358.3e9", True),  # with tables that files of weights repeat in that layer, as in DeepSeek-V3
        ("356.8e9", True),
        ("351.2e9", True),
        ("345e9", False),
        ("349e9", False),
        ("361e9", False),
    ],
)
def test_a_count_follows_a_convention_of_publications(
    findings: Callable[..., set[tuple[str, str]]], helps: Callable[..., list[str]], count: str, right: bool
) -> None:
    glm = """
model: {name: glm-4.5, family: moe-transformer, num_parameters: 355e9, num_active_parameters: 32e9, num_layers: 92,
  hidden_size: 5120, num_attention_heads: 96, num_key_value_heads: 8, head_size: 128, ffn_hidden_size: 12288,
  gated_ffn: true, vocabulary_size: 151552, sequence_length: 4096, attention: grouped-query, num_mtp_layers: 1,
  experts: {num_experts: 160, num_active_experts: 8, num_shared_experts: 1, ffn_hidden_size: 1536, num_layers: 89}}
"""
    plan = glm.replace("355e9", count)
    assert bool(findings(plan=plan, select=("TS-PAR-019",))) is not right
    (told,) = helps(plan=plan.replace("1536, num_layers: 89", "1536, num_layers: 92"), select=("TS-PAR-019",)) or [""]
    assert told.startswith("write experts.num_layers: 89, with") or count != "355e9"


def _moe(num_parameters: float, active: float) -> str:
    return f"""
model:
  family: moe-transformer
  num_parameters: {num_parameters:.0f}
  num_active_parameters: {active:.0f}
  num_layers: 24
  hidden_size: 1024
  num_attention_heads: 16
  head_size: 64
  num_key_value_heads: 16
  ffn_hidden_size: 4096
  gated_ffn: false
  tied_embeddings: true
  vocabulary_size: 51200
  sequence_length: 65536
  attention: full
  experts: {{num_experts: 8, num_active_experts: 1, ffn_hidden_size: 4096}}
"""


def test_learned_positions_count_where_the_parameters_count_them(
    findings: Callable[..., set[tuple[str, str]]],
) -> None:
    """DeepSpeed's mixtures (arXiv:2201.05596) have learned positions: 67.1 million parameters for 65,536 of 1,024."""
    layers = 24 * (4 * 1024**2 + 8 * 1024)  # attention and router
    total, active = (51200 * 1024 + layers + n * 24 * 8 * 1024**2 for n in (8, 1))
    positions = 65536 * 1024
    for with_table, counted, wrong in ((0, 0, False), (1, 1, False), (0, 1, True), (1, 0, False)):
        model = _moe(total + with_table * positions, active + counted * positions)
        found = findings(plan=model, select=("TS-PAR-020",))
        assert bool(found) is wrong, (with_table, counted)
