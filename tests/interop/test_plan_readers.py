"""All readers of launch configurations: each text fits one format, and no text breaks a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from plan_files import FIXTURES, assert_sound, text_of

from tests.every import every
from tests.examples import examples
from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.recognise import formats, recognise
from trainspec_validate.interop.shape import fitting

NAMES = sorted(path.name for path in FIXTURES.iterdir())
EVERY = sorted(path for path in FIXTURES.parent.rglob("*") if path.is_file())
PREFIXES = {
    "accelerate": "huggingface-accelerate",
    "axolotl": "axolotl-yaml",
    "bridge": "megatron-bridge-yaml",
    "deepspeed": "deepspeed-json",
    "hf-launch": "huggingface-trainer-arguments",
    "hf-trainer": "huggingface-trainer-arguments",
    "hf-latent": "huggingface-model-config",
    "hf-llama": "huggingface-model-config",
    "hf-moe": "huggingface-model-config",
    "maxtext": "maxtext-settings",
    "megatron": "megatron-arguments",
    "nemo": "nemo-megatron-yaml",
    "torchtitan": "torchtitan-toml",
    "torchtune": "torchtune-yaml",
}
PLANS = [entry for entry in formats().values() if entry.kind == "TrainingPlan" and entry.name in set(PREFIXES.values())]


def test_every_format_has_a_fixture() -> None:
    assert {entry.name for entry in PLANS} == set(PREFIXES.values())
    for prefix in PREFIXES:
        assert any(name.startswith(prefix) for name in NAMES), prefix


@pytest.mark.parametrize("name", NAMES)
def test_one_format_fits(name: str) -> None:
    text = text_of(name)
    found = recognise(text)
    assert found.name == PREFIXES[max((prefix for prefix in PREFIXES if name.startswith(prefix)), key=len)]
    assert_sound(found.read(text))


@every("path", EVERY, ids=lambda path: path.name)
def test_no_reader_of_plans_claims_other_files(path: Path) -> None:
    text = ForeignText("x", path.read_text(encoding="utf-8", errors="replace"))
    claiming = [entry.name for entry in PLANS if entry.looks_like(text)]
    assert len(claiming) == (1 if path.parent == FIXTURES else 0)


WORDS = st.sampled_from(
    [
        *("--num-layers", "--bf16", "--fp8-format", "--rampup-batch-size", "--moe-layer-freq", "--micro-batch-size=4"),
        *("--per_device_train_batch_size", "ici_fsdp_parallelism=-1", "per_device_batch_size=0.5", "base_emb_dim: 4"),
        *(
            "model:",
            "trainer:",
            "train:",
            "  micro_batch_size: 1",
            "num_layers ... 4",
            "tensor_model_parallel_size .... 2",
        ),
        *("[training]", "[model]", "seq_len = 8", "steps = 1_0", '{"zero_optimization": {"stage": 2}}', "${A}", "$(x)"),
        *(
            "A=",
            "A+=$A",
            "(",
            ")",
            "'",
            '"',
            "\\",
            "\n",
            "\n  ",
            "# x",
            "<<EOF",
            "2>&1",
            "-1",
            "9" * 30,
            "1e999",
            "nan",
        ),
        *(
            "distributed_type: FSDP",
            "num_processes: 8",
            "global_parameter_scale: 7",
            "Config param steps: 3",
            "null",
            "[0]*3",
        ),
    ]
)
TEXTS = st.one_of(
    st.text(max_size=300), st.lists(WORDS, max_size=30).map(" ".join), st.lists(WORDS, max_size=30).map("\n".join)
)


def survives(entry: Format, text: ForeignText) -> None:
    """A reader gives a sound fragment, or says that the text is not what it reads."""
    try:
        fragment = entry.read(text)
    except ForeignFormatError:
        return
    assert_sound(fragment)


@given(TEXTS)
@examples(150)
def test_any_text_is_read_or_refused(text: str) -> None:
    for entry in PLANS:
        source = ForeignText("noise", text)
        assert isinstance(entry.looks_like(source), bool)
        survives(entry, source)


VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-(10**25), 10**25), st.floats(), st.text(max_size=8)),
    *(st.sampled_from(["auto", "${a}", "???", "-1", "0", "1_000"]), st.lists(st.integers(-2, 9), max_size=3).map(str)),
).map(str)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_fixtures_are_read_or_refused(name: str, data: st.DataObject) -> None:
    whole = text_of(name).text
    lines = whole.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(lines) - 1))
        stem = lines[index].rstrip(" ,")
        cut = max(stem.rfind(mark) for mark in (" ", ":", "="))
        kind = data.draw(st.sampled_from(["drop", "value", "cut", "double"]))
        if kind == "value" and cut > 0:
            lines[index] = stem[: cut + 1] + data.draw(VALUES)
        elif kind == "double":
            lines.insert(index, lines[index])
        elif kind == "cut":
            lines[index] = lines[index][: data.draw(st.integers(0, 30))]
        elif len(lines) > 1:
            del lines[index]
    survives(recognise(text_of(name)), ForeignText(name, "\n".join(lines)))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("gradient_clipping", "optimizer.clipping"),
        ("clip_grad", "optimizer.clipping"),
        ("max_grad_norm", "optimizer.clipping"),
        ("training.max_norm", "optimizer.clipping"),
        ("lr", "optimizer.learning_rate"),
        ("optimizer.min_lr", "optimizer.learning_rate"),
        ("lr_warmup_samples", "optimizer.learning_rate"),
        ("lr_decay_style", "optimizer.learning_rate"),
        ("optimizer.name", "optimizer.name"),
        ("lora_r", "lora"),
        ("lora_target_modules", "lora"),
        ("load_in_4bit", "precision.frozen_parameters"),
        ("data_path", "data"),
        ("parallelism.expert_tensor_parallel_degree", "parallelism.expert_tensor"),
    ],
)
def test_a_setting_that_is_not_read_is_told_with_its_place_in_a_plan(name: str, place: str) -> None:
    fragment = Draft({name: 1, "log_level": "info", "weight_decay": 0.1}).fragment("a", ForeignText("a.yaml", ""))
    assert [remark.message for remark in fragment.remarks] == [
        f"not read by this importer; a plan states it in {place}: {name}",
        "not read, because a plan has no place for it: log_level, weight_decay",
    ]
    assert has_place(place)


def test_a_setting_that_nobody_knows_is_not_said_to_have_no_place() -> None:
    fragment = Draft({"tune_llm": 1, "log-level": "info"}).fragment("a", ForeignText("a.yaml", ""))
    assert [remark.message for remark in fragment.remarks] == [
        "not read, because a plan has no place for it: log-level",
        "not read, because this reader does not know it: tune_llm",
    ]


def has_place(place: str) -> bool:
    """Whether the schema of plans has a key."""
    *outer, last = place.split(".")
    facts: dict[str, Any] = {last: {}}
    for key in reversed(outer):
        facts = {key: facts}
    return all(reason != "there is no such key" for _, reason in fitting("TrainingPlan", facts)[1])
