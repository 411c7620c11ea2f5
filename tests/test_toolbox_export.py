"""`trainspec export`: what it prints and writes, what it refuses, and its exit codes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.commands.stream_export import TARGETS
from trainspec_validate.cli.toolbox import PROGRAM, command
from trainspec_validate.interop.document import formats

ROOT = Path(__file__).resolve().parents[1]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["export", *arguments], prog_name=PROGRAM)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starter documents of two nodes, which validate together and have everything that exporters read."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(command, ["init"], prog_name=PROGRAM).exit_code == 0


def edit(file: str, old: str, new: str) -> None:
    text = Path(file).read_text(encoding="utf-8")
    assert old in text
    Path(file).write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_list_names_every_format_with_its_version() -> None:
    lines = invoke("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*formats(), *TARGETS]
    assert all(any(letter.isdigit() for letter in line) for line in lines)


REFUSING = {"tf-config": "data ranks only", "accelerate": "FSDP shards"}
"""Programs that the starter plan, of tensor ranks that share the optimizer, is not for."""


@pytest.mark.parametrize("name", formats())
def test_each_format_goes_to_standard_output(name: str) -> None:
    result = invoke("plan.yaml", "--to", name, "--cluster", "cluster.yaml")
    if name in REFUSING and result.exit_code == 2:
        assert REFUSING[name] in result.stderr
        return
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout) > 100
    assert all(line.startswith(f"note: {name}: ") for line in result.stderr.splitlines())


def test_the_policy_is_heard() -> None:
    without = invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml").stdout
    with_policy = invoke(
        "plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--policy", "checkpoint.yaml"
    ).stdout
    assert "max_restarts=" in with_policy
    assert "max_restarts=" not in without


def test_all_formats_go_into_a_directory() -> None:
    result = invoke("plan.yaml", "--to", "all", "--cluster", "cluster.yaml", "--output", "launch/here")
    assert result.exit_code == 0, result.stderr
    written = sorted(path.as_posix() for path in Path("launch/here").iterdir())
    assert sorted(result.stdout.split()) == written
    assert len(written) >= len(formats()) - 1
    json.loads(Path("launch/here/ds_config.json").read_text(encoding="utf-8"))


def test_one_format_goes_into_a_file_or_a_directory() -> None:
    arguments = ("plan.yaml", "--to", "deepspeed", "--cluster", "cluster.yaml", "--output")
    assert invoke(*arguments, "mine.json").stdout == "mine.json\n"
    assert invoke(*arguments, "new/").stdout == "new/ds_config.json\n"
    Path("there").mkdir()
    assert invoke(*arguments, "there").stdout == "there/ds_config.json\n"


def test_files_are_not_overwritten_unasked() -> None:
    arguments = ("plan.yaml", "--to", "deepspeed", "--cluster", "cluster.yaml", "--output", "mine.json")
    Path("mine.json").write_text("mine", encoding="utf-8")
    refused = invoke(*arguments)
    assert (refused.exit_code, Path("mine.json").read_text(encoding="utf-8")) == (2, "mine")
    assert "mine.json: already there; --force overwrites" in refused.stderr
    assert invoke(*arguments, "--force").exit_code == 0
    assert Path("mine.json").read_text(encoding="utf-8").startswith("{")


def test_a_target_that_cannot_be_written() -> None:
    Path("file").write_text("", encoding="utf-8")
    result = invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--output", "file/below")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_documents_with_errors_are_refused_with_the_way_to_see_them() -> None:
    edit("plan.yaml", "  tensor: ", "  tensor: 3 # ")
    result = invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "see: trainspec-validate plan.yaml cluster.yaml, or continue with --force" in result.stderr
    forced = invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--force")
    assert forced.exit_code == 0
    assert "#SBATCH" in forced.stdout
    assert "note: " in forced.stderr
    assert re.search(r"\b[1-9]\d* errors? in the documents", forced.stderr)


def test_a_cluster_with_errors_ends_export_as_it_ends_plan() -> None:
    edit("cluster.yaml", "num_accelerators: ", "num_accelerators: 1 # ")
    planned = CliRunner().invoke(command, ["plan", "cluster.yaml", "--model", "llama3-8b"], prog_name=PROGRAM)
    exported = invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml")
    assert (planned.exit_code, exported.exit_code) == (2, 2)
    assert all(result.stderr.endswith("or continue with --force\n") for result in (planned, exported))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere.yaml", "--to", "slurm"), "nowhere.yaml"),
        (("cluster.yaml", "--to", "slurm"), "cluster.yaml: a TrainingPlan is wanted, this is a ClusterProfile"),
        (
            ("plan.yaml", "--to", "slurm", "--cluster", "plan.yaml"),
            "a ClusterProfile is wanted, this is a TrainingPlan",
        ),
        (
            ("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--policy", "cluster.yaml"),
            "a CheckpointPolicy is wanted, this is a ClusterProfile",
        ),
        (("plan.yaml", "--to", "slrum"), "did you mean 'slurm'?"),
        (("plan.yaml", "--to", "all"), "--output"),
        (("plan.yaml",), "--to"),
        (("--to", "slurm"), "name a plan"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], told: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_the_cluster_is_found_by_its_name_or_asked_for() -> None:
    named = invoke("plan.yaml", "--to", "slurm")
    assert named.stdout == invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml").stdout != ""
    Path("cluster.yaml").unlink()
    result = invoke("plan.yaml", "--to", "slurm")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--cluster" in result.stderr


@pytest.mark.parametrize(
    "old_and_new", [("batch:", "bacth:"), ("metadata:", "metadata: ["), ("TrainingPlan", "TrainPlan")]
)
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_documents_that_cannot_be_read_are_refused_even_by_force(
    old_and_new: tuple[str, str], force: list[str]
) -> None:
    edit("plan.yaml", *old_and_new)
    result = invoke("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", *force)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "plan.yaml: this is no TrainingPlan that can be read; see: trainspec-validate plan.yaml" in result.stderr


def test_a_referenced_cluster_is_followed() -> None:
    edit("plan.yaml", "cluster: {name: ", "cluster: {file: cluster.yaml, name: ")
    assert invoke("plan.yaml", "--to", "slurm").exit_code == 0


def test_another_cluster_than_the_plan_names_is_refused() -> None:
    edit("plan.yaml", "cluster: {name: ", "cluster: {file: cluster.yaml, name: ")
    shutil.copy("cluster.yaml", "other.yaml")
    edit("other.yaml", "  name: ", "  name: other-")
    result = invoke("plan.yaml", "--to", "slurm", "--cluster", "other.yaml")
    assert result.exit_code == 2
    assert "the plan is for the cluster in cluster.yaml" in result.stderr


def test_a_reference_that_is_not_followed_says_why() -> None:
    result = invoke(str(ROOT / "examples" / "plans" / "maxtext-gpt3-v5p.yaml"), "--to", "slurm")
    assert result.exit_code == 2
    assert "leads out of the tree" in result.stderr


def test_a_program_that_cannot_run_the_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    plan = "examples/plans/maxtext-gpt3-v5p.yaml"
    one = invoke(plan, "--to", "slurm")
    assert (one.exit_code, one.stdout) == (2, "")
    assert "slurm: this is for GPUs of nvidia and amd" in one.stderr
    every = invoke(plan, "--to", "all", "--output", str(tmp_path / "launch"))
    assert every.exit_code == 0
    assert [path.name for path in (tmp_path / "launch").iterdir()] == ["maxtext.yml"]
    assert every.stderr.count("not written: ") == len(formats()) - 1


def test_all_tells_which_formats_were_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    plan = "examples/plans/llama3-405b-16384.yaml"
    result = invoke(plan, "--to", "all", "--output", str(tmp_path / "launch"))
    assert result.exit_code == 0, result.stderr
    assert "note: tf-config: not written: " in result.stderr
    assert {path.name for path in (tmp_path / "launch").iterdir()} >= {"job.sbatch", "jobset.yaml"}
    assert "note: deepspeed: not written: DeepSpeed's pipeline engine runs 1F1B" in result.stderr
    assert not (tmp_path / "launch" / "tf_config.py").exists()


def test_a_referenced_cluster_that_cannot_be_read_is_named() -> None:
    edit("plan.yaml", "cluster: {name: ", "cluster: {file: cluster.yaml, name: ")
    edit("cluster.yaml", "node_groups:", "node_gruops:")
    result = invoke("plan.yaml", "--to", "slurm")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "plan.yaml: its cluster in cluster.yaml cannot be read; see: trainspec-validate plan.yaml" in result.stderr


def test_a_link_that_leads_nowhere_is_not_followed_unasked() -> None:
    Path("job.sh").symlink_to("elsewhere.sh")
    arguments = ("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--output", "job.sh")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "job.sh: already there" in result.stderr
    assert not Path("elsewhere.sh").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_is_told_with_the_name_of_the_file() -> None:
    arguments = ("plan.yaml", "--to", "slurm", "--cluster", "cluster.yaml", "--output", "/dev/full", "--force")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "/dev/full: cannot be written: no space left on device" in result.stderr
