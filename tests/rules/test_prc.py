"""Number formats, loss scaling and recipes: boundary values, frameworks' own defaults, nothing to judge."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict
from trainspec_validate.pipeline.validation import Selection, validate

# Defaults as the frameworks ship them: scaler of PyTorch, DeepSpeed, Megatron-LM.
PYTORCH = {"initial_scale": 65536, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval_steps": 2000}
DEEPSPEED = {**PYTORCH, "growth_interval_steps": 1000, "hysteresis_steps": 2, "min_scale": 1}
MEGATRON = {**DEEPSPEED, "initial_scale": 4294967296}
FP16 = {"compute": "fp16", "parameters": "fp16"}
# Recipes of Transformer Engine and DeepSeek-V3.
DELAYED = {
    "format": "fp8-hybrid",
    "scaling": "delayed",
    "amax_history_steps": 1024,
    "amax_scope": "group",
    "high_precision_layers": ["output-head"],
    "scaling_state_checkpointed": True,
}
DEEPSEEK = {
    "format": "fp8-block",
    "scaling": "block",
    "block_size": 128,
    "high_precision_layers": ["embedding", "output-head", "router", "attention"],
    "scaling_state_checkpointed": False,
}
NVFP4 = {**DEEPSEEK, "format": "nvfp4", "block_size": 16, "gradient_rounding": "stochastic"}
V100 = {"node_groups": [{"name": "compute", "accelerator": {"model": "nvidia-v100-sxm2-32gb", "peak_rates": []}}]}


def precision(**keys: Any) -> dict[str, Any]:
    return {"precision": keys}


SCALER = ("TS-PRC-004", "TS-PRC-024", "TS-PRC-025", "TS-PRC-026")
"""Requirements on the values of a loss scale."""


@pytest.mark.parametrize("scaler", [PYTORCH, DEEPSPEED, MEGATRON], ids=["pytorch", "deepspeed", "megatron"])
def test_framework_defaults_pass(findings, scaler) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **scaler})
    assert findings(plan=plan, select=(*(f"TS-PRC-{n:03}" for n in range(1, 5)), *SCALER)) == set()


@pytest.mark.parametrize(
    ("change", "requirement", "key"),
    [
        ({"growth_factor": 4}, "TS-PRC-025", "backoff_factor"),
        ({"initial_scale": 0.5}, "TS-PRC-024", "initial_scale"),
        ({"backoff_factor": 0.3}, "TS-PRC-004", "backoff_factor"),
        ({"hysteresis_steps": 1000}, "TS-PRC-026", "hysteresis_steps"),
    ],
)
def test_a_bad_scaler_is_found(findings, change, requirement, key) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **DEEPSPEED, **change})
    assert findings(plan=plan, select=SCALER) == {(requirement, f"precision.loss_scaling.{key}")}


@pytest.mark.parametrize("requirement", SCALER)
def test_a_scale_without_numbers_is_not_judged(verdict, requirement) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic"})
    assert verdict(requirement, plan=plan) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("interval", [99, 10_001])
def test_a_scale_that_grows_too_often_or_never_is_found(findings, interval) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **PYTORCH, "growth_interval_steps": interval})
    assert findings(plan=plan, select=("TS-PRC-022",)) == {
        ("TS-PRC-022", "precision.loss_scaling.growth_interval_steps")
    }


@pytest.mark.parametrize("interval", [100, 10_000])
def test_the_ends_of_the_interval_pass(findings, interval) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **PYTORCH, "growth_interval_steps": interval})
    assert findings(plan=plan, select=(*SCALER, "TS-PRC-022")) == set()


@pytest.mark.parametrize("key", ["compute", "gradients"])
def test_fp16_anywhere_needs_a_scale(findings, key) -> None:
    assert findings(plan=precision(**{key: "fp16"}), select=("TS-PRC-001",)) == {("TS-PRC-001", f"precision.{key}")}


def test_fp16_with_mode_none_is_not_scaled(findings) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "none"})
    assert findings(plan=plan, select=("TS-PRC-001",)) == {("TS-PRC-001", "precision.loss_scaling.mode")}


@pytest.mark.parametrize("lacking", ["initial_scale", "growth_interval_steps"])
def test_a_scale_whose_settings_are_not_published_is_not_judged(findings, verdict, lacking) -> None:
    scaling = {"mode": "dynamic", "initial_scale": 65536, "growth_interval_steps": 1000, lacking: None}
    plan = precision(**FP16, loss_scaling=scaling)
    assert findings(plan=plan, select=("TS-PRC-003", *SCALER, "TS-PRC-022")) == set()
    assert verdict("TS-PRC-003", plan=plan) is Verdict.NOT_RUN


def test_a_16_bit_format_is_not_judged_by_narrower_rates_alone(verdict) -> None:
    gb10 = {"node_groups": [{"name": "compute", "accelerator": {"model": "nvidia-gb10-128gb", "peak_rates": []}}]}
    assert verdict("TS-PRC-011", cluster=gb10) is Verdict.NOT_RUN
    assert verdict("TS-PRC-011", cluster=gb10, plan=precision(recipe=DEEPSEEK)) is Verdict.FAIL


def test_a_scale_without_factors_doubles_and_halves(findings) -> None:
    """DeepSpeed and Megatron-LM have no options for them."""
    scaling = {"mode": "dynamic", "initial_scale": 65536, "growth_interval_steps": 1000}
    assert findings(plan=precision(**FP16, loss_scaling=scaling), select=("TS-PRC-003", *SCALER)) == set()


def test_a_static_scale_has_no_controller(findings) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "static", "initial_scale": 1024, "growth_factor": 2})
    assert findings(plan=plan, select=("TS-PRC-003",)) == {("TS-PRC-003", "precision.loss_scaling.growth_factor")}


@pytest.mark.parametrize(
    "requirement",
    [*(f"TS-PRC-{n:03}" for n in (1, 2, 3, 4, 9, 12, 13, 14, 15))],
)
def test_the_base_plan_has_nothing_to_judge(verdict, requirement) -> None:
    assert verdict(requirement) is Verdict.NOT_APPLICABLE


# --- widths


def test_torchtitan_formats_pass(findings) -> None:
    # pytorch/torchtitan docs/bf16_optimizer_states.md: fp32 parameters and gradients, bf16 moments.
    plan = {
        **precision(
            parameters="fp32",
            master_parameters=None,
            gradients="fp32",
            accumulation=None,
            optimizer_state="bf16",
        ),
        "memory": {"state_bytes_per_parameter": 12},
    }
    assert findings(plan=plan) == set()


def test_deepseek_formats_pass(findings) -> None:
    # arXiv:2412.19437, section 3.3: fp8 products, fp32 master and gradients, bf16 moments.
    plan = {**precision(optimizer_state="bf16", recipe=DEEPSEEK), "memory": {"state_bytes_per_parameter": 14}}
    assert findings(plan=plan) == set()


def test_a_narrow_master_copy_is_none(findings) -> None:
    found = findings(plan=precision(master_parameters="bf16"), select=("TS-PRC-005", "TS-PRC-006"))
    assert found == {("TS-PRC-005", "precision.master_parameters")}


def test_fp16_does_not_hold_bf16(findings) -> None:
    plan = precision(gradients="bf16", accumulation="fp16", reduction_error=0.01)
    assert findings(plan=plan, select=("TS-PRC-006",)) == {("TS-PRC-006", "precision.accumulation")}


@pytest.mark.parametrize(("steps", "found"), [(8, set()), (9, {("TS-PRC-007", "precision.accumulation")})])
def test_nine_terms_are_many(findings, steps, found) -> None:
    plan = {
        **precision(gradients="bf16", accumulation="bf16", reduction="bf16"),
        "parallelism": {"data": 1, "num_accelerators": 32},
        "batch": {"global_sequences": steps, "accumulation_steps": steps},
    }
    assert findings(plan=plan, select=("TS-PRC-007",)) == found


def test_a_stated_error_is_bounded_by_rounding(findings) -> None:
    bound = 2**-8 * 512**0.5
    for error, found in ((bound, set()), (bound * 1.01, {("TS-PRC-007", "precision.reduction_error")})):
        plan = precision(reduction="bf16", reduction_error=error)
        assert findings(plan=plan, select=("TS-PRC-007",)) == found


def test_an_error_that_fp32_cannot_have(findings) -> None:
    found = findings(plan=precision(reduction_error=0.004), select=("TS-PRC-007",))
    assert found == {("TS-PRC-007", "precision.reduction_error")}


def test_a_network_without_attention_needs_no_softmax(findings) -> None:
    plan = {
        "model": {"family": "cnn", "attention": None},
        **precision(high_precision_operations=["normalization", "loss"]),
    }
    assert findings(plan=plan, select=("TS-PRC-008",)) == set()


def test_an_empty_list_is_reported_at_the_section(findings) -> None:
    found = findings(plan=precision(high_precision_operations=None), select=("TS-PRC-008",))
    assert found == {("TS-PRC-008", "precision")}


def test_a_dynamic_scale_skips(findings) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **PYTORCH}, nonfinite_action="stop")
    assert findings(plan=plan, select=("TS-PRC-010",)) == {("TS-PRC-010", "precision.nonfinite_action")}
    assert findings(plan=precision(nonfinite_action=None), select=("TS-PRC-010",)) == {("TS-PRC-010", "precision")}


# --- recipes


@pytest.mark.parametrize("recipe", [DELAYED, DEEPSEEK, {**DELAYED, "format": "fp8-e4m3"}])
def test_known_recipes_pass(findings, recipe) -> None:
    select = ("TS-PRC-011", "TS-PRC-012", "TS-PRC-013", "TS-PRC-014")
    assert findings(plan=precision(recipe=recipe), select=select) == set()


def test_v100_has_no_bf16(findings) -> None:
    assert findings(cluster=V100, select=("TS-PRC-011",)) == {("TS-PRC-011", "precision.compute")}
    assert findings(cluster=V100, plan=precision(compute="fp16"), select=("TS-PRC-011",)) == set()
    assert findings(cluster=V100, plan=precision(compute="fp32"), select=("TS-PRC-011",)) == set()


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("nvidia-h100-sxm-80gb", {("TS-PRC-011", "precision.recipe.format")}),
        ("nvidia-b200-sxm-180gb", set()),
        ("nvidia-gb300-288gb", set()),
    ],
)
def test_nvfp4_needs_blackwell(findings, model, found) -> None:
    cluster = {"node_groups": [{"name": "compute", "accelerator": {"model": model}}]}
    assert findings(cluster=cluster, plan=precision(recipe=NVFP4), select=("TS-PRC-011",)) == found


def test_int8_is_judged_only_where_its_rate_is_known(verdict) -> None:
    plan = precision(compute="fp32", recipe={**DELAYED, "format": "int8"})
    assert verdict("TS-PRC-011", plan=plan) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"block_size": 64}, "block_size"),
        ({"scaling": "current"}, "scaling"),
        ({"format": "mxfp8"}, "block_size"),
    ],
)
def test_block_formats_have_their_blocks(findings, change, place) -> None:
    found = findings(plan=precision(recipe={**DEEPSEEK, **change}), select=("TS-PRC-013",))
    assert found == {("TS-PRC-013", f"precision.recipe.{place}")}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"format": "fp8-e5m2"}, "format"),
        ({"block_size": 128}, "block_size"),
        ({"scaling_state_checkpointed": False}, "scaling_state_checkpointed"),
    ],
)
def test_tensor_formats_have_no_blocks_and_a_history(findings, change, place) -> None:
    found = findings(plan=precision(recipe={**DELAYED, **change}), select=("TS-PRC-013",))
    assert found == {("TS-PRC-013", f"precision.recipe.{place}")}


@pytest.mark.parametrize("key", ["amax_scope", "amax_history_steps", "high_precision_layers"])
def test_delayed_scaling_is_complete(findings, key) -> None:
    recipe = {name: value for name, value in DELAYED.items() if name != key}
    assert findings(plan=precision(recipe=recipe), select=("TS-PRC-012",)) == {("TS-PRC-012", "precision.recipe")}


@pytest.mark.parametrize("rounding", ["nearest", None])
def test_four_bits_are_rounded_stochastically(findings, rounding) -> None:
    place = "precision.recipe.gradient_rounding" if rounding else "precision.recipe"
    found = findings(plan=precision(recipe={**NVFP4, "gradient_rounding": rounding}), select=("TS-PRC-014",))
    assert found == {("TS-PRC-014", place)}


def test_scaling_state_can_be_left_out_with_a_reason(findings) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **PYTORCH}, recipe=DELAYED)
    assert findings(plan=plan, select=("TS-PRC-015",)) == {("TS-PRC-015", "state.items")}
    omitted = [
        {"item": item, "reason": "Rebuilt within ten steps."} for item in ("gradient-scaler", "low-precision-scales")
    ]
    assert findings(plan=plan, checkpoint={"state": {"omitted": omitted}}, select=("TS-PRC-015",)) == set()


def test_the_smallest_scale_is_a_bound_of_any_value(findings) -> None:
    plan = precision(**FP16, loss_scaling={"mode": "dynamic", **DEEPSPEED, "min_scale": 1e-4})
    assert findings(plan=plan, select=SCALER) == set()


@pytest.mark.parametrize("kind", ["fp8", "int8"])
def test_gradients_of_8_bits_have_scale_factors(findings: Any, verdict: Any, kind: str) -> None:
    select = ("TS-PRC-023",)
    assert findings(plan={"precision": {"gradients": kind}}, select=select) == {("TS-PRC-023", "precision.gradients")}
    scaled = {"precision": {"gradients": kind, "recipe": DELAYED}}
    assert findings(plan=scaled, select=select) == set()
    assert verdict("TS-PRC-023", plan={"precision": {"gradients": "bf16"}}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "fp8-e4m3", "scaling": "block"}, "write format: fp8-block, or set scaling to delayed or current"),
        ({"format": "mxfp8", "scaling": "current", "block_size": None}, "set scaling to block"),
    ],
)
def test_block_scaling_of_a_tensor_format_names_the_block_format(helps, change, told) -> None:
    plan = precision(recipe={**DELAYED, **change})
    assert told in helps(plan=plan, select=("TS-PRC-013",))


def test_context_ranks_are_not_called_data_ranks(tmp_path, findings) -> None:
    plan = {
        **precision(gradients="bf16", accumulation="bf16", reduction="bf16"),
        "parallelism": {"data": 1, "context": 2, "num_accelerators": 64},
        "batch": {"global_sequences": 8, "accumulation_steps": 8},
    }
    assert findings(plan=plan, select=("TS-PRC-007",))
    said = [f.message for f in validate([tmp_path], Selection(select=("TS-PRC-007",))).findings]
    assert said == [
        "gradients of 8 micro-batches are added in bf16",
        "gradients, sums of 8 micro-batches each, of 2 context ranks are added in bf16",
    ]


def test_a_narrow_reduction_does_not_make_the_accumulation_narrow(tmp_path, findings) -> None:
    plan = {
        **precision(accumulation="fp32", reduction="bf16"),
        "parallelism": {"data": 8, "num_accelerators": 64, "tensor": 8, "pipeline": 1},
        "batch": {"global_sequences": 128, "micro_sequences": 1, "accumulation_steps": 16},
    }
    assert findings(plan=plan, select=("TS-PRC-007",)) == {("TS-PRC-007", "precision.reduction")}
    [said] = [f.message for f in validate([tmp_path], Selection(select=("TS-PRC-007",))).findings]
    assert said == "gradients, sums of 16 micro-batches each, of 8 data ranks are added in bf16"
