"""What SECURITY.md promises, against documents, file names, links and settings that mean harm."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.every import every
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.report import FORMATS

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "trainspec_validate"
PLAN = (ROOT / "spec" / "v1" / "base" / "plan.yaml").read_text(encoding="utf-8")
CLUSTER = (ROOT / "spec" / "v1" / "base" / "cluster.yaml").read_text(encoding="utf-8")
SECRET = "apiVersion: trainspec/v1\nkind: ClusterProfile\ntoken: hunter2\n"


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working tree, and a secret beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "cluster.yaml").write_text(SECRET, encoding="utf-8")
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tree")
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM)


def test_every_promise_names_a_test() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promises = re.findall(r"^- \*\*(?:[^\n]|\n(?!- |\n))*", text, re.MULTILINE)
    assert len(promises) >= 12
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", promise)
        assert named, promise
        for file, function in named:
            assert not function or f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), function
            assert (ROOT / file).is_file()


# --- it executes nothing, it unpickles nothing, it uses no network ------------------------------------------

FORBIDDEN_MODULES = {
    *("subprocess", "multiprocessing", "ctypes", "pty", "runpy", "code", "pickle", "shelve", "marshal", "dbm"),
    *("socket", "ssl", "http", "urllib", "ftplib", "smtplib", "xmlrpc", "asyncio", "webbrowser"),
}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "system",
    "popen",
    "unsafe_load",
    "full_load",
    "entry_points",
}
ALLOWED = {("re", "compile"), ("completion.py", "entry_points")}
"""Owner or file, and call; completion asks which programs are installed, and reads no input."""
STARTS_PROGRAMS = {"interop/discover/machine.py", "interop/collect.py", "cli/bounded_child.py"}
"""The three modules that may: one asks the tools of the machine that `trainspec discover` runs on, one starts shells
for `trainspec accept --over`, and one starts the programs of this package for `trainspec mcp`."""


@pytest.mark.slow
@every("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_the_source_has_no_means_to(path: Path) -> None:
    forbidden = FORBIDDEN_MODULES
    if path.relative_to(SOURCE).as_posix() in STARTS_PROGRAMS:
        forbidden = FORBIDDEN_MODULES - {"subprocess"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & forbidden
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.module.split(".")[0] not in forbidden or node.module == "urllib.parse"
        elif isinstance(node, ast.Call):
            function = node.func
            name = getattr(function, "id", getattr(function, "attr", ""))
            owner = getattr(getattr(function, "value", None), "id", "")
            assert (
                name not in FORBIDDEN_CALLS
                or (owner, name) in ALLOWED
                or (name == "entry_points" and path.name == "completion.py")
            )


def test_only_discover_starts_programs_and_only_fixed_ones() -> None:
    importers = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if "trainspec_validate.interop.discover" in path.read_text(encoding="utf-8")
    }
    assert importers <= {"interop", "cli"}
    calls = [
        node
        for path in (SOURCE / "interop" / "discover").glob("*.py")
        if path.name != "machine.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "run"
    ]
    assert calls
    source = "".join(path.read_text(encoding="utf-8") for path in (SOURCE / "interop" / "discover").glob("*.py"))
    assert "shell=True" not in source


def test_only_accept_starts_shells_and_only_where_it_is_told_to() -> None:
    path = SOURCE / "interop" / "collect.py"
    importers = {
        other.relative_to(SOURCE).as_posix()
        for other in SOURCE.rglob("*.py")
        if other != path and "interop.collect" in other.read_text(encoding="utf-8")
    }
    assert importers == {"cli/commands/accept.py"}
    assert "shell=True" not in path.read_text(encoding="utf-8")


def test_the_server_for_agents_starts_only_programs_of_this_package() -> None:
    path = SOURCE / "cli" / "bounded_child.py"
    importers = {
        other.relative_to(SOURCE).as_posix()
        for other in SOURCE.rglob("*.py")
        if other != path and "bounded_child" in other.read_text(encoding="utf-8")
    }
    assert importers == {"cli/commands/mcp.py"}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    started = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(getattr(node.func, "value", None), "id", "") == "subprocess"
    ]
    assert [call.partition("(")[0] for call in started] == ["subprocess.Popen"]
    (command,) = [
        ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "command"
    ]
    assert command == "[sys.executable, '-P', '-c', _PROGRAM.format(program=program), *arguments]"
    assert started[0].startswith("subprocess.Popen(command, ")
    assert "shell" not in started[0]


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [touch pwned]", "!!python/name:os.system", "!x y"])
def test_tags_construct_nothing(tag: str) -> None:
    result = invoke(write("plan.yaml", PLAN + f"extensions: {{org.example.a: {tag}}}\n"))
    assert result.exit_code == 1
    assert "TS-DOC-001" in result.stdout
    assert not Path("pwned").exists()


WITH_WORKERS = """
import multiprocessing, sys
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv.pop(1))
    from trainspec_validate.cli.validate import main
    from trainspec_validate.telemetry.fold import engine, large
    engine.AT_ONCE_BYTES = 0
    large._LEAST_BYTES = 1_000
    main()
