"""torchtitan: job configurations in TOML become plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import assert_sound, at, broken, converted, document, how, imported, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.torchtitan import MAX_CHARACTERS, read
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.model.finding import Severity


def job(tables: str, *, steps: int = 10) -> Fragment:
    head = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n'
    head += f"steps = {steps}\n"
    return read(ForeignText("job.toml", f"{head}{tables}"))


def test_a_program_after_torchtitan_has_defaults_of_its_own() -> None:
    own = job("").facts
    text = '[job]\ndump_folder = "out"\n[model]\nbackbone = "vit"\n[training]\nbatch_size = 4\nsteps = 10\n'
    fragment = read(ForeignText("job.toml", text))
    assert own["precision"]["compute"] == "bf16"
    assert "precision.compute" in unknown_keys(fragment)
    assert {"model.sequence_length", "optimizer.learning_rate.kind"} <= unknown_keys(fragment)
    assert at(fragment, "batch", "micro_sequences") == 4
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("job.toml", text.replace("dump_folder", "output")))


def test_hybrid_shards(tmp_path: Path) -> None:
    fragment = imported("torchtitan-hsdp.toml")
    assert_sound(fragment)
    assert fragment.facts["parallelism"] == {
        "num_accelerators": 64,
        "data": 32,
        "tensor": 2,
        "pipeline": 1,
        "context": 1,
        "sequence": True,
        "sharding": "parameters",
        "sharding_degree": 8,
    }
    assert fragment.facts["batch"] == {
        "global_sequences": 128,
        "micro_sequences": 2,
        "accumulation_steps": 2,
        "global_tokens": 1048576,
    }
    assert at(fragment, "precision", "recipe", "format") == "fp8-e4m3"
    assert at(fragment, "model", "num_parameters") == 8_030_261_248
    assert how(fragment, "model.num_layers").startswith("the flavour 8B in pytorch/torchtitan@")
    converted(document(fragment))
    assert broken(document(fragment), tmp_path) == set()


def test_a_pipeline_with_uneven_stages(tmp_path: Path) -> None:
    fragment = imported("torchtitan-pipeline.toml")
    assert_sound(fragment)
    assert {"parallelism.num_accelerators", "parallelism.data", "batch.global_sequences"} <= unknown_keys(fragment)
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert "a comment calls the file a preset for 256" in reasons["parallelism", "num_accelerators"]
    assert at(fragment, "parallelism", "stage_layers") == [7, *[8] * 14, 7]
    assert at(fragment, "parallelism", "sharding") == "gradients"
    assert at(fragment, "batch", "micro_sequences") == 1
    assert at(fragment, "batch", "accumulation_steps") == 32
    answer = {"parallelism": {"num_accelerators": 256, "data": 4}, "batch": {"global_sequences": 128}}
    converted(document(fragment, answer))
    assert broken(document(fragment, answer), tmp_path) == set()


def test_more_tensor_ranks_than_heads(tmp_path: Path) -> None:
    fragment = imported("torchtitan-bad-tensor.toml")
    assert ("TS-PAR-016", "model.num_attention_heads") in broken(document(fragment), tmp_path, Severity.WARNING)


def test_a_flavour_that_only_the_program_knows() -> None:
    fragment = imported("torchtitan-unknown-flavour.toml")
    assert_sound(fragment)
    assert at(fragment, "model", "name") == "qwen3-14B"
    wanted = {"model.num_layers", "model.num_parameters", "parallelism.data", "parallelism.num_accelerators"}
    assert wanted <= unknown_keys(fragment)
    assert at(fragment, "batch", "micro_sequences") == "four"
    assert "6: training.local_batch_size is 'four'" in remarks_of(fragment)


def test_degrees_that_the_ranks_decide() -> None:
    fragment = job("[parallelism]\ntensor_parallel_degree = 2\n")
    assert at(fragment, "parallelism", "data") is None
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert "batch.global_sequences" in unknown_keys(fragment)


def test_copies_without_shards() -> None:
    fragment = job("[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n")
    assert at(fragment, "parallelism", "sharding") == "none"
    assert at(fragment, "precision", "parameters") == "fp32"
    assert at(fragment, "precision", "master_parameters") is None
    assert at(fragment, "batch", "global_sequences") == 32


@pytest.mark.parametrize(
    ("policy", "stages", "sharding"),
    [("default", 1, "parameters"), ("never", 1, "gradients"), ("always", 4, "parameters"), ("default", 4, "gradients")],
)
def test_resharding(policy: str, stages: int, sharding: str) -> None:
    tables = f'[parallelism]\nfsdp_reshard_after_forward = "{policy}"\npipeline_parallel_degree = {stages}\n'
    assert at(job(tables), "parallelism", "sharding") == sharding


def test_older_tables() -> None:
    old = "[training]\nbatch_size = 2\nseq_len = 2048\ntensor_parallel_degree = 4\ndata_parallel_shard_degree = 2\n"
    fragment = read(
        ForeignText("old.toml", f"{old}[experimental]\npipeline_parallel_degree = 2\n[model]\nname = 'llama2'\n")
    )
    assert at(fragment, "parallelism", "tensor") == 4
    assert at(fragment, "parallelism", "num_accelerators") == 16
    assert at(fragment, "batch", "micro_sequences") == 1


def test_split_points() -> None:
    points = '["layers.7", "layers.15", "layers.23"]'
    fragment = job(f"[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_split_points = {points}\n")
    assert at(fragment, "parallelism", "stage_layers") == [7, 8, 8, 9]


@pytest.mark.parametrize(("option", "policy"), [("op", "selective"), ("1", "full"), ("2", None)])
def test_selective_recomputation_of_whole_layers(option: str, policy: str | None) -> None:
    fragment = job(f"[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '{option}'\n")
    assert at(fragment, "memory", "activation_policy") == policy
    assert ("memory.activation_policy" in unknown_keys(fragment)) == (policy is None)


def test_offload_and_remarks() -> None:
    fragment = job(
        "enable_cpu_offload = true\n[activation_checkpoint]\nmode = 'memory_budget'\n[optimizer]\nlr = 1e-4\n"
    )
    assert {entry["what"] for entry in at(fragment, "memory", "offload")} == {"parameters", "gradients", "optimizer"}
    assert "memory.activation_policy" in unknown_keys(fragment)
    assert "optimizer.lr" not in remarks_of(fragment)
    assert at(fragment, "optimizer", "learning_rate", "peak") == 1e-4


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("[training]\nsteps = \n", "no TOML", 2),
        ("[model]\nname = 'x'\n", "no table", None),
        ("a = " + "[" * 5000, "no TOML|nested", None),
    ],
)
def test_what_is_refused(text: str, message: str, line: int | None) -> None:
    with pytest.raises(ForeignFormatError, match=message) as caught:
        read(ForeignText("job.toml", text))
    assert line is None or caught.value.line == line


@pytest.mark.parametrize(
    ("text", "message"),
    [("a" * (MAX_CHARACTERS + 1), "longer than"), (f"[training]\n{'a.' * 300}b = 1\n", "more than 200 dots")],
)
def test_texts_beyond_bounds(text: str, message: str) -> None:
    with pytest.raises(ForeignFormatError, match=message):
        read(ForeignText("job.toml", text))


def test_numbers_that_no_document_holds() -> None:
    fragment = job("[comm]\ntrain_timeout_seconds = inf\n[parallelism]\ntensor_parallel_degree = nan\n")
    assert_sound(fragment)
    assert "parallelism.tensor" in unknown_keys(fragment)


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [("warmup_steps = 7", 7), ("[lr_scheduler]\nwarmup_steps = 8", 8), ("", 200)],
)
def test_steps_of_warm_up_are_read_where_older_versions_have_them(stated: str, wanted: int) -> None:
    tables = f"{stated}\n[optimizer]\nlr = 3e-4\n" if "[" not in stated else f"[optimizer]\nlr = 3e-4\n{stated}\n"
    assert at(job(tables, steps=1000), "optimizer", "learning_rate")["warmup_steps"] == wanted


@pytest.mark.parametrize(("stated", "wanted"), [("", 10), ("[lr_scheduler]\nwarmup_steps = 600", 10)])
def test_a_warm_up_longer_than_the_job_is_cut_as_torchtitan_cuts_it(stated: str, wanted: int) -> None:
    fragment = job(f"[optimizer]\nlr = 3e-4\n{stated}\n")
    assert at(fragment, "optimizer", "learning_rate")["warmup_steps"] == wanted
    assert "which torchtitan cuts to the 10 steps of the job" in how(fragment, "optimizer.learning_rate.warmup_steps")


@pytest.mark.parametrize(("word", "wanted"), [("", "linear"), ('decay_type = "cosine"\n', "cosine")])
def test_a_decay_that_takes_all_that_the_warm_up_leaves_has_no_stable_part(word: str, wanted: str) -> None:
    fragment = job(f"[optimizer]\nlr = 3e-4\n[lr_scheduler]\nwarmup_steps = 4\ndecay_ratio = 0.8\n{word}")
    rate = at(fragment, "optimizer", "learning_rate")
    assert (rate["kind"], rate["warmup_steps"], rate["total_steps"]) == (wanted, 4, 10)
    assert "decay_steps" not in rate
    assert "stable part" not in str(fragment.derived)


def test_a_decay_with_a_stable_part_before_it() -> None:
    fragment = job("[optimizer]\nlr = 3e-4\n[lr_scheduler]\nwarmup_steps = 4\ndecay_ratio = 0.5\n")
    rate = at(fragment, "optimizer", "learning_rate")
    assert (rate["kind"], rate["decay_steps"]) == ("warmup-stable-decay", 5)


def test_a_decay_of_no_steps_keeps_the_rate() -> None:
    fragment = job("[optimizer]\nlr = 3e-4\n[lr_scheduler]\nwarmup_steps = 4\ndecay_ratio = 0.0\n")
    rate = at(fragment, "optimizer", "learning_rate")
    assert rate["kind"] == "constant"
    assert "decay_steps" not in rate


@pytest.mark.parametrize(
    "own",
    [
        '[model]\nname = "diffuser"\n',
        '[model]\nname = "llama3"\n[experimental]\ncustom_args_module = "torchtitan.experiments.a.b"\n',
    ],
)
def test_a_trainer_of_an_experiment_has_defaults_of_its_own(own: str) -> None:
    text = f"{own}[training]\nsteps = 10\n"
    fragment = read(ForeignText("job.toml", text))
    assert {"parallelism.sharding", "model.sequence_length"} <= unknown_keys(fragment)
    stated = read(ForeignText("job.toml", f"{text}seq_len = 4096\n"))
    assert at(stated, "model", "sequence_length") == 4096


def test_a_trainer_of_an_experiment_has_formats_of_its_own() -> None:
    fragment = job(
        '[parallelism]\ndata_parallel_shard_degree = 2\n[experimental]\ncustom_args_module = "a.experiments.b"\n'
    )
    assert at(fragment, "precision") is None
    assert {"precision.compute", "precision.master_parameters", "communication.overlap_gradients"} <= unknown_keys(
        fragment
    )
    stated = job('mixed_precision_param = "bfloat16"\n[experimental]\ncustom_args_module = "a.experiments.b"\n')
    assert at(stated, "precision") == {"compute": "bf16"}
