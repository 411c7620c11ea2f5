"""The pre-commit hook and the GitHub action, run as their hosts would run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml

from tests.actions.hostile_workspace import fill, marks_in, set_by, variables
from tests.actions.job_run import ROOT, Job, environment
from tests.actions.server import git

BIN = Path(sys.executable).parent
BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
GOOD = BAD.replace("900e9", "450e9")
NOT_COPIED = shutil.ignore_patterns(".*_cache", ".venv*", ".git", ".hypothesis", "build", "site", "__pycache__", "dist")
UNREACHABLE = re.compile(r"No matching distribution|connection|resolution|timed out|unreachable", re.IGNORECASE)
HOSTILE = ["a; touch pwned", "$(touch pwned)", "`touch pwned`", "a && touch pwned", "| touch pwned", "--output=pwned"]


# --- pre-commit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), (BAD, 1)])
def test_the_entry_of_the_hook(text: str, code: int, tmp_path: Path) -> None:
    done = run_entry(tmp_path, text)
    assert done.returncode == code
    assert ("cluster.yaml:21:35: error[TS-CLU-010]" in done.stdout) is bool(code)


BEFORE_THE_ENTRY = {"library", "python-executable"}
"""What the loader and Python read before the entry can drop it, as SECURITY.md says."""
VARIABLES = sorted(variables(Path("/nowhere")).keys() - BEFORE_THE_ENTRY)


@pytest.mark.parametrize("name", ["everything", *(pytest.param(name, marks=pytest.mark.long) for name in VARIABLES)])
def test_the_entry_of_the_hook_imports_nothing_of_the_repository(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    fill(folder, tmp_path / "marks")
    (folder / "trainspec.toml").unlink()
    done = run_entry(folder, BAD, **set_by(name, folder, but=BEFORE_THE_ENTRY))
    assert marks_in(tmp_path / "marks") == []
    assert "cluster.yaml:21:35: error[TS-CLU-010]" in done.stdout, done.stderr


def configurations() -> list[dict[str, object]]:
    """The hooks as the guide configures them."""
    guide = (ROOT / "spec" / "guide" / "ci.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(repos:\n.*?)```", guide, re.DOTALL)
    return [yaml.safe_load(block)["repos"][0]["hooks"][0] for block in blocks]


PLAN, CLUSTER = (
    (ROOT / "spec" / "v1" / "base" / name).read_text(encoding="utf-8") for name in ("plan.yaml", "cluster.yaml")
)
TOO_LARGE = PLAN.replace("data: 4", "data: 8").replace("num_accelerators: 128", "num_accelerators: 256")
TOO_SMALL = CLUSTER.replace("num_nodes: 16", "num_nodes: 8").replace("num_accelerators: 128", "num_accelerators: 64")
CHANGES = {
    "the plan": {"configs/plan.yaml": TOO_LARGE},
    "the cluster": {"configs/machines/cluster.yaml": TOO_SMALL},
}


def configured(folder: Path, number: int) -> None:
    """A repository with a plan and a cluster, and a hook of this environment as the guide configures it.

    The hook is one of the system, since pre-commit would install the program from a network.
    """
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    hook |= configurations()[number]
    hook |= {"language": "system", "entry": hook["entry"].replace("python ", f"{shlex.quote(sys.executable)} ", 1)}
    written = {".pre-commit-config.yaml": yaml.safe_dump({"repos": [{"repo": "local", "hooks": [hook]}]})}
    put(
        folder,
        written | {"configs/plan.yaml": PLAN, "configs/machines/cluster.yaml": CLUSTER, "configs/other.txt": "1"},
    )
    commit_all(folder)


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def pre_commit(folder: Path) -> subprocess.CompletedProcess[str]:
    git(folder, "add", "--all")
    command = [sys.executable, "-m", "pre_commit", "run", "--verbose"]
    home = environment(PRE_COMMIT_HOME=str(folder / ".git" / "home"))
    done = subprocess.run(command, cwd=folder, env=home, capture_output=True, text=True, check=False)
    git(folder, "commit", "--quiet", "--no-verify", "--allow-empty", "--message", "test")
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "number"), [("the plan", 0), ("the cluster", 0), ("the plan", 1), ("the cluster", 2)]
)
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_judges_a_change_with_what_it_belongs_to(changed: str, number: int, tmp_path: Path) -> None:
    configured(tmp_path, number)
    for changes, code in (({}, 0), ({"configs/other.txt": "2"}, 0), (CHANGES[changed], 1)):
        put(tmp_path, changes)
        done = pre_commit(tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
    assert "configs/plan.yaml:22:21: error[TS-PAR-002]" in done.stdout


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_judges_a_renamed_cluster_with_what_still_names_the_old_one(tmp_path: Path) -> None:
    configured(tmp_path, 1)
    put(tmp_path, {"configs/cluster.yaml": CLUSTER.replace("name: example-cluster", "name: new-cluster", 1)})
    (tmp_path / "configs" / "machines" / "cluster.yaml").unlink()
    done = pre_commit(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "configs/plan.yaml: judged too; found because it names a document that is not there" in done.stdout
    said = "error[TS-DOC-011] no ClusterProfile among the judged documents has the name 'example-cluster'"
    assert re.search(rf"^configs/plan\.yaml:\d+:\d+: {re.escape(said)}", done.stdout, re.MULTILINE), done.stdout


ODD_NAMES = [
    *(
        "a b",
        "--format=json=x",
        "-q",
        "new\nline",
        "qu'o\"te",
        "[ab]*?",
        "\u00fcn\u00ef",
        "$(touch pwned)",
        "::error::x",
    ),
    *("{a,b}", "tab\tin", "back\\slash", "dir with [x]/y", "-d/y", "~", "%s"),
]


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_judges_files_of_any_name(tmp_path: Path) -> None:
    """Each is judged by its own name, and none is an option, a pattern, a command or a line of the log."""
    configured(tmp_path, 0)
    put(tmp_path, {f"{name}.trainspec.yaml": BAD for name in ODD_NAMES})
    done = pre_commit(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    for name in ODD_NAMES:
        shown = name.replace("\n", "\\n").replace("\t", "\\t").replace("::error", "\\x3a:error")
        assert f"{shown}.trainspec.yaml:21:35: error[TS-CLU-010]" in done.stdout
    assert not [*tmp_path.rglob("pwned"), *tmp_path.rglob("x.trainspec.yaml.*"), *tmp_path.rglob("plan.json")]
    assert (tmp_path / "--format=json=x.trainspec.yaml").read_text(encoding="utf-8") == BAD


CONFLICT = f"<<<<<<< HEAD\n{CLUSTER}=======\n{TOO_SMALL}>>>>>>> branch\n"


@pytest.mark.parametrize(
    ("text", "place"), [(CONFLICT, 1), (CLUSTER.replace("num_nodes: 16", "\n<<<<<<< HEAD\nnum_nodes: 16", 1), 0)]
)
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_names_a_merge_conflict(text: str, place: int, tmp_path: Path) -> None:
    configured(tmp_path, 0)
    put(tmp_path, {"configs/machines/cluster.yaml": text})
    done = pre_commit(tmp_path)
    line = place or text.splitlines().index("<<<<<<< HEAD") + 1
    assert done.returncode == 1
    assert f"cluster.yaml:{line}:1: error[TS-DOC-001] a merge conflict starts here (resolve it" in done.stdout


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_judges_an_untracked_plan_with_a_changed_cluster(tmp_path: Path) -> None:
    configured(tmp_path, 0)
    git(tmp_path, "rm", "--quiet", "--cached", "configs/plan.yaml")
    (tmp_path / ".gitignore").write_text("configs/plan.yaml\n", encoding="utf-8")
    put(tmp_path, CHANGES["the cluster"])
    done = pre_commit(tmp_path)
    assert done.returncode == 1
    assert "configs/plan.yaml:22:21: error[TS-PAR-002]" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("deleted", "configs/plan.yaml:6:1: not judged: names cluster 'example-cluster'"),
        ("linked", "configs/plan.yaml: not judged: is a link, which is not followed"),
        ("renamed", "configs/PLAN.YAML:22:21: error[TS-PAR-002]"),
    ],
)
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_only_a_hook_at_every_commit_sees_what_changes_no_file(change: str, said: str, tmp_path: Path) -> None:
    """The first configuration of the guide starts no hook, as the guide says; the last one judges the directory."""
    for number, code in ((0, 0), (2, 1)):
        folder, outside = tmp_path / str(number) / "repository", tmp_path / str(number) / "plan.yaml"
        configured(folder, number)
        plan = folder / "configs" / "plan.yaml"
        if change == "deleted":
            (folder / "configs" / "machines" / "cluster.yaml").unlink()
        else:
            plan.rename(outside)
        if change == "linked":
            plan.symlink_to(os.path.relpath(outside, plan.parent))
        if change == "renamed":
            put(folder, {"configs/PLAN.YAML": TOO_LARGE})
        done = pre_commit(folder)
        assert done.returncode == code, done.stdout + done.stderr
        assert ("no files to check" in done.stdout, said in done.stdout) == (code == 0, code == 1), done.stdout


def run_entry(folder: Path, text: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the hook on one file, as pre-commit does in the environment that it makes."""
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (folder / "cluster.yaml").write_text(text, encoding="utf-8")
    program, *arguments = [*shlex.split(hook["entry"]), *hook.get("args", []), "cluster.yaml"]
    command = [str(BIN / program), *arguments]
    return subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True, check=False)


