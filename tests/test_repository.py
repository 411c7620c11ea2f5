"""The files around the code: licence, changelog, locks, Makefile, hook, action, workflow; and size limits."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import own_distributions
import pytest
import target
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from steps import VALIDATOR

from tests.actions.job_run import Job
from tests.every import every
from trainspec_validate.cli import settings_file
from trainspec_validate.cli.validate import command

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ("run", "dev", "build", "docs", "dist", "conformance")
FOLDERS = ("src", "record", "reference", "conformance", "integrations")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 40
LOOPS = {"fold"}
"""The compiled loops over values."""
TARGETS = [
    *("help", "setup", "demo", "test", "test-slow", "test-long", "lint", "format", "generate", "check-generated"),
    *(
        "promtool",
        "stacks-test",
        "mcp-test",
        "bench",
        "bench-streams",
        "gpu-setup",
        "gpu-check",
        "evidence",
        "bench-short",
        "conformance",
        "conformance-short",
        "site",
        "site-test",
        "dist",
        "lock",
        "clean",
    ),
]


ACTIONS = ["action.yml", "conformance/action.yml"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def document(name: str) -> Any:
    return yaml.safe_load(text(name))


# --- licence, changelog -------------------------------------------------------------------------------------


def test_licence_is_apache() -> None:
    licence = text("LICENSE")
    assert "Apache License" in licence.splitlines()[1]
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert PROJECT["project"]["license"] == "Apache-2.0"


def test_changelog_follows_its_format() -> None:
    lines = text("CHANGELOG.md").splitlines()
    assert lines[0] == "# Changelog"
    sections = [line for line in lines if line.startswith("## ")]
    assert sections[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", line) for line in sections[1:])
    kinds = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_changelog_tells_the_two_versions_apart() -> None:
    bold = re.findall(r"\*\*(.+?)\*\*", text("CHANGELOG.md"))
    assert {"specification version", "tool version"} <= set(bold)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "GOVERNANCE.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_to_files_resolve(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", text(name))
    assert not [link for link in links if not (ROOT / link).exists()]


# --- locks --------------------------------------------------------------------------------------------------


def pins(name: str) -> dict[str, tuple[str, int]]:
    """Package to version and number of hashes."""
    joined = text(f"requirements/{name}.txt").replace("\\\n", " ")
    found: dict[str, tuple[str, int]] = {}
    for line in joined.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            package, version = line.split()[0].split("==")
            found[canonicalize_name(package)] = (version, line.count("--hash=sha256:"))
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_a_hash(name: str) -> None:
    assert pins(name)
    assert not [package for package, (_, hashes) in pins(name).items() if not hashes]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_and_no_path(name: str) -> None:
    lock = text(f"requirements/{name}.txt")
    assert "://" not in lock
    assert not re.search(r"(?:^|[\s=@(])[~/]", lock)
    assert not re.search(r"^-{1,2}(?!hash)\w", lock, flags=re.MULTILINE)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_satisfies_the_project(name: str) -> None:
    wanted = {
        "run": PROJECT["project"]["dependencies"],
        "dev": PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"],
        "build": PROJECT["build-system"]["requires"],
        "conformance": list(map(str, own_distributions.requirements("trainspec-conformance"))),
        "docs": PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["docs"],
        "dist": PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dist"],
    }
    locked = pins(name)
    by_platform = re.search(r"^TORCH := (\S+)$", text("Makefile"), flags=re.MULTILINE)
    assert by_platform
    locked.setdefault("torch", (by_platform[1], 0))  # installed by itself, for each platform has another build
    for requirement in map(Requirement, wanted[name]):
        version, _ = locked[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}, but locked {version}: run make lock"


@pytest.mark.parametrize("name", ["run", "build"])
def test_locks_agree(name: str) -> None:
    assert pins(name).items() <= pins("dev").items()


# --- Makefile, CI -------------------------------------------------------------------------------------------


def test_help_lists_every_target() -> None:
    make = ["make", "--no-print-directory"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in done.stdout.splitlines()] == TARGETS
    assert all(len(line.split()) > 2 for line in done.stdout.splitlines())


def test_ci_runs_the_targets() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    lines = text(".ci/run").splitlines()
    assert "set -euo pipefail" in lines
    made = [line.removeprefix("make ") for line in lines if line.startswith("make")]
    side_by_side = "--jobs 2 --output-sync=target $site_test $promtool conformance-short demo"
    assert made == ["test", "test-slow-short", side_by_side, "bench-short"]


def test_workflow_runs_the_same_script_on_every_supported_python() -> None:
    job = document(".github/workflows/ci.yml")["jobs"]["run"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == supported
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


WORKFLOWS = sorted(path.name for path in (ROOT / ".github" / "workflows").iterdir())


def steps() -> list[dict[str, Any]]:
    jobs = [job for name in WORKFLOWS for job in document(f".github/workflows/{name}")["jobs"].values()]
    workflow = [step for job in jobs for step in job["steps"]]
    return [*(step for name in ACTIONS for step in document(name)["runs"]["steps"]), *workflow]


def test_the_release_installs_what_it_built_on_every_supported_python() -> None:
    jobs = document(".github/workflows/release.yml")["jobs"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    *tried, newest = jobs["install"]["strategy"]["matrix"]["python"]
    assert tried == supported
    assert newest == "3.14"  # installed and started, its tests are not run
    assert [job.get("needs") for job in jobs.values()] == [None, "build", "install", "attest"]
    assert any(step.get("run", "").startswith("make dist") for step in jobs["build"]["steps"])


def test_only_the_jobs_that_sign_can_get_an_identity_and_only_a_tag_is_signed() -> None:
    workflow = document(".github/workflows/release.yml")
    assert workflow["permissions"] == {"contents": "read"}
    allowed = {name: set(job.get("permissions", ())) for name, job in workflow["jobs"].items()}
    assert {name for name, words in allowed.items() if "id-token" in words} == {"attest", "publish"}
    assert workflow["jobs"]["attest"]["if"] == "github.ref_type == 'tag'"
    assert workflow["jobs"]["publish"]["environment"] == "release"
    assert "secrets." not in text(".github/workflows/release.yml")


def test_foreign_actions_are_pinned_by_commit() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert used
    assert not [name for name in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name)]


def test_no_script_contains_an_expression() -> None:
    assert not [step["run"] for step in steps() if "${{" in step.get("run", "")]


# --- hook, action -------------------------------------------------------------------------------------------


def test_hook_structure() -> None:
    (hook,) = document(".pre-commit-hooks.yaml")
    assert hook["id"] == "trainspec-validate"
    assert hook["id"] in PROJECT["project"]["scripts"]
    assert hook["entry"] == "python -I -m trainspec_validate --dependents"
    assert hook["language"] == "python"
    assert hook["types_or"] == ["yaml", "json"]
    assert hook["pass_filenames"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cluster.yaml", True),
        ("runs/a/plan.yml", True),
        ("checkpoint.yaml", True),
        ("a/llama.trainspec.yaml", True),
        ("llama.trainspec.yml", True),
        ("llama.trainspec.json", True),
        ("my-cluster.yaml", False),
        ("cluster.yaml.bak", False),
        ("cluster.json", False),
        ("plan/values.yaml", False),
        ("trainspec.yaml", False),
        ("clusterXyaml", False),
    ],
)
def test_hook_picks_documents_by_name(name: str, expected: bool) -> None:
    (hook,) = document(".pre-commit-hooks.yaml")
    assert bool(re.search(hook["files"], name)) is expected


def test_action_structure() -> None:
    action = document("action.yml")
    assert action["runs"]["using"] == "composite"
    assert list(action["inputs"]) == ["paths", "version", "fail-on", "settings-branch", "sarif", "args", "token"]
    assert action["inputs"]["sarif"]["default"] == "true"
    assert all(entry["description"] for entry in action["inputs"].values())
    used = set(re.findall(r"inputs\.([\w-]+)", text("action.yml")))
    assert used == set(action["inputs"])


@pytest.mark.parametrize("name", ACTIONS)
def test_scripts_of_an_action_start_outside_of_the_workspace(name: str) -> None:
    scripts = [step for step in document(name)["runs"]["steps"] if "run" in step]
    assert len(scripts) == 4
    assert {step["shell"] for step in scripts} == {"/bin/bash --noprofile --norc -p -e -o pipefail {0}"}
    assert {step["working-directory"] for step in scripts} == {"${{ runner.temp }}"}
    *starts, verdict = [step["run"] for step in scripts]
    unset = "unset PYTHONEXECUTABLE __PYVENV_LAUNCHER__; "  # an isolated Python reads them
    starts = [run.removeprefix(unset) for run in starts if run.startswith(unset)]
    assert len(starts) == 3
    assert all(re.fullmatch(r'exec "\$INTERPRETER" -I -B -u "\$ACTION_PATH/[\w./]+" [a-z-]+', run) for run in starts)
    assert verdict == 'exit "${CODE:-2}"'


@pytest.mark.parametrize("name", ACTIONS)
def test_action_names_files_that_exist(name: str) -> None:
    named = re.findall(r"\$ACTION_PATH/([\w./-]+)", text(name))
    assert len(named) == 3
    assert not [path for path in named if not (ROOT / name).parent.joinpath(path, "__main__.py").is_file()]


def test_action_takes_the_files_that_the_program_reads_from_the_target_branch() -> None:
    assert (target.OWN_FILE, target.PROJECT_FILE) == (settings_file.OWN_FILE, settings_file.PROJECT_FILE)
    options = [option for option in command.params if isinstance(option, click.Option)]
    files = {option.opts[-1] for option in options if isinstance(option.type, click.Path)}
    assert files - {"--settings-from"} == VALIDATOR.files


def validated(folder: Path, status: int, **inputs: str) -> Job:
    """A job that has run the step Validate, with a stand-in for the tool."""
    job = Job(folder, inputs={name.replace("_", "-"): value for name, value in inputs.items()})
    job.install_stand_in(status)
    job.run("Settings", "Validate", "Verdict")
    return job


def started(job: Job) -> list[str]:
    sarif = f"--format=sarif={job.temp}/trainspec/trainspec.sarif"
    return ["-I", "-m", "trainspec_validate", sarif, "--dependents"]


@pytest.mark.parametrize("status", [0, 1, 2])
def test_action_keeps_the_exit_status(tmp_path: Path, status: int) -> None:
    job = validated(tmp_path, status)
    assert job.arguments == [*started(job), "--", "."]
    assert job.outputs == {"steps.validate.outputs.exit-code": str(status), "steps.validate.outputs.sarif": ""}
    assert job.codes == {"Settings": 0, "Validate": 0, "Verdict": status}


@pytest.mark.parametrize("name", ACTIONS)
def test_action_without_a_verdict_fails(name: str, tmp_path: Path) -> None:
    assert Job(tmp_path, ROOT / name).run("Verdict") == 2


def test_action_passes_inputs_as_they_are(tmp_path: Path) -> None:
    hostile = "$(touch pwned); `touch pwned`"
    paths = f"a b.yaml\n\n-x\n{hostile}\n--config=x\na\u2028b\n"
    job = validated(tmp_path, 0, paths=paths, args="--color\nnever", fail_on="warning")
    assert job.arguments == [
        *started(job),
        *("--fail-on=warning", "--color", "never", "--", "a b.yaml", "-x", hostile, "--config=x", "a\u2028b"),
    ]
    assert not list(tmp_path.rglob("pwned"))


# --- size of the sources ------------------------------------------------------------------------------------


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.slow
@every("path", MODULES, ids=label)
def test_module_is_short_and_says_what_it_is(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "a module starts with a docstring"
    assert len(source.splitlines()) <= MAX_MODULE_LINES


@pytest.mark.slow
@every("path", MODULES, ids=label)
def test_functions_are_short(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = {f.name: (f.end_lineno or f.lineno) - f.lineno + 1 for f in functions if f.name not in LOOPS}
    assert not {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES}
