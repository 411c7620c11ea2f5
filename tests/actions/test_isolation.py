"""Whoever uses an action runs nothing of the repository that is judged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from trainspec_conformance.starting import write_templates

from tests.actions.hostile_workspace import fill, marks_in, set_by, variables
from tests.actions.job_run import ROOT, Job, pull_request
from tests.actions.server import serve
from tests.actions.wheels import copy_action
from trainspec_validate._version import __version__

BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
ACTIONS = {"validator": "action.yml", "suite": "conformance/action.yml"}
VARIABLES = sorted(variables(Path("/nowhere")))
SETTINGS = ["everything", *(pytest.param(name, marks=pytest.mark.long) for name in VARIABLES)]
"""One at a time in the long form."""
pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")


def hostile_job(folder: Path, action: str, source: Path = ROOT, **inputs: str) -> Job:
    """A job of a pull request whose workspace is hostile, to a branch without settings."""
    named = {name.replace("_", "-"): value for name, value in inputs.items()}
    job = Job(folder, source / ACTIONS[action], named, event="pull_request", payload=pull_request())
    fill(job.workspace, folder / "marks")
    (job.workspace / "cluster.yaml").write_text(BAD, encoding="utf-8")
    serve(job.server, main={"cluster.yaml": BAD})
    return job


@pytest.mark.long
@pytest.mark.parametrize(("action", "name"), [*(("validator", name) for name in VARIABLES), ("suite", "module-path")])
def test_an_installation_runs_nothing_of_the_workspace(action: str, name: str, tmp_path: Path) -> None:
    job = hostile_job(tmp_path, action)
    job.variables = {"PIP_NO_INDEX": "1", **variables(job.workspace)[name]}
    assert job.run("Install") != 0, "there is no index, so that pip ends at the first package"
    assert marks_in(tmp_path / "marks") == []
    assert "No matching distribution" in job.log


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_of_the_validator_runs_nothing_of_the_workspace(name: str, tmp_path: Path) -> None:
    job = hostile_job(tmp_path, "validator", paths="cluster.yaml")
    job.variables = set_by(name, job.workspace)
    job.install_this()
    assert job.run("Settings", "Validate", "Verdict") == 1, job.log
    assert marks_in(tmp_path / "marks") == []
    assert "cluster.yaml:21:35: error[TS-CLU-010]" in job.log


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_of_the_suite_runs_the_stack_alone(name: str, tmp_path: Path) -> None:
    job = hostile_job(tmp_path, "suite", stack="mine/stack.yaml", scenarios="null-run", args="--trials=1\n--dry-run")
    write_templates(job.workspace / "mine")
    job.variables = set_by(name, job.workspace)
    job.install_this()
    assert job.run("Settings", "Run", "Verdict") == 0, job.log
    assert marks_in(tmp_path / "marks") == []
    assert "null-run: 1 trial" in job.log


def test_plans_outside_of_the_named_paths_are_judged_with_their_cluster(tmp_path: Path) -> None:
    job = Job(tmp_path, inputs={"paths": "clusters"})
    job.install_this()
    base = ROOT / "spec" / "v1" / "base"
    for name, folder in (("cluster.yaml", "clusters"), ("plan.yaml", "plans")):
        (job.workspace / folder).mkdir()
        text = (base / name).read_text(encoding="utf-8").replace("num_accelerators: 128", "num_accelerators: 256")
        (job.workspace / folder / name).write_text(text, encoding="utf-8")
    (job.temp / "trainspec" / "arguments.json").write_text("[]", encoding="utf-8")
    assert job.validate_here() == 1, job.log
    assert "plans/plan.yaml:22:21: error[TS-PAR-002]" in job.log


@pytest.mark.slow
def test_no_name_of_a_file_sets_what_later_steps_read(tmp_path: Path) -> None:
    """Names that look like lines of the files in which a runner takes variables, paths and outputs of a step."""
    plain = ["cluster.yaml"]
    named = [
        "BASH_ENV=startup.sh.trainspec.yaml",
        "a\nPYTHONPATH=.\n.yaml",
        "a\nsarif=evil\n.yaml",
        "b<<END\nx\nEND\n.yaml",
    ]
    outputs = []
    for number, names in enumerate((plain, [*plain, *named])):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = hostile_job(folder, "validator", paths=".")
        for name in names:
            (job.workspace / name).write_text(BAD, encoding="utf-8")
        job.install_this()
        assert job.run("Settings", "Validate", "Verdict") == 1, job.log
        assert not (folder / "environment-of-later-steps").exists()
        assert not (folder / "path-of-later-steps").exists()
        assert marks_in(folder / "marks") == []
        assert job.log.count("error[TS-CLU-010]") == len(names)
        outputs.append({name: Path(value).name for name, value in job.outputs.items()})
    assert outputs[0] == outputs[1]


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the actions that can be installed without a network, and its wheels."""
    folder = tmp_path_factory.mktemp("offline")
    copy_action(folder)
    return folder


@pytest.mark.slow
def test_the_validator_is_installed_and_run_from_outside_of_the_workspace(offline: Path, tmp_path: Path) -> None:
    job = hostile_job(tmp_path, "validator", offline / "action", paths="cluster.yaml")
    job.variables = set_by("everything", job.workspace) | {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(offline / "wheels"),
    }
    before = sorted(job.workspace.rglob("*"))
    assert job.run() == 1, job.log
    assert job.codes == {"Install": 0, "Settings": 0, "Validate": 0, "Verdict": 1}
    assert marks_in(tmp_path / "marks") == []
    assert sorted(job.workspace.rglob("*")) == before
    sarif = Path(job.outputs["steps.validate.outputs.sarif"])
    assert sarif.is_relative_to(job.temp)
    [run] = json.loads(sarif.read_text(encoding="utf-8"))["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("TS-CLU-010", "error")]


@pytest.mark.slow
def test_the_suite_is_installed_and_run_from_outside_of_the_workspace(offline: Path, tmp_path: Path) -> None:
    job = hostile_job(
        tmp_path, "suite", offline / "action", stack="mine/stack.yaml", scenarios="null-run", args="--trials=1"
    )
    write_templates(job.workspace / "mine")
    job.variables = set_by("everything", job.workspace) | {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(offline / "wheels"),
    }
    assert job.run() == 0, job.log
    assert job.codes == {"Install": 0, "Settings": 0, "Run": 0, "Verdict": 0}
    assert marks_in(tmp_path / "marks") == []
    assert job.outputs["steps.run.outputs.sarif"] == str(job.workspace / "conformance-report" / "report.sarif")


@pytest.mark.long
def test_a_release_is_installed_on_top_of_the_lock(offline: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "release"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(wheels), str(offline / "action")], check=True)
    job = hostile_job(tmp_path, "validator", offline / "action", version=__version__, paths="cluster.yaml")
    job.variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{offline / 'wheels'} {wheels}"}
    assert job.run() == 1, job.log
    assert job.codes == {"Install": 0, "Settings": 0, "Validate": 0, "Verdict": 1}
    assert not list(job.temp.glob("trainspec/environment/lib/*/site-packages/hatchling")), "a wheel needs no build"


@pytest.mark.long
def test_a_package_that_differs_from_the_lock_is_refused(offline: Path, tmp_path: Path) -> None:
    shutil.copytree(offline / "wheels", tmp_path / "wheels")
    [wheel] = (tmp_path / "wheels").glob("click-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("click/added.py", "")
    job = hostile_job(tmp_path, "validator", offline / "action", paths="cluster.yaml")
    job.variables = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    assert job.run() == 2
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in job.log
    assert job.codes == {"Install": 2, "Verdict": 2}