"""
MODULES = ("multiprocessing", "json", "click", "numpy", "runpy", "pickle", "trainspec_validate", "pyspark", "tempfile")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_import_nothing_of_the_working_directory(method: str, tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text(WITH_WORKERS, encoding="utf-8")
    for name in MODULES:
        write(f"{name}.py", f"open({str(tmp_path / 'mark')!r}, 'w').close()\n")
    write("job.jsonl", (ROOT / "examples" / "broken" / "job.jsonl").read_text(encoding="utf-8"))
    command = [sys.executable, str(tmp_path / "start.py"), method, "job.jsonl", "--workers", "2", "--select", "TEL"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert not (tmp_path / "mark").exists()
    assert done.returncode == 1, done.stderr
    assert "job.jsonl" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyspark") is None or not shutil.which("java"), reason="needs Spark")
def test_workers_of_spark_import_nothing_of_the_working_directory(tmp_path: Path) -> None:
    for name in MODULES:
        write(f"{name}.py", f"open({str(tmp_path / 'mark')!r}, 'w').close()\n")
    write("job.jsonl", (ROOT / "examples" / "broken" / "job.jsonl").read_text(encoding="utf-8"))
    command = [Path(sys.executable).with_name(PROGRAM), "job.jsonl", "--engine", "spark", "--select", "TEL"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not (tmp_path / "mark").exists()
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("program", ["trainspec_validate.cli.validate", "trainspec_validate.cli.toolbox"])
def test_programs_of_python_that_are_started_look_for_nothing_in_the_working_directory(program: str) -> None:
    text = f"import {program} as p, os; p.sys.exit = print; p.main(); print(os.environ['PYTHONSAFEPATH'])"
    done = subprocess.run([sys.executable, "-c", text, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "1"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("numba") is None, reason="needs numba")
def test_the_compiler_of_loops_takes_no_settings_of_the_working_directory() -> None:
    write(".numba_config.yaml", "developer_mode: 7\ncaptured_errors: nonsense\ncpu_name: none\n")
    text = """
from trainspec_validate.telemetry.kernels.jit import compile_loops
assert compile_loops()
import numba
print(numba.njit(lambda x: x + 1)(1), numba.config.DEVELOPER_MODE)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout == "2 0\n", done.stderr


# --- it stays in the tree -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file", ["../outside/cluster.yaml", "{outside}/cluster.yaml", "link/cluster.yaml", "leaf.yaml", "a/../../outside/x"]
)
def test_references_stay_in_the_tree(file: str, tmp_path: Path) -> None:
    Path("link").symlink_to(tmp_path / "outside")
    Path("leaf.yaml").symlink_to(tmp_path / "outside" / "cluster.yaml")
    target = file.format(outside=tmp_path / "outside")
    result = invoke(write("plan.yaml", PLAN.replace("cluster: ", f"cluster: {{file: {target}}} # ", 1)))
    assert result.exit_code == 1
    assert "TS-DOC-012" in result.stdout
    assert "hunter2" not in result.output
    assert "token" not in result.output


@pytest.mark.parametrize("path", [".", "a", "**/*.yaml", "a/*.yaml", "*/*.yaml", "a/l*/cluster.yaml"])
def test_links_in_directories_and_behind_patterns_are_not_followed(path: str, tmp_path: Path) -> None:
    write("a/plan.yaml", PLAN)
    write("a/lone/cluster.yaml", CLUSTER)
    Path("a/link").symlink_to(tmp_path / "outside")
    Path("a/cluster.yaml").symlink_to(tmp_path / "outside" / "cluster.yaml")
    assert "token" not in invoke(path, "--format", "full").output
    listed = invoke(path, "--list-files").stdout.split()
    assert listed
    assert not [name for name in listed if Path(name).resolve().is_relative_to(tmp_path / "outside")]


@pytest.mark.parametrize("name", ["waivers", "baseline"])
def test_settings_stay_in_the_tree(name: str) -> None:
    Path("link").symlink_to("../outside")
    for file in ("../outside/cluster.yaml", "link/cluster.yaml"):
        write("trainspec.toml", f'{name} = "{file}"\n')
        result = invoke(write("plan.yaml", PLAN))
        assert result.exit_code == 2
        assert "leads out of" in result.stderr
        assert "token" not in result.output


# --- it writes only where told ------------------------------------------------------------------------------


def test_nothing_is_written(tmp_path: Path) -> None:
    write("plan.yaml", PLAN)
    before = sorted(tmp_path.rglob("*"))
    for name in FORMATS:
        invoke(".", "--format", name)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("file", ["../outside/report", ".git/config", "report", "/dev/shm/report"])
