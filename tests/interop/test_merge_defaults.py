"""What a file states goes before the default of a framework in another, and what was computed follows."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_files import FIXTURES, imported, text_of

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.merge import Merged, merge, value_at
from trainspec_validate.interop.readers import huggingface, megatron
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.model.finding import Pointer

POLICY: Pointer = ("memory", "activation_policy")


def part(name: str, value: Any, *, default: bool = False) -> Fragment:
    derived: dict[Pointer, str] = {POLICY: "the default of x"} if default else {}
    facts = {"memory": {"activation_policy": value}}
    return Fragment("TrainingPlan", "test", name, facts, derived=derived, defaults=frozenset(derived))


def policy(*parts: Fragment) -> tuple[Any, list[str], Merged]:
    merged = merge(list(parts))
    return merged.facts["memory"]["activation_policy"], [entry.remark.message for entry in merged.remarks], merged


def test_a_stated_fact_replaces_a_default() -> None:
    value, told, merged = policy(part("a", "none", default=True), part("b", "full"))
    assert value == "full"
    assert told == ["memory.activation_policy is full by b, which is taken, and none by a (a default)"]
    assert (merged.derived.get(POLICY), merged.origins[POLICY]) == (None, "b")


def test_a_default_never_replaces_a_stated_fact() -> None:
    value, told, merged = policy(part("a", "full"), part("b", "none", default=True))
    assert value == "full"
    assert told == ["memory.activation_policy is full by a, which is taken, and none by b (a default)"]
    assert merged.derived == {}


def test_of_two_defaults_the_first_stays() -> None:
    value, told, merged = policy(part("a", "none", default=True), part("b", "full", default=True))
    assert value == "none"
    assert told == ["memory.activation_policy is none by a (a default), which is taken, and full by b (a default)"]
    assert merged.derived == {POLICY: "the default of x"}


def test_a_default_that_another_file_states_as_well_is_stated() -> None:
    value, told, merged = policy(part("a", "none", default=True), part("b", "none"), part("c", "full"))
    assert (value, merged.origins[POLICY], merged.derived) == ("none", "b", {})
    assert told == ["memory.activation_policy is none by b, which is taken, and full by c"]


def test_lists_give_way_as_a_whole() -> None:
    pointer = ("precision", "high_precision_operations")
    first = {"precision": {"high_precision_operations": ["softmax"]}}
    second = {"precision": {"high_precision_operations": ["loss", "softmax"]}}
    told: dict[str, Any] = {"derived": {pointer: "the default of x"}, "defaults": frozenset({pointer})}
    parts = [Fragment("TrainingPlan", "test", "a", first, **told), Fragment("TrainingPlan", "test", "b", second)]
    assert merge(parts).facts["precision"]["high_precision_operations"] == ["loss", "softmax"]
    assert first["precision"]["high_precision_operations"] == ["softmax"]


TRAINER = """{"per_device_train_batch_size": 2, "torch_dtype": "float32",
"bf16": false, "fp16": false, "gradient_checkpointing": false}"""
ACCELERATE = """
distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
fsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true}
"""


@pytest.mark.parametrize("turned", [False, True])
def test_accelerate_goes_before_what_the_trainer_leaves_open(*, turned: bool) -> None:
    parts = [
        huggingface.read_trainer(ForeignText("training_args.json", TRAINER)),
        huggingface.read_accelerate(ForeignText("accelerate.yaml", ACCELERATE)),
    ]
    merged = merge(parts[::-1] if turned else parts)
    precision = merged.facts["precision"]
    assert merged.facts["memory"]["activation_policy"] == "full"
    assert [precision[key] for key in ("compute", "parameters", "gradients", "reduction")] == ["bf16"] * 4
    assert precision["master_parameters"] == "fp32"
    told = "\n".join(entry.remark.message for entry in merged.remarks)
    assert "precision.parameters is bf16 by accelerate.yaml, which is taken, and fp32 by training_args.json (a" in told


def test_formats_that_the_trainer_computes_without_sharding_give_way() -> None:
    said = TRAINER.replace('"bf16": false', '"bf16": true')
    parts = [
        huggingface.read_trainer(ForeignText("training_args.json", said)),
        huggingface.read_accelerate(ForeignText("accelerate.yaml", ACCELERATE)),
    ]
    assert merge(parts).facts["precision"]["parameters"] == "bf16"


def test_what_the_trainer_states_stays() -> None:
    said = TRAINER.replace('"fp16": false', '"fp16": true').replace('checkpointing": false', 'checkpointing": true')
    accelerate = huggingface.read_accelerate(ForeignText("accelerate.yaml", "distributed_type: NO\n"))
    merged = merge([huggingface.read_trainer(ForeignText("training_args.json", said)), accelerate])
    assert merged.facts["precision"]["compute"] == "fp16"
    assert merged.facts["memory"]["activation_policy"] == "full"


LAUNCH = (
    "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 8 "
    "--seq-length 512 --padded-vocab-size 1024 --micro-batch-size 1 --global-batch-size 32 --bf16 "
    "--disable-bias-linear --position-embedding-type rope --normalization RMSNorm\n"
)
CONFIG = (
    '{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, '
    '"num_key_value_heads": 2, "intermediate_size": 512, "tie_word_embeddings": false}'
)


def test_parameters_are_counted_again_when_a_default_of_the_shape_gives_way() -> None:
    launch = megatron.read(ForeignText("launch.sh", LAUNCH))
    merged = merge([launch, huggingface.read_model(ForeignText("config.json", CONFIG))])
    model = merged.facts["model"]
    assert (model["gated_ffn"], model["ffn_hidden_size"], model["num_key_value_heads"]) == (True, 512, 2)
    attention = 2 * 256 * 256 + 2 * 256 * 64
    norms = 2 * (2 * 2 + 1) // 2 * 256
    assert model["num_parameters"] == 2 * (attention + 3 * 256 * 512) + 2 * 1024 * 256 + norms
    assert model["num_parameters"] != launch.facts["model"]["num_parameters"]
    assert model["attention"] == "grouped-query"
    told = [entry.remark.message for entry in merged.remarks]
    assert any(message.startswith("computed again from what all files say: ") for message in told), told


def test_the_data_degree_follows_a_degree_that_another_file_states() -> None:
    launch = megatron.read(ForeignText("launch.sh", LAUNCH))
    assert launch.facts["parallelism"]["data"] == 16
    other = Fragment("TrainingPlan", "test", "b", {"parallelism": {"tensor": 4}})
    merged = merge([launch, other])
    assert (merged.facts["parallelism"]["tensor"], merged.facts["parallelism"]["data"]) == (4, 4)
    assert merged.facts["batch"]["accumulation_steps"] == 8


def test_what_cannot_be_computed_again_is_unknown() -> None:
    gated = Fragment("TrainingPlan", "test", "b", {"model": {"gated_ffn": True}})
    merged = merge([megatron.read(ForeignText("launch.sh", LAUNCH)), gated])
    assert "ffn_hidden_size" not in merged.facts["model"]
    reasons = {entry.pointer: entry.reason for entry in merged.unknown}
    assert reasons["model", "ffn_hidden_size"].startswith("launch.sh computes it from model.gated_ffn")


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=lambda path: path.name)
def test_readers_mark_what_they_call_a_default(path: Any) -> None:
    text = text_of(path.name)
    fragment = recognise(text).read(text)
    derived = dict(fragment.derived or {})
    assert fragment.defaults <= derived.keys()
    assert fragment.inputs.keys() <= derived.keys()
    unmarked = {place for place, how in derived.items() if "default of" in how and place not in fragment.defaults}
    assert unmarked == set()
    assert all(type(how) is str for how in derived.values())


def test_no_order_of_files_takes_a_default_where_one_states() -> None:
    names = ("hf-trainer.yaml", "accelerate-hsdp.yaml", "hf-llama-config.json")
    for order in permutations(imported(name) for name in names):
        merged = merge(list(order))
        for place in {place for fragment in order for place in fragment.defaults}:
            stating = [
                fragment.name
                for fragment in order
                if place not in fragment.defaults and place[-1] in _group(fragment.facts, place)
            ]
            assert not stating or merged.origins.get(place, stating[0]) in stating, place


def _group(facts: Any, place: tuple[str | int, ...]) -> Any:
    for key in place[:-1]:
        facts = facts.get(key, {}) if isinstance(facts, dict) else {}
    return facts


PLACES: list[Pointer] = [("model", "a"), ("model", "b"), ("batch", "c"), ("batch", "deep", "d")]


@st.composite
def fragments(draw: st.DrawFn) -> Fragment:
    facts: dict[str, Any] = {}
    for place in draw(st.lists(st.sampled_from(PLACES), unique=True)):
        inner = facts
        for key in place[:-1]:
            inner = inner.setdefault(str(key), {})
        inner[str(place[-1])] = draw(st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2))
    derived = {
        place: "the default of x" for place in PLACES if value_at(facts, place) is not None and draw(st.booleans())
    }
    weak = frozenset(place for place in derived if draw(st.booleans()))
    inputs = {place: tuple(draw(st.lists(st.sampled_from(PLACES), max_size=2))) for place in derived}
    name = draw(st.sampled_from(["a", "b"]))
    return Fragment("TrainingPlan", "test", name, facts, derived=derived, defaults=weak, inputs=inputs)


@examples(300)
@given(st.lists(fragments(), min_size=1, max_size=4))
def test_any_defaults_merge_and_a_fact_that_a_file_states_is_never_lost(parts: list[Fragment]) -> None:
    merged = merge(parts)
    for place in PLACES:
        stated = [
            value_at(item.facts, place)
            for item in parts
            if value_at(item.facts, place) is not None and place not in (item.derived or {})
        ]
        found = value_at(merged.facts, place)
        values = [value_at(item.facts, place) for item in parts]
        assert found is None or found in values
        assert found is not None or not stated, place
        assert all(merged.facts is not item.facts for item in parts)
