"""Files of one job of MaxText: which setting counts is in MaxText, not in the order of the files."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.merge import Merged
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.interop.refused import join
from trainspec_validate.interop.together import together

BASE = """
model_name: "default"
base_emb_dim: 2048
base_num_query_heads: 16
base_num_kv_heads: 16
base_mlp_dim: 7168
base_num_decoder_layers: 16
head_dim: 128
mlp_activations: ["silu", "linear"]
vocab_size: 32_000
logits_via_embedding: false
decoder_block: "llama2"
steps: 150_001
per_device_batch_size: 12.0
max_target_length: 2048
ici_data_parallelism: 1
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 1
ici_context_parallelism: 1
ici_pipeline_parallelism: 1
dcn_data_parallelism: -1
remat_policy: full
"""
MODEL = """
base_emb_dim: 4096
base_num_query_heads: 32
base_num_kv_heads: 8
base_mlp_dim: 14336
base_num_decoder_layers: 32
head_dim: 128
mlp_activations: ["silu", "linear"]
vocab_size: 128256
logits_via_embedding: false
decoder_block: "llama2"
"""
JOB = """
base_config: base.yml
model_name: llama3.1-8b
steps: 30
per_device_batch_size: 1
max_target_length: 8192
ici_fsdp_parallelism: 1
ici_tensor_parallelism: 8
"""
COMMAND = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-8b steps=10 per_device_batch_size=2"
COMMAND += " max_target_length=4096\n"
FILES = {"base.yml": BASE, "llama3.1-8b.yml": MODEL, "job.yml": JOB, "run.sh": COMMAND}


def merged(*names: str, **texts: str) -> Merged:
    files = {name: texts.get(name.partition(".")[0], FILES.get(name, "")) for name in names}
    plans = []
    for order in permutations(files):
        given = [ForeignText(name, files[name]) for name in order]
        plans.append(join(together([(recognise(text).read(text), text) for text in given])))
    assert all(plan.facts == plans[0].facts for plan in plans), "in whatever order the files come"
    return plans[0]


def sizes(plan: Merged) -> list[object]:
    return [plan.facts["model"].get(key) for key in ("name", "num_layers", "hidden_size", "vocabulary_size")]


@pytest.mark.parametrize("names", [("base.yml", "job.yml"), ("base.yml", "run.sh")])
def test_a_named_model_has_no_sizes_of_base_yml(names: tuple[str, ...]) -> None:
    plan = merged(*names)
    assert sizes(plan) == ["llama3.1-8b", None, None, None]
    assert "num_parameters" not in plan.facts["model"]
    why = next(entry.reason for entry in plan.unknown if entry.pointer == ("model", "num_layers"))
    assert why == "the file of the model llama3.1-8b decides it, which is not read"


def test_the_file_of_the_model_goes_before_base_yml_and_the_job_before_both() -> None:
    plan = merged("base.yml", "llama3.1-8b.yml", "job.yml")
    assert sizes(plan) == ["llama3.1-8b", 32, 4096, 128256]
    assert plan.facts["job"]["num_steps"] == 30
    assert plan.facts["model"]["sequence_length"] == 8192
    assert not any("which is not read" in entry.remark.message for entry in plan.remarks)


def test_degrees_follow_from_the_settings_of_all_files_at_once() -> None:
    plan = merged("base.yml", "llama3.1-8b.yml", "job.yml")
    assert plan.facts["parallelism"]["tensor"] == 8
    assert plan.facts["parallelism"].get("sharding") != "parameters", "base.yml shards; the job sets that degree to 1"


def test_a_configuration_does_not_go_before_the_file_of_the_model() -> None:
    plan = merged("job.yml", job=f"{JOB}base_emb_dim: 64\nbase_num_decoder_layers: 2\n")
    assert sizes(plan) == ["llama3.1-8b", None, None, None]
    given = merged("job.yml", "llama3.1-8b.yml", job=f"{JOB}base_emb_dim: 64\n")
    assert sizes(given) == ["llama3.1-8b", 32, 4096, 128256]


def test_a_command_goes_before_the_file_of_the_model() -> None:
    plan = merged("run.sh", "llama3.1-8b.yml", "base.yml", run=f"{COMMAND.strip()} base_num_decoder_layers=4\n")
    assert sizes(plan) == ["llama3.1-8b", 4, 4096, 128256]


def test_the_file_of_another_model_is_left_out() -> None:
    plan = merged("base.yml", "another.yml", "job.yml", another=MODEL)
    assert sizes(plan) == ["llama3.1-8b", None, None, None]
    told = [entry.remark.message for entry in plan.remarks]
    assert "it is not the file of the model llama3.1-8b, and is left out" in told


def test_base_yml_alone_is_a_job_of_its_own_model() -> None:
    assert merged("base.yml").facts["model"]["num_layers"] == 16
    assert sizes(merged("base.yml", "llama3.1-8b.yml"))[1:] == [32, 4096, 128256]


def test_files_of_several_jobs_are_refused_where_one_may_belong_to_either(tmp_path: Path) -> None:
    with pytest.raises(ForeignFormatError, match="several jobs or models of MaxText"):
        merged("base.yml", "job.yml", "other.yml", other=JOB)
    paths = []
    for name, text in {"base.yml": BASE, "job.yml": JOB, "other.yml": JOB}.items():
        (tmp_path / name).write_text(text)
        paths.append(str(tmp_path / name))
    result = CliRunner().invoke(command, ["import", *paths])
    assert result.exit_code == 2
    assert "import the files of one job at a time" in result.output
