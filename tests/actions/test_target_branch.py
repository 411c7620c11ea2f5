"""A change request is judged by the settings of its target branch, in the actions and by the lines of the guide."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainspec_conformance.starting import write_templates

from tests.actions.http_server import BACKEND, private_server
from tests.actions.job_run import REPOSITORY, ROOT, Job, environment, pull_request
from tests.actions.server import change, git, serve

BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
GOOD = BAD.replace("900e9", "450e9")
NEVER = 'fail-on = "never"\n'
WAIVER = """apiVersion: trainspec/v1
kind: Waivers
waivers:
  - {{requirement: {requirement}, file: "{file}", reason: known, owner: me, expires: "{expires}"}}
"""
WAIVERS = WAIVER.format(requirement="TS-CLU-010", file="sub/*.yaml", expires="2099-12-31")
PLACE = "/node_groups/0/scale_up/bandwidth_bytes_per_second"
BASELINE = f"""{{"format_version": "1", "findings": [
  {{"file": "sub/cluster.yaml", "requirement": "TS-CLU-010", "pointer": "{PLACE}", "count": 1}},
  {{"file": "gone.yaml", "requirement": "TS-CLU-010", "pointer": "", "count": 1}}
]}}
"""
FOUND = "sub/cluster.yaml:21:35: error[TS-CLU-010]"
Files = Mapping[str, str | None]
pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="needs git")


def requested(folder: Path, main: Files, request: Files, **inputs: str) -> Job:
    """A job of a pull request that changes files of the branch main."""
    named = {name.replace("_", "-"): value for name, value in inputs.items()}
    job = Job(folder, inputs={"paths": "sub"} | named, event="pull_request", payload=pull_request())
    repository = serve(
        job.server, main={"sub/cluster.yaml": GOOD, **main}, request={"sub/cluster.yaml": BAD, **request}
    )
    git(folder, "clone", "--quiet", "--depth=1", "--branch=request", repository.as_uri(), str(job.workspace))
    job.install_this()
    return job


def judge(job: Job) -> int:
    """Run the steps; the validator runs in this process, and as its own in the tests of isolation."""
    if job.run("Settings") == 0:
        job.validate_here()
    return job.run("Verdict")


def judge_in_processes(job: Job) -> int:
    """Run the steps as the action does."""
    return job.run("Settings", "Validate", "Verdict")


# --- settings and what they name ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_files",
    [
        {"trainspec.toml": NEVER},
        {"pyproject.toml": f"[tool.trainspec]\n{NEVER}"},
        {"trainspec.toml": 'ignore = ["TS-CLU-010"]\n'},
        {"trainspec.toml": 'waivers = "waivers.yaml"\n', "waivers.yaml": WAIVERS},
        {"trainspec.toml": 'baseline = "sub/base.json"\n', "sub/base.json": BASELINE.replace("sub/", "")},
    ],
)
@pytest.mark.parametrize("main", [{}, {"trainspec.toml": 'fail-on = "error"\n'}, {"pyproject.toml": "[project]\n"}])
def test_a_change_request_grants_itself_no_pass(main: Files, request_files: Files, tmp_path: Path) -> None:
    job = requested(tmp_path, main, request_files)
    assert judge(job) == 1, job.log
    assert FOUND in job.log
    both = "trainspec.toml" in main and "pyproject.toml" in request_files
    assert ("holds settings too" if both else "differs between the working directory and") in job.log


IGNORED = BAD.replace("900e9", "900e9  # trainspec: ignore[TS-CLU-010] measured so")


@pytest.mark.parametrize(("main", "code"), [(GOOD, 1), (BAD, 1), (IGNORED, 0)])
def test_comments_count_that_the_target_branch_has(main: str, code: int, tmp_path: Path) -> None:
    job = requested(tmp_path, {"sub/cluster.yaml": main}, {"sub/cluster.yaml": f"{IGNORED}# changed\n"})
    assert judge(job) == code, job.log
    assert ("is new against" in job.log) is bool(code)
    assert ("1 suppressed (1 inline)" in job.log) is not code


def test_hostile_names_and_links_hinder_no_copy(tmp_path: Path) -> None:
    job = requested(tmp_path, {"sub/cluster.yaml": IGNORED}, {"sub/cluster.yaml": f"{IGNORED}# changed\n"})
    names = (b"\xff.yaml", b"a\nb.yaml", b"-x.yaml", b"a:b.yaml", b" .yaml", b"long" * 60 + b".yaml")
    for number, name in enumerate(names):  # documents of one name depend on each other, and the action judges those
        other = IGNORED.replace("name: duplex", f"name: other-{number}")
        (job.workspace / os.fsdecode(name)).write_text(other, encoding="utf-8")
    (job.workspace / "link.yaml").symlink_to("/dev/zero")
    os.mkfifo(job.workspace / "pipe.yaml")
    assert judge_in_processes(job) == 0, job.log
    assert not {"link.yaml", "pipe.yaml"} & {path.name for path in (job.temp / "trainspec" / "target").rglob("*")}


KNOWN: list[dict[str, str]] = [
    {"trainspec.toml": NEVER},
    {"pyproject.toml": f"[tool.trainspec]\n{NEVER}"},
    {"trainspec.toml": 'waivers = "waivers.yaml"\n', "waivers.yaml": WAIVERS},
    {"trainspec.toml": 'waivers = "sub/w.yaml"\n', "sub/w.yaml": WAIVERS.replace("sub/", "")},
    {"trainspec.toml": 'baseline = "base.json"\n', "base.json": BASELINE},
    {"pyproject.toml": '[tool.trainspec]\nbaseline = "base.json"\n', "base.json": BASELINE},
]


@pytest.mark.parametrize("main", KNOWN)
@pytest.mark.parametrize("removed", [False, True])
def test_settings_of_the_target_branch_count(main: dict[str, str], removed: bool, tmp_path: Path) -> None:
    job = requested(tmp_path, main, dict.fromkeys(main) if removed else {})
    job.inputs["fail-on"] = ""
    assert judge(job) == 0, job.log
    assert ("differs between the working directory and" in job.log) is removed
    assert ", ".join(repr(name) for name in main) in job.log
    assert git(job.server / REPOSITORY, "rev-parse", "main") in job.log


def test_a_link_to_settings_is_followed_in_the_target_branch(tmp_path: Path) -> None:
    job = requested(tmp_path, {"trainspec.toml": 'waivers = "link.yaml"\n', "waivers.yaml": WAIVERS}, {})
    repository = job.server / REPOSITORY
    git(repository, "checkout", "--quiet", "main")
    (repository / "link.yaml").symlink_to("waivers.yaml")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=link")
    assert judge(job) == 0, job.log


@pytest.mark.slow
@pytest.mark.parametrize(
    "waivers",
    [
        WAIVER.format(requirement="TS-CLU-010", file="gone.yaml", expires="2099-12-31"),
        WAIVER.format(requirement="TS-CLU-010", file="sub/cluster.yaml", expires="2020-12-31"),
        WAIVER.format(requirement="TS-CLU-010", file="sub/cluster.yaml", expires="2099-12-31"),
        WAIVER.format(requirement="TS-XXX-999", file="sub/cluster.yaml", expires="2099-12-31"),
    ],
)
def test_a_waiver_that_only_the_target_branch_can_correct_is_no_finding(waivers: str, tmp_path: Path) -> None:
    main = {"trainspec.toml": 'waivers = "w.yaml"\nfail-on = "note"\n', "w.yaml": waivers}
    clean = {"sub/cluster.yaml": GOOD + "# changed\n"}
    ignore = "--ignore=TS-CLU-037"
    job = requested(tmp_path, main, clean, args=ignore)
    assert judge(job) == 0, job.log
    pushed = requested(tmp_path / "on-push", main, clean, args=ignore)
    pushed.event, pushed.payload = "push", {"ref": "refs/heads/request"}
    assert judge(pushed) == 1, "on the branch itself it is one"
    assert "w.yaml:4:" in pushed.log


# --- which branch it is -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("pull_request", pull_request()),
        ("pull_request_target", pull_request()),
        ("pull_request_review", pull_request()),
        ("merge_group", {"merge_group": {"base_ref": "refs/heads/main", "base_sha": "0" * 40}}),
        ("issue_comment", {"issue": {"pull_request": {}}, "repository": {"default_branch": "main"}}),
        ("workflow_run", {"workflow_run": {"pull_requests": []}, "repository": {"default_branch": "main"}}),
    ],
)
def test_events_of_change_requests(event: str, payload: dict[str, Any], tmp_path: Path) -> None:
    job = requested(tmp_path, {}, {"trainspec.toml": NEVER})
    job.event, job.payload = event, payload
    assert judge(job) == 1, job.log
    assert "settings: those of branch main at" in job.log


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch"])
def test_other_events_are_judged_by_the_settings_of_the_checkout(event: str, tmp_path: Path) -> None:
    job = requested(tmp_path, {}, {"trainspec.toml": NEVER})
    job.event, job.payload = event, {"ref": "refs/heads/request", "repository": {"default_branch": "main"}}
    shutil.rmtree(job.server)
    assert judge(job) == 0, job.log
    assert "settings: those of the checkout" in job.log
    assert FOUND in job.log


def test_the_branch_can_be_named(tmp_path: Path) -> None:
    job = requested(tmp_path, {"trainspec.toml": NEVER}, {"trainspec.toml": None}, settings_branch="main")
    job.event, job.payload = "workflow_dispatch", {}
    assert judge(job) == 0, job.log
    assert "settings: those of branch main at" in job.log


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({}, "names no target branch"),
        ({"pull_request": {"base": {}}}, "cannot be read"),
        ({"pull_request": 7}, "cannot be read"),
        (pull_request("gone"), "git fetch of branch gone failed"),
    ],
)
def test_without_a_target_branch_nothing_passes(payload: dict[str, Any], words: str, tmp_path: Path) -> None:
    job = requested(tmp_path, {}, {"trainspec.toml": NEVER})
    job.payload = payload
    assert judge(job) == 2
    assert job.codes == {"Settings": 2, "Verdict": 2}
    assert f"::error title=TrainSpec::{words}" in job.log or words in job.log


def test_without_git_nothing_passes(tmp_path: Path) -> None:
    job = requested(tmp_path, {}, {"trainspec.toml": NEVER})
    job.variables["PATH"] = str(tmp_path)
    assert judge(job) == 2
    assert "git, which fetches the settings of the target branch, is not installed" in job.log


# --- files that the workflow names --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--baseline={}", "--baseline\n{}", "--baseline={workspace}/{}"])
def test_files_in_arguments_are_those_of_the_target_branch(form: str, tmp_path: Path) -> None:
    args = form.format("base.json", workspace=tmp_path / "workspace")
    job = requested(tmp_path, {"base.json": BASELINE}, {"base.json": BASELINE.replace("010", "011")}, args=args)
    assert judge(job) == 0, job.log
    assert "base.json differs between" in job.log
    job = requested(tmp_path / "new", {}, {"base.json": BASELINE}, args=args.replace("workspace", "new/workspace"))
    assert judge(job) == 1, job.log
    assert "branch main has no such file" in job.log


def test_settings_that_arguments_name_are_those_of_the_target_branch(tmp_path: Path) -> None:
    main = {"ci/gate.toml": 'waivers = "w.yaml"\n', "ci/w.yaml": WAIVERS.replace("sub/", "../sub/")}
    job = requested(tmp_path, main, {"ci/gate.toml": NEVER, "ci/w.yaml": None}, args="--config=ci/gate.toml")
    assert judge(job) == 0, job.log
    assert "1 suppressed (1 waiver)" in job.log
    assert "ci/gate.toml differs between" in job.log
    assert "ci/w.yaml differs between" in job.log


def test_a_file_outside_of_the_workspace_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "base.json").write_text(BASELINE.replace("sub/", "../workspace/sub/"), encoding="utf-8")
    job = requested(tmp_path, {}, {}, args=f"--baseline={tmp_path / 'elsewhere' / 'base.json'}")
    assert judge(job) == 0, job.log


def test_rules_in_python_are_those_of_the_target_branch(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hostile = f"open({str(mark)!r}, 'w').close()\n"
    job = requested(tmp_path, {}, {"rules.py": hostile}, args="--rules=rules.py")
    assert judge_in_processes(job) == 1, job.log
    assert not mark.exists()
    assert "--rules 'rules.py' is not used" in job.log
    trusted = "raise ValueError('of the target branch')\n"
    job = requested(tmp_path / "changed", {"rules.py": trusted}, {"rules.py": hostile}, args="--rules=rules.py")
    assert judge_in_processes(job) == 2, job.log
    assert not mark.exists()
    assert "of the target branch" in job.log


@pytest.mark.slow
def test_declared_gaps_are_those_of_the_target_branch(tmp_path: Path) -> None:
    gaps = WAIVER.format(requirement="grace-signal", file="mine/stack.yaml", expires="2099-12-31")
    idle = WAIVER.format(requirement="null-run", file="mine/stack.yaml", expires="2099-12-31")
    inputs = {"stack": "mine/stack.yaml", "scenarios": "null-run\ngrace-signal", "gaps": "gaps.yaml"}
    codes = []
    for number, main in enumerate([{}, {"gaps.yaml": gaps}, {"gaps.yaml": gaps + idle.splitlines()[-1] + "\n"}]):
        (tmp_path / str(number)).mkdir()
        job = requested(tmp_path / str(number), main, {"gaps.yaml": gaps, "other": "x"}, args="--trials=1", **inputs)
        job.action = ROOT / "conformance" / "action.yml"
        write_templates(job.workspace / "mine")
        codes.append(job.run("Settings", "Run", "Verdict"))
    assert codes == [1, 0, 0], job.log


# --- the server ---------------------------------------------------------------------------------------------


def test_the_token_reaches_the_server_and_nothing_else(tmp_path: Path) -> None:
    job = requested(tmp_path, {}, {"trainspec.toml": NEVER})
    (tmp_path / "programs").mkdir()
    fake = tmp_path / "programs" / "git"
    fake.write_text(f'#!/bin/sh\nenv >> {tmp_path}/seen\necho "$@" >> {tmp_path}/arguments\n', encoding="utf-8")
    fake.chmod(0o755)
    job.variables = {"PATH": f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}", "SECRET": "of-the-job"}
    job.variables["GIT_DIR"] = "of-the-job"
    job.server_url = "https://code.example"
    judge(job)
    seen = (tmp_path / "seen").read_text(encoding="utf-8")
    assert "GIT_CONFIG_VALUE_1=AUTHORIZATION: basic eC1hY2Nlc3MtdG9rZW46dG9rZW4tb2YtdGhlLWpvYg==" in seen
    assert "of-the-job" not in seen
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8")
    assert "https://code.example/owner/models" in arguments
    assert "basic" not in arguments


@pytest.mark.skipif(not BACKEND.is_file(), reason="needs git-http-backend")
@pytest.mark.parametrize("token", ["right", "wrong", ""])
@pytest.mark.parametrize("can_filter", [False, True])
def test_a_private_repository_is_read_with_the_token(can_filter: bool, token: str, tmp_path: Path) -> None:
    settings = {"trainspec.toml": 'waivers = "w.yaml"\n', "w.yaml": WAIVERS}
    job = requested(tmp_path, settings | {"large.bin": "x" * 10_000}, {"trainspec.toml": None}, token=token)
    git(job.server / REPOSITORY, "config", "uploadpack.allowFilter", str(can_filter).lower())
    right = "basic " + base64.b64encode(b"x-access-token:right").decode()
    with private_server(job.server, right) as job.server_url:
        assert judge(job) == (0 if token == "right" else 2), job.log
    if token == "right":
        stored = git(job.temp / "trainspec" / "target.git", "cat-file", "--batch-all-objects", "--batch-check")
        assert (" blob 10000" in stored) is not can_filter, "what is not named is not fetched"
    else:
        assert "git fetch of branch main failed" in job.log


# --- elsewhere ----------------------------------------------------------------------------------------------

GUIDE = (ROOT / "spec" / "guide" / "ci.md").read_text(encoding="utf-8")


def excerpt(name: str) -> str:
    [found] = re.findall(rf'^```\w+ title="{re.escape(name)}"\n(.*?)^```$', GUIDE, re.MULTILINE | re.DOTALL)
    return str(found)


def shell_lines(name: str) -> list[str]:
    """What a page says to run, but for the installation."""
    text = excerpt(name)
    lines = yaml.safe_load(text)["trainspec"]["script"] if name.endswith(".yml") else text.splitlines()
    assert len(lines) <= 3
    return [line for line in lines if not line.startswith("pip ")]


@pytest.mark.parametrize("name", ["merge-requests.yml", "judge-a-change.sh"])
@pytest.mark.parametrize(
    ("main", "request_files", "code"),
    [
        ({}, {"trainspec.toml": NEVER}, 1),
        ({"trainspec.toml": NEVER}, {"trainspec.toml": None}, 0),
        ({"trainspec.toml": 'waivers = "w.yaml"\n', "w.yaml": WAIVERS}, {"w.yaml": None}, 0),
    ],
)
def test_the_lines_of_the_guide(name: str, main: Files, request_files: Files, code: int, tmp_path: Path) -> None:
    files = {"sub/cluster.yaml": GOOD, **main}
    repository = serve(tmp_path / "server", main=files, request={"sub/cluster.yaml": BAD, **request_files})
    git(tmp_path, "clone", "--quiet", "--branch=request", str(repository), "checkout")
    for module in ("json.py", "click.py", "trainspec_validate.py"):
        change(tmp_path / "checkout", {module: "raise SystemExit('was run')\n"})
    variables = environment(TARGET="main", PYTHONPATH=".", TMPDIR=str(tmp_path))
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    line = "\n".join(["set -e", *shell_lines(name)])
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path / "checkout", env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert ("error[TS-CLU-010]" in done.stdout) is ("waivers" not in str(main))
    assert "differs between the working directory and" in done.stderr
