"""Files of one job of GPT-NeoX: they are joined to one mapping, and one of them alone leaves the defaults open."""

from __future__ import annotations

from itertools import permutations

import pytest
from plan_files import at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.merge import Merged
from trainspec_validate.interop.readers.neox import looks_like
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.interop.refused import join
from trainspec_validate.interop.together import together

MODEL = """{
  "pipe_parallel_size": 1,
  "model_parallel_size": 2,
  "num_layers": 40,
  "hidden_size": 5120,
  "num_attention_heads": 40,
  "seq_length": 4096,
  "no_weight_tying": true,
  "gpt_j_residual": false,
}
"""
SCHEDULE = """{
  "optimizer": {"type": "Adam", "params": {"lr": 0.0002}},
  "min_lr": 0.00002,
  "zero_optimization": {"stage": 1, "overlap_comm": True},
  "train_micro_batch_size_per_gpu": 4,
  "checkpoint_activations": true,
  "fp16": {"enabled": true, "loss_scale": 0},
  "train_iters": 320000,
  "lr_decay_style": "cosine",
  "warmup": 0.01,
  "checkpoint_factor": 10000,
}
"""
PATHS = """{
  "data-path": "data/enwik8/enwik8_text_document",
  "vocab-file": "data/gpt2-vocab.json",
  "save": "checkpoints",
  "checkpoint_validation_with_forward_pass": False,
  "num_workers": 3,
}
"""
FILES = {"13B.yml": MODEL, "train_config.yml": SCHEDULE, "local_setup.yml": PATHS}


def read(name: str, text: str) -> Fragment:
    given = ForeignText(name, text)
    assert recognise(given).name == "gpt-neox-yaml"
    return recognise(given).read(given)


def merged(**texts: str) -> Merged:
    files = {name: texts.get(name.partition(".")[0], text) for name, text in FILES.items()}
    plans = []
    for order in permutations(files):
        given = [ForeignText(name, files[name]) for name in order]
        plans.append(join(together([(recognise(text).read(text), text) for text in given])))
    assert all(plan.facts == plans[0].facts for plan in plans), "in whatever order the files come"
    return plans[0]


@pytest.mark.parametrize("name", FILES)
def test_each_file_of_a_job_is_recognised(name: str) -> None:
    fragment = read(name, FILES[name])
    assert "joins several files of a job" in remarks_of(fragment)


def test_the_model_alone_does_not_say_how_it_is_trained() -> None:
    fragment = read("13B.yml", MODEL)
    assert fragment.facts["model"]["num_layers"] == 40
    assert (at(fragment, "parallelism", "tensor"), at(fragment, "parallelism", "pipeline")) == (2, 1)
    assert fragment.facts.keys() == {"model", "parallelism"}
    assert at(fragment, "parallelism", "sharding") is None
    assert {"precision.compute", "memory.activation_policy", "parallelism.sharding"} <= unknown_keys(fragment)


def test_a_schedule_alone_does_not_say_what_depends_on_the_model() -> None:
    fragment = read("train_config.yml", SCHEDULE)
    assert (at(fragment, "batch", "micro_sequences"), at(fragment, "job", "num_steps")) == (4, 320000)
    assert at(fragment, "communication", "overlap_gradients") is None, "the number of stages decides"
    assert "model" not in fragment.facts
    assert at(fragment, "parallelism", "tensor") is None
    assert at(fragment, "optimizer", "learning_rate")["kind"] == "cosine"
    assert "warmup_steps" not in at(fragment, "optimizer", "learning_rate"), "another file may set lr_decay_iters"


def test_files_of_one_job_are_read_as_one_mapping() -> None:
    plan = merged()
    facts = plan.facts
    assert facts["model"]["family"] == "dense-transformer"
    assert facts["parallelism"]["sharding"] == "optimizer"
    assert facts["precision"]["compute"] == "fp16"
    assert facts["communication"]["overlap_gradients"] is False, "a pipeline of one stage switches it off"
    assert facts["memory"] == {"activation_policy": "full", "num_loader_workers": 3}
    assert facts["optimizer"]["learning_rate"]["warmup_steps"] == 3200
    assert facts["batch"] == {"micro_sequences": 4, "accumulation_steps": 1}


def test_a_setting_that_two_files_have_alike_is_told() -> None:
    plan = merged(local_setup=PATHS.replace("}", '"train-iters": 320000}'))
    assert plan.facts["job"]["num_steps"] == 320000
    assert any("several of the files have train_iters" in entry.remark.message for entry in plan.remarks)


def test_files_of_several_jobs_are_not_joined() -> None:
    given = [ForeignText(f"{name}.yml", MODEL.replace("40", size)) for name, size in (("a", "40"), ("b", "48"))]
    plan = join(together([(recognise(text).read(text), text) for text in given]))
    assert plan.facts["model"]["num_layers"] == 40
    assert any("48" in entry.remark.message for entry in plan.remarks), "the other value is named"


@pytest.mark.parametrize(
    "text",
    [
        "save: out\nload: out\nvocab_file: v.json\ndata_path: d\n",
        '{"zero_optimization": {"stage": 2}, "train_batch_size": 8, "steps_per_print": 1}',
    ],
)
def test_what_any_program_may_have_is_no_part_of_gpt_neox(text: str) -> None:
    assert not looks_like(ForeignText("a.yml", text))


@pytest.mark.parametrize(("setting", "rows"), [("", None), ('"padded_vocab_size": 50688,\n', 50688)])
def test_the_vocabulary_is_the_padded_one(setting: str, rows: int | None) -> None:
    text = MODEL.replace("{\n", "{\n" + setting, 1)
    found = recognise(ForeignText("model.yml", text)).read(ForeignText("model.yml", text))
    assert found.facts["model"].get("vocabulary_size") == rows
    assert any(entry.pointer == ("model", "vocabulary_size") for entry in found.unknown) is (rows is None)


def test_no_layers_between_recomputed_ones_is_no_recomputation() -> None:
    text = SCHEDULE.replace('"fp16"', '"checkpoint_num_layers": 0,\n  "fp16"')
    policies = [at(read("train_config.yml", one), "memory", "activation_policy") for one in (SCHEDULE, text)]
    assert policies == ["full", "none"]
