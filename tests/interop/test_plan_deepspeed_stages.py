"""DeepSpeed: what each stage of ZeRO does with settings of communication and offload."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plan_files import assert_sound, at, how, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.deepspeed import read

AVERAGING = ("communication", "gradient_averaging")


def config(zero: dict[str, Any], **values: Any) -> Fragment:
    settings = {"train_batch_size": 64, "zero_optimization": zero, **values}
    fragment = read(ForeignText("ds.json", json.dumps(settings)))
    assert_sound(fragment)
    return fragment


@pytest.mark.parametrize(
    ("zero", "averaging"),
    [
        ({"stage": 0}, "divide-after"),
        ({"stage": 1}, None),
        ({"stage": 1, "reduce_scatter": True}, None),
        ({"stage": 2}, "divide-before"),
        ({"stage": 2, "reduce_scatter": True}, "divide-before"),
        ({"stage": 2, "reduce_scatter": False}, "divide-after"),
        ({"stage": 2, "reduce_scatter": "auto"}, None),
        ({"stage": 3, "reduce_scatter": True}, "divide-before"),
        ({"stage": 3, "reduce_scatter": False}, None),
        ({"stage": 3, "zero_quantized_gradients": True}, None),
        ({"stage": "auto"}, None),
    ],
)
def test_the_stage_decides_when_gradients_are_divided(zero: dict[str, Any], averaging: str | None) -> None:
    fragment = config(zero)
    assert at(fragment, *AVERAGING) == averaging
    assert (".".join(AVERAGING) in unknown_keys(fragment)) == (averaging is None)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_prescaled_gradients_are_divided_before_at_every_stage(stage: int) -> None:
    assert at(config({"stage": stage}, prescale_gradients=True), *AVERAGING) == "divide-before"


def test_an_averaging_that_rests_on_a_default_says_so() -> None:
    assert "by default" in how(config({"stage": 2}), ".".join(AVERAGING))
    assert "by default" not in how(config({"stage": 2, "reduce_scatter": True}), ".".join(AVERAGING))


def test_buckets_and_overlap_of_zero_have_no_effect_at_stage_0() -> None:
    zero = {"stage": 0, "overlap_comm": True, "reduce_bucket_size": 7e5}
    fragment = config(zero, fp16={"enabled": True})
    assert at(fragment, "communication", "overlap_gradients") is False
    assert at(fragment, "communication", "bucket_bytes") == 1e9
    assert "overlap_comm has no effect at stage 0" in remarks_of(fragment)
    assert "reduce_bucket_size has no effect at stage 0" in remarks_of(fragment)
    fragment = config({**zero, "stage": 1}, fp16={"enabled": True})
    assert at(fragment, "communication", "overlap_gradients") is True
    assert at(fragment, "communication", "bucket_bytes") == 1.4e6


@pytest.mark.parametrize(("on", "off"), [("bf16", "fp16"), ("fp16", "bf16")])
def test_auto_next_to_a_format_that_is_on_is_off(on: str, off: str) -> None:
    fragment = config({"stage": 2}, **{on: {"enabled": True}, off: {"enabled": "auto"}})
    assert at(fragment, "precision", "compute") == on


def test_the_older_switch_of_offload_is_read() -> None:
    entry = {"what": "optimizer", "target": "host", "fraction": 1.0}
    fragment = config({"stage": 2, "cpu_offload": True})
    assert at(fragment, "memory", "offload") == [entry]
    assert "cpu_offload is the older name of offload_optimizer" in remarks_of(fragment)
    assert at(config({"stage": 2, "cpu_offload": False}), "memory", "offload") is None
    both = config({"stage": 2, "cpu_offload": True, "offload_optimizer": {"device": "none"}})
    assert at(both, "memory", "offload") is None
    older = config({"stage": 3, "cpu_offload": True, "cpu_offload_params": True})
    assert at(older, "memory", "offload") == [entry, {**entry, "what": "parameters"}]


@pytest.mark.parametrize(
    ("stage", "wide", "offload", "engine"),
    [
        (1, "fp32", None, True),
        (1, "fp32", "cpu", False),
        (1, "bf16", None, False),
        (1, None, None, False),
        (2, "fp32", None, False),
    ],
)
def test_bf16_optimizer_leaves_the_reduction_to_the_engine(
    stage: int, wide: str | None, offload: str | None, engine: bool
) -> None:
    zero: dict[str, Any] = {"stage": stage, "overlap_comm": True, "reduce_bucket_size": 126e7}
    if offload:
        zero["offload_optimizer"] = {"device": offload}
    data = {"data_types": {"grad_accum_dtype": wide}} if wide else {}
    fragment = config(zero, bf16={"enabled": True}, **data)
    assert at(fragment, "communication", "overlap_gradients") is not engine
    assert at(fragment, "communication", "bucket_bytes") == (1e9 if engine else 2.52e9)
    assert ("overlap_comm has no effect with BF16_Optimizer" in remarks_of(fragment)) is engine
    if stage == 1:
        assert at(fragment, *AVERAGING) == ("divide-after" if engine else None)


def test_the_engine_reduces_in_the_format_of_communication() -> None:
    zero = {"stage": 1, "reduce_bucket_size": 126e7}
    types = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}
    assert at(config(zero, bf16={"enabled": True}, **types), "communication", "bucket_bytes") == 2e9