def test_settings_cannot_say_where_to_write(file: str, tmp_path: Path) -> None:
    write("trainspec.toml", f'format = ["full", "json={file}"]\n')
    write("plan.yaml", PLAN)
    before = sorted(tmp_path.rglob("*"))
    result = invoke("plan.yaml")
    assert result.exit_code == 2
    assert "command line only" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


# --- it cannot forge your log -------------------------------------------------------------------------------

FORGED = "x\x1b[2Jx\n::error::forged\r\x9bx##[error]forged##vso[task.x]##teamcity[x\u202e"


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names with control characters")
@pytest.mark.parametrize("github", [False, True])
def test_no_name_or_text_reaches_the_log_raw(github: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if github:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    quoted = '"' + FORGED.encode("unicode_escape").decode("ascii") + '"'
    write(f"{FORGED}/plan.yaml", PLAN.replace("  data: 4", f"  dtaa: 4\n  {quoted}: 1"))
    write(f"{FORGED}.trainspec.yaml", f"{quoted}: [")
    write("checkpoint.yaml", f"apiVersion: {quoted}\nkind: {quoted}\n")
    runs = [("--format", name) for name in FORMATS] + [(), ("--list-files",)]
    for run in runs:
        result = invoke(".", *run)
        lines = result.output.split("\n")
        assert len(lines) > 1
        assert all(line.isprintable() for line in lines), run
        assert not [line for line in lines if "forged" in line and line.lstrip().startswith("::error::")]
        assert not re.search(r"##(\[|vso|teamcity)", result.output)


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names with control characters")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser reads everything")
def test_no_name_of_an_unreadable_file_reaches_the_log_raw() -> None:
    Path(write(f"{FORGED}.yaml", PLAN)).chmod(0)
    result = invoke(".")
    assert result.exit_code == 2
    assert all(line.isprintable() for line in result.output.split("\n"))


def test_settings_do_not_reach_the_log_raw() -> None:
    write("trainspec.toml", '"\\u001b[2J\\n::error::forged" = 1\n')
    result = invoke(write("plan.yaml", PLAN))
    assert result.exit_code == 2
    assert all(line.isprintable() for line in result.output.split("\n"))
    assert not [line for line in result.output.split("\n") if line.startswith("::")]


# --- it is bounded ------------------------------------------------------------------------------------------

MEBIBYTE = 1 << 20
COMMENT = "# trainspec: ignore[{}] because\n"
GROUP = "  - {name: g%d, num_nodes: 1, num_accelerators_per_node: 8, accelerator: {model: nvidia-h100-sxm-80gb}}\n"
HOSTILE: dict[str, Callable[[], str]] = {
    "unknown-keys": lambda: PLAN + "".join(f"k{i:x}: 1\n" for i in range(500_000)),
    "wrong-items": lambda: PLAN.replace("metadata:", "metadata:\n  sources: [" + "{x: 1}," * 300_000 + "]"),
    "many-groups": lambda: re.sub(
        r"^node_groups:\n(?:[ #].*\n)*",
        "node_groups:\n" + "".join(GROUP % i for i in range(50_000)),
        CLUSTER,
        flags=re.MULTILINE,
    ),
    "long-text": lambda: PLAN.replace("metadata:", 'metadata:\n  description: "' + "a" * 30_000_000 + '"'),
    "idle-ignores": lambda: PLAN + COMMENT.format("TS-PAR-001") * 500_000,
    "unknown-ignores": lambda: PLAN + "".join(COMMENT.format(f"TS-XXX-{i}") for i in range(300_000)),
    "one-long-ignore": lambda: PLAN + COMMENT.format(",".join(f"w{i}" for i in range(1_000_000))),
    "one-long-ignore-without-reason": lambda: PLAN + f"# trainspec: ignore[{','.join(['w'] * 1_000_000)}]\n",
}
MEASURED = """
import re, resource, sys
from pathlib import Path
from trainspec_validate.cli.validate import main
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
try:
    main()
finally:
    print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("start", ['{"kind":"TrainingPlan","x":[', '{"kind":["TrainingPlan",'])
def test_a_text_that_may_be_a_document_costs_bounded_memory(start: str) -> None:
    path = write("a.json", start + "[]," * 10_000_000 + "[]]}")
    done = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, timeout=600, check=False)
    assert done.returncode in {1, 2}, done.stderr[-2000:]
    assert int(done.stderr.split()[-1]) < 512 * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_whole_run_costs_bounded_memory_and_ends(name: str) -> None:
    arguments = [sys.executable, "-c", MEASURED, write("a.yaml", HOSTILE[name]()), "--format", "full"]
    done = subprocess.run(arguments, capture_output=True, timeout=600, check=False)
    assert done.returncode == 1, done.stderr[-2000:]
    assert int(done.stderr.split()[-1]) < 512 * 1024
    assert len(done.stdout) < 50 * MEBIBYTE
