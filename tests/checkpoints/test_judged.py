"""Checkpoints are found by their content wherever they lie below what is named, and judged beside documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate.checking.selection import Selection
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.cli.validate import command as gate
from trainspec_validate.model.finding import Verdict
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

ONE = "safetensors weight=F32[4]"


def requirements(*paths: Path) -> set[tuple[str, str]]:
    return {(finding.requirement, Path(finding.path).name) for finding in validate(paths).findings}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(gate, [str(argument) for argument in arguments])


def test_directories_without_a_checkpoint_are_none(tmp_path: Path) -> None:
    build(tmp_path, 'step-1/config.json  json {"a": 1}\n2024/notes.txt  text x\nmodel.bin  text x\nlatest  text x\n')
    assert find(tmp_path) == []
    with pytest.raises(InputError, match="no checkpoint in"):
        validate([tmp_path])


def test_checkpoints_are_found_at_every_depth_and_not_behind_links(tmp_path: Path) -> None:
    build(tmp_path, f"a/b/run/checkpoints/step-60/model.safetensors  {ONE}\na/final/model.safetensors  {ONE}\n")
    build(tmp_path / "elsewhere", f"step-1/model.safetensors  {ONE}\n")
    (tmp_path / "a" / "linked").symlink_to(tmp_path / "elsewhere")
    found = {member.relative_to(tmp_path).as_posix() for group in find(tmp_path / "a") for member in group.members}
    assert found == {"a/b/run/checkpoints/step-60", "a/final"}


def test_a_final_model_above_its_checkpoints_is_one_by_itself(tmp_path: Path) -> None:
    build(tmp_path, f"out/model.safetensors  {ONE}\nout/checkpoint-5/model.safetensors  {ONE}\n")
    build(tmp_path, 'out/checkpoint-5/trainer_state.json  json {"global_step": 5}\n')
    build(tmp_path, "out/checkpoint-5/trainspec-manifest.json  sealed\nout/trainspec-manifest.json  sealed\n")
    listed = {len(json.loads(path.read_text())["files"]) for path in tmp_path.rglob("trainspec-manifest.json")}
    assert listed == {4, 2}
    assert requirements(tmp_path) == {("TS-CKP-087", "checkpoint-5")}


def test_every_requirement_gets_a_verdict_and_nothing_seen_is_no_pass(tmp_path: Path) -> None:
    build(tmp_path, f"step-60/model.safetensors  {ONE}\n")
    outcomes = {outcome.requirement: outcome for outcome in validate([tmp_path]).outcomes}
    assert outcomes["TS-CKP-083"].verdict is Verdict.PASS
    assert outcomes["TS-CKP-070"].verdict is Verdict.WARN
    for identifier, words in {
        "TS-CKP-072": "no trainspec-manifest.json that can be read",
        "TS-CKP-080": "no format with a completion mark",
        "TS-CKP-091": "no pointer next to checkpoints",
        "TS-SEC-001": "no pickle",
    }.items():
        assert (outcomes[identifier].verdict, outcomes[identifier].reason) == (Verdict.NOT_APPLICABLE, words)
    without = outcomes["TS-CKP-095"]
    assert without.verdict is Verdict.NOT_RUN
    assert without.reason.endswith("step-60 is judged without a CheckpointPolicy")


def test_a_manifest_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    build(tmp_path, f'step-60/model.safetensors  {ONE}\nstep-60/trainspec-manifest.json  json {{"kind": 1}}\n')
    assert requirements(tmp_path) == {("TS-CKP-083", "trainspec-manifest.json")}


def test_a_series_is_judged_by_the_policy_beside_it_and_by_selection(tmp_path: Path) -> None:
    build(tmp_path, f"step-60/model.safetensors  {ONE}\nstep-120/model.safetensors  {ONE}\n")
    build(tmp_path, "step-60/trainspec-manifest.json  sealed\nstep-120/trainspec-manifest.json  sealed\n")
    assert requirements(tmp_path) == set()
    build(tmp_path, "step-120/model.safetensors  flipped\n")
    assert requirements(tmp_path) == {("TS-CKP-072", "model.safetensors")}
    report = validate([tmp_path], Selection("full", frozenset({"TS-SEC"}), frozenset()))
    assert {outcome.requirement for outcome in report.outcomes} == {"TS-SEC-001", "TS-SEC-002", "TS-SEC-003"}


def test_the_gate_tells_files_in_every_format_and_exits_by_them(tmp_path: Path) -> None:
    build(tmp_path, f"step-60/model.safetensors  {ONE}\nstep-60/trainspec-manifest.json  sealed\n")
    assert invoke(tmp_path).exit_code == 0
    build(tmp_path, "step-60/model.safetensors  cut 1\n")
    place = f"{(tmp_path / 'step-60' / 'model.safetensors').as_posix()}"
    for style in ("full", "concise", "json", "sarif", "github", "gitlab", "junit"):
        result = invoke(tmp_path, "--format", style)
        assert (result.exit_code, result.exception.__class__) == (1, SystemExit), style
        assert "model.safetensors" in result.stdout, style
    told = invoke(tmp_path, "--format", "concise").stdout
    assert place in told
    assert "\n2 errors; documents with findings: 1 of 1; 4 requirements not judged: " in told


def test_checkpoints_are_listed(tmp_path: Path) -> None:
    build(tmp_path, f"step-60/model.safetensors  {ONE}\nstep-60/trainspec-manifest.json  sealed\n")
    result = invoke(tmp_path, "--list-files")
    assert (result.exit_code, result.stdout) == (0, f"{(tmp_path / 'step-60').as_posix()}\n")


def test_findings_of_checkpoints_are_silenced_like_others(tmp_path: Path) -> None:
    build(tmp_path, f"step-60/model.safetensors  {ONE}\n")
    waiver = '{requirement: TS-CKP-070, file: "**", reason: old, owner: me, expires: "2999-01-01"}'
    (tmp_path / "waivers.yaml").write_text(f"apiVersion: trainspec/v1\nkind: Waivers\nwaivers: [{waiver}]\n")
    report = validate([tmp_path], waivers=tmp_path / "waivers.yaml")
    assert [finding.requirement for finding in report.findings if "CKP" in finding.requirement] == []
    assert [one.finding.requirement for one in report.suppressed] == ["TS-CKP-070"]


@pytest.mark.parametrize("end", ["bin", "h5", "msgpack", "safetensors"])
def test_a_missing_shard_of_any_format_is_reported(tmp_path: Path, end: str) -> None:
    shard = "model-0000{}-of-00002." + end
    weights = json.dumps({"weight_map": {"a": shard.format(1), "b": shard.format(2)}})
    build(tmp_path, "trainer_state.json  json {}\n" + f"model.{end}.index.json  json {weights}\n")
    build(tmp_path, f"{shard.format(1)}  {'safetensors' if end == 'safetensors' else 'torch'} a=F32[4]\n")
    found = {(one.aspect, one.path) for one in read_checkpoint(tmp_path).troubles}
    assert {("files", shard.format(2)), ("shards", "")} <= found


LOG = 'trainer_state.json  json {"global_step": 5, "log_history": []}'


def test_a_model_for_use_needs_no_state_to_resume_from(tmp_path: Path) -> None:
    build(tmp_path, f"out/model.safetensors  {ONE}\nout/config.json  json {{}}\nout/{LOG}\n")
    build(tmp_path, "out/trainspec-manifest.json  sealed\n")
    assert requirements(tmp_path) == set()
    outcome = {one.requirement: one for one in validate([tmp_path]).outcomes}["TS-CKP-087"]
    assert outcome.verdict is Verdict.NOT_APPLICABLE


def test_some_state_to_resume_from_asks_for_the_rest_and_is_named(tmp_path: Path) -> None:
    build(tmp_path, f"last/model.safetensors  {ONE}\nlast/scheduler.pt  torch s=F32[1]\nlast/{LOG}\n")
    build(tmp_path, "last/trainspec-manifest.json  sealed\n")
    found = [one for one in validate([tmp_path]).findings if one.requirement == "TS-CKP-087"]
    assert [one.message.split("; ") for one in found] == [
        [
            "no state of the optimizer is there: optimizer.pt is missing",
            "no state of random numbers is there: rng_state.pth or rng_state_0.pth is missing",
            "scheduler.pt makes the directory one to resume from",
        ]
    ]


def test_the_log_of_a_trainer_alone_makes_no_checkpoint(tmp_path: Path) -> None:
    build(tmp_path, f"viewer/{LOG}\nviewer/index.html  text x\n")
    assert find(tmp_path) == []
    build(tmp_path, f"checkpoint-5/{LOG}\n")
    assert [group.members for group in find(tmp_path)] == [[tmp_path / "checkpoint-5"]]
    assert {name for name, _ in requirements(tmp_path)} >= {"TS-CKP-087"}


@pytest.mark.parametrize(
    ("name", "is_plain"),
    [
        ("transformers.training_args_seq2seq.Seq2SeqTrainingArguments", True),
        ("transformers.integrations.deepspeed.HfTrainerDeepSpeedConfig", True),
        ("olmo_core.distributed.checkpoint.filesystem._StorageInfo", True),
        ("trl.trainer.sft_config.SFTConfig", True),
        ("trl.experimental.ppo.ppo_config.PPOConfig", True),
        ("trl.trainer.sft_config.SFTTrainer", False),
        ("trl.trainer.other_config.SFTConfig", False),
        ("transformers.training_args_seq2seq.dataclass", False),
        ("trl.trainer.utils.pad", False),
    ],
)
def test_settings_of_known_trainers_are_plain_and_other_names_are_code(
    tmp_path: Path, name: str, *, is_plain: bool
) -> None:
    build(tmp_path, f"out/model.safetensors  {ONE}\nout/training_args.bin  torch call={name}\n")
    found = {requirement for requirement, _ in requirements(tmp_path)}
    assert ("TS-SEC-001" in found) is not is_plain