def commit_all(folder: Path) -> str:
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "test")
    return git(folder, "rev-parse", "HEAD")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_pre_commit_runs_the_hook(tmp_path: Path) -> None:
    source, user = tmp_path / "source", tmp_path / "user"
    shutil.copytree(ROOT, source, ignore=NOT_COPIED)
    hook = {"repo": str(source), "rev": commit_all(source), "hooks": [{"id": "trainspec-validate"}]}
    user.mkdir()
    (user / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [hook]}), encoding="utf-8")
    (user / "cluster.yaml").write_text(GOOD, encoding="utf-8")
    (user / "values.yaml").write_text("not: ours\n", encoding="utf-8")
    commit_all(user)

    def pre_commit(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pre_commit", *arguments]
        home = environment(PRE_COMMIT_HOME=str(tmp_path / "home"), PIP_RETRIES="1")
        done = subprocess.run(command, cwd=user, env=home, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, output = pre_commit("install-hooks")
    if code and UNREACHABLE.search(output):
        pytest.skip("the package index cannot be reached")
    assert code == 0, output
    code, output = pre_commit("run", "--all-files", "--verbose")
    assert code == 0, output
    assert "no findings: 1 document" in output
    (user / "cluster.yaml").write_text(BAD, encoding="utf-8")
    git(user, "add", "cluster.yaml")
    code, output = pre_commit("run")
    assert code == 1, output
    assert "cluster.yaml:21:35: error[TS-CLU-010]" in output


# --- the action ---------------------------------------------------------------------------------------------


def job(folder: Path, **inputs: str) -> Job:
    made = Job(folder, inputs={name.replace("_", "-"): value for name, value in inputs.items()})
    (made.workspace / "cluster.yaml").write_text(BAD, encoding="utf-8")
    # Another name, since documents of one name are judged with each other.
    good = GOOD.replace("name: duplex", "name: right")
    (made.workspace / "good.trainspec.yaml").write_text(good, encoding="utf-8")
    return made


def installed(folder: Path, **inputs: str) -> Job:
    """A job whose step Install has been done."""
    made = job(folder, **inputs)
    made.install_this()
    return made


def judged(made: Job) -> int:
    return made.run("Settings", "Validate", "Verdict")


def check_bad_job(done: Job) -> None:
    assert {**done.codes, "Install": 0} == {"Install": 0, "Settings": 0, "Validate": 0, "Verdict": 1}
    lines = done.log.splitlines()
    lines = lines[lines.index("settings: those of the checkout") :]
    assert lines[1].startswith("::error file=cluster.yaml,line=21,col=35,")
    assert lines[2].startswith("cluster.yaml:21:35: error[TS-CLU-010]")
    sarif = Path(done.outputs["steps.validate.outputs.sarif"])
    [run] = json.loads(sarif.read_text(encoding="utf-8"))["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["TS-CLU-010"]


def test_the_action_annotates_and_writes_sarif(tmp_path: Path) -> None:
    done = installed(tmp_path, paths="cluster.yaml")
    assert judged(done) == 1
    check_bad_job(done)


@pytest.mark.long
def test_the_action_installs_itself(tmp_path: Path) -> None:
    done = job(tmp_path, paths="cluster.yaml")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe")]
    home = environment(PIP_RETRIES="1")
    if subprocess.run([*download, "mdurl"], env=home, capture_output=True, check=False).returncode:
        pytest.skip("the package index cannot be reached")
    assert done.run() == 1
    check_bad_job(done)


def test_the_action_passes_a_good_file(tmp_path: Path) -> None:
    done = installed(tmp_path, paths="good.trainspec.yaml")
    assert judged(done) == 0
    assert "\nno findings: 1 document" in done.log


def test_the_action_fails_on_input_that_is_not_there(tmp_path: Path) -> None:
    assert judged(installed(tmp_path, paths="nothing.yaml")) == 2


@pytest.mark.parametrize(
    ("name", "text"), [*product(["paths", "args"], ["\n".join(HOSTILE)]), *product(["fail_on"], HOSTILE)]
)
def test_the_action_executes_no_input(name: str, text: str, tmp_path: Path) -> None:
    """Paths and arguments are one to a line."""
    done = installed(tmp_path, **{name: text})
    assert judged(done) == 2
    assert done.codes == {"Settings": 0, "Validate": 0, "Verdict": 2}
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", ["version", "settings_branch"])
def test_the_action_executes_no_version_and_no_branch(name: str, text: str, tmp_path: Path) -> None:
    done = job(tmp_path, **{name: text}) if name == "version" else installed(tmp_path, **{name: text})
    assert done.run(*(["Settings"] if name == "settings_branch" else [])) == 2
    assert "Validate" not in done.codes
    assert not list(tmp_path.rglob("pwned"))
