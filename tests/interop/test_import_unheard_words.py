"""A word that no reader knows is no value: what a known word could change stays open, with the word as the reason."""

from __future__ import annotations

import re

import pytest
from plan_files import FIXTURES, assert_sound, at, imported, remarks_of, text_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._worlds import leaves
from trainspec_validate.interop.recognise import recognise

WORD = "unheard-of"
_VALUE = re.compile(
    r"(?<=[:=] )(\"?)([A-Za-z][\w.-]*)\1(?=[\s,}\]]|$)|(?<=[a-z] )()([a-z][a-z0-9_-]+)(?=[ \\]|$)", re.MULTILINE
)
_PLAIN = frozenset({"true", "false", "null", "none", "auto"})


def changed(name: str, before: str, after: str) -> Fragment:
    text = text_of(name)
    assert before in text.text, (name, before)
    made = ForeignText(name, text.text.replace(before, after, 1))
    fragment = recognise(made).read(made)
    assert_sound(fragment)
    return fragment


@pytest.mark.parametrize("word", [WORD, "64", "bf15-mixed", "bf16-mixed-precision"])
def test_a_precision_that_nemo_has_not_is_no_fp32(word: str) -> None:
    fragment = changed("nemo-gpt.yaml", "precision: bf16", f"precision: {word}")
    open_keys = {"compute", "parameters", "gradients", "accumulation", "reduction", "optimizer_state"}
    assert "precision" not in fragment.facts
    assert {f"precision.{key}" for key in (*open_keys, "master_parameters", "loss_scaling")} <= unknown_keys(fragment)
    assert f"trainer.precision is {word if word == '64' else repr(word)}, which is not known" in remarks_of(fragment)
    assert "was taken" not in remarks_of(fragment)


@pytest.mark.parametrize(
    ("format_", "before", "after", "key"),
    [
        ("accelerate", "distributed_type: FSDP", f"distributed_type: {WORD}", "parallelism.sharding"),
        ("accelerate", "distributed_type: DEEPSPEED", f"distributed_type: {WORD}", "parallelism.sharding"),
        ("bridge", "fp8_recipe: mxfp8", f"fp8_recipe: {WORD}", "precision.recipe.format"),
        ("bridge", "moe_router_dtype: fp32", f"moe_router_dtype: {WORD}", "precision.high_precision_operations"),
        ("deepspeed", '"grad_accum_dtype": "fp32"', f'"grad_accum_dtype": "{WORD}"', "precision.gradients"),
        ("deepspeed", '"communication_data_type": "fp32"', '"communication_data_type": "fp31"', "precision.reduction"),
        ("deepspeed", '"WarmupDecayLR"', '"OneMoreLR"', "optimizer.learning_rate.peak"),
        ("megatron", "recompute_granularity ........................... full", "recompute_granularity ..... some",
         "memory.activation_policy"),
        ("nemo", "granularity: selective", "granularity: uniform", "memory.activation_policy"),
        ("nemo", "name: distributed_fused_adam", f"name: {WORD}", "parallelism.sharding"),
        ("torchtitan", 'recipe_name = "rowwise"', f'recipe_name = "{WORD}"', "precision.recipe.format"),
        ("torchtitan", '"Interleaved1F1B"', f'"{WORD}"', "parallelism.stage_layers"),
    ],
)  # fmt: skip
def test_what_a_known_word_decides_stays_open(format_: str, before: str, after: str, key: str) -> None:
    names = [path.name for path in sorted(FIXTURES.iterdir()) if path.name.startswith(format_)]
    name = next(name for name in names if before in text_of(name).text)
    fragment = changed(name, before, after)
    assert at(fragment, *key.split(".")) is None
    assert any(key.startswith(known) for known in unknown_keys(fragment))


def words_of(name: str) -> list[tuple[int, int]]:
    found = [match.span(2 if match[2] else 4) for match in _VALUE.finditer(text_of(name).text)]
    return [place for place in found if text_of(name).text[slice(*place)].lower() not in _PLAIN]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir()))
def test_no_word_of_a_file_becomes_another_value(name: str) -> None:
    text = text_of(name).text
    reader = recognise(text_of(name))
    base = dict(leaves(imported(name).facts))
    for start, end in words_of(name):
        made = ForeignText(name, f"{text[:start]}{WORD}{text[end:]}")
        try:
            facts = dict(leaves(reader.read(made).facts))
        except ForeignFormatError:
            continue
        for place, value in facts.items():
            same = base.get(place) == value or value == "other" or WORD in str(value)
            assert same, f"{text[start:end]} -> {WORD}: {place} was {base.get(place)} and is {value}"
