"""Ranks on other nodes: what the agent of a node does, what it leaves, and what is said where it cannot act."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from conformance_stacks import HERE, failed
from node_runs import kill, kill_agents, leaves_nothing, placed, program, run, shell, words
from real_nodes import until
from trainspec_conformance import agent, cli
from trainspec_conformance.nodes import Nodes
from trainspec_conformance.processes import new_mark

from trainspec_validate.interop import collect
from trainspec_validate.system.boundary import InputError

MINIMAL = HERE.parents[1] / "reference" / "minimal" / "minimal-torch-nodes.yaml"


def command(nodes: Nodes, node: str, *rest: str, mark: str = "") -> subprocess.Popen[bytes]:
    """A command of this machine that runs on a node."""
    variables = {**os.environ, **({agent.MARK: mark} if mark else {}), "OWN": "value"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*nodes[node].enter(), *rest], env=variables, stdin=pipe, stdout=pipe, stderr=pipe)


# --- agents -------------------------------------------------------------------------------------------------


def test_the_command_names_all_ways() -> None:
    assert cli.WAYS == collect.WAYS


def test_a_command_of_a_node_has_all_of_its_caller(nodes: Nodes, tmp_path: Path) -> None:
    process = command(nodes, "n1", "sh", "-c", "echo $OWN; pwd; cat; exit 7")
    told, _ = process.communicate(b"x" * 100_000 + b"\nlast", timeout=60)
    assert told.decode().splitlines() == ["value", os.fspath(Path.cwd()), "x" * 100_000, "last"]
    assert process.returncode == 7
    process = command(nodes, "n1", "sh", "-c", "trap 'exit 3' TERM; echo begun; read line")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.terminate()
    assert process.wait(60) == 3
    process = command(nodes, "n1", "sh", "-c", "kill -9 $$")
    assert process.wait(60) == -signal.SIGKILL
    process = command(nodes, "n1", "absent-program")
    assert (process.wait(60), b"absent-program" in process.communicate()[1]) == (127, True)


def test_a_command_of_a_node_has_a_temporary_directory_there(nodes: Nodes) -> None:
    told, _ = command(nodes, "n2", "sh", "-c", "echo $TMPDIR").communicate(timeout=60)
    where = Path(told.decode().strip())
    assert (where.parent, where.exists()) == (Path(nodes["n2"].about.directory), False)


def test_a_command_ends_with_its_caller(nodes: Nodes) -> None:
    process = command(nodes, "n1", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    until(lambda: agent.state(pid) in {"Z", agent.GONE}, "the command lives")


def test_signals_reach_processes_of_the_trial_alone(nodes: Nodes) -> None:
    mark = new_mark()
    nodes.begin(mark)
    process = command(nodes, "n1", "sh", "-c", "echo $$; exec sleep 600", mark=mark)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    # While the shell becomes `sleep`, the process has no environment for a moment.
    until(lambda: [pid, "sleep"] in nodes["n1"].call("marked", mark=mark), "the command is not seen")
    nodes["n1"].call("reach", pids=[pid], number=int(signal.SIGSTOP), mark=mark)
    assert agent.state(pid) == "T"
    with pytest.raises(agent.NoTargetError, match="n1: a process that the trace names does not belong"):
        nodes["n1"].call("reach", pids=[os.getpid()], number=int(signal.SIGKILL), mark=mark)
    nodes["n1"].call("slow", pids=[pid], factor=5, seconds=0, mark=mark)
    nodes["n1"].call("limit_memory", pids=[pid], more_bytes=1 << 30, mark=mark)
    assert psutil.Process(pid).rlimit(psutil.RLIMIT_AS)[0] in range(1 << 30, 2 << 30)
    assert [pid, "sleep"] in nodes["n1"].call("marked", mark=mark)
    assert nodes["n1"].call("end_all", mark=mark) == []
    assert process.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("end", [kill, kill_agents, subprocess.Popen.terminate])
def test_nothing_is_left_on_a_node(end: Callable[[subprocess.Popen[bytes]], None], tmp_path: Path) -> None:
    leaves_nothing("local", "n[1-2]", tmp_path, end)


def test_an_agent_ends_when_the_suite_is_silent() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"first\nsecond")
    assert list(agent.lines_of(reading, 0.01)) == [b"first"]
    for one in (reading, writing):
        os.close(one)


def test_a_program_that_prints_before_the_agent_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell(tmp_path, monkeypatch, "ssh", 'echo "Welcome, {\\"value\\": 1}"; shift 6; exec sh -c "$*"')
    found = Nodes(["n1"], "ssh")
    found.open()
    assert found["n1"].call("alive", pids=[os.getpid()]) == [os.getpid()]
    found.close()


# --- nodes that do not answer -------------------------------------------------------------------------------


def test_a_node_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell(tmp_path, monkeypatch, "ssh", 'echo "ssh: connect to host n1 port 22: Connection refused" >&2; exit 255')
    arguments = ["run", os.fspath(MINIMAL), "--report", os.fspath(tmp_path / "out"), "--over", "ssh", "--node", "n1"]
    done = program(*arguments)
    assert done.returncode == 2
    reason = "the connection has ended: ssh: connect to host n1 port 22: Connection refused"
    assert done.stderr == f"trainspec-conformance: n1 does not answer: {reason}\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--over", "ssh"], "--over and --node belong together"),
        (["--node", "n1"], "--over and --node belong together"),
        (["--over", "local", "--node", "-oProxyCommand=x"], "is no name of a node"),
        (["--over", "local", "--node", "n1,n1"], "a node is named twice"),
    ],
)
def test_wrong_use_is_refused(more: list[str], told: str, tmp_path: Path) -> None:
    arguments = ["run", os.fspath(MINIMAL), "--report", os.fspath(tmp_path / "out"), *more]
    done = program(*arguments)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_a_stack_that_does_not_place_its_ranks_is_refused(tmp_path: Path) -> None:
    stack = HERE / "fake.yaml"
    arguments = ["run", os.fspath(stack), "--report", os.fspath(tmp_path), "--over", "local", "--node", "n1"]
    done = program(*arguments)
    assert (done.returncode, "--over requires separate-hosts" in done.stderr) == (2, True), done.stderr


def test_a_directory_that_a_node_does_not_see_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    file = tmp_path / "shared"
    file.write_text("one")
    nodes.require_shared(file)
    call = nodes["n2"].call
    nodes["n2"].call = lambda what, **fields: "another" if what == "content" else call(what, **fields)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="n2 does not see this directory"):
        nodes.require_shared(file)


@pytest.mark.slow
def test_a_node_that_is_lost_in_a_trial_is_an_error_and_comes_back(nodes: Nodes, tmp_path: Path) -> None:
    call, node = nodes["n2"].call, nodes["n2"]

    def lost(what: str, **fields: Any) -> Any:
        if what == "reach":
            assert node._process is not None
            node._process.kill()
        return call(what, **fields)

    node.call = lost  # type: ignore[method-assign]
    result = run(nodes, tmp_path / "lost", placed())
    assert (result.state, "n2 does not answer" in result.reason) == ("error", True)
    node.call = call  # type: ignore[method-assign]
    result = run(nodes, tmp_path / "back", placed())
    assert result.state == "pass", words(result)


# --- verdicts -----------------------------------------------------------------------------------------------


def test_an_injection_that_a_node_does_not_allow_is_unsupported(nodes: Nodes, tmp_path: Path) -> None:
    result = run(nodes, tmp_path, placed(), "killed-for-memory")
    assert (result.state, result.reason) == ("unsupported", "the agent of a node cannot do this: kill-at-memory-limit")


def test_more_nodes_than_there_are_is_unsupported(nodes: Nodes, tmp_path: Path) -> None:
    result = run(nodes, tmp_path, placed(), "kill-host", num_hosts=3)
    assert (result.state, result.reason) == ("unsupported", "3 nodes are needed, --node names 2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kill-host", "stop-rank"])
def test_a_right_stack_passes_on_nodes(name: str, nodes: Nodes, tmp_path: Path) -> None:
    result = run(nodes, tmp_path, placed(), name)
    assert result.state == "pass", words(result)
    (trial,) = result.trials
    told = [json.loads(line)["record"] for line in (trial.directory / "history.jsonl").open()]
    assert {one["host"] for one in told if one["k"] == "process" and one["role"] == "rank"} == {"n1", "n2"}


LIES = [("no-recovery", "kill-rank", "completes"), ("orphan", "null-run", "no-orphans")]


@pytest.mark.slow
@pytest.mark.parametrize(("lie", "name", "check"), LIES)
def test_a_wrong_stack_fails_on_nodes(lie: str, name: str, check: str, nodes: Nodes, tmp_path: Path) -> None:
    result = run(nodes, tmp_path, placed(lie), name)
    assert (result.state, check in failed(result)) == ("fail", True), words(result)


@pytest.mark.slow
def test_ranks_that_are_somewhere_else_fail(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = nodes["n2"].call  # as if it were another machine, which has none of these processes

    def elsewhere(what: str, **fields: Any) -> Any:
        return [] if what in {"alive", "belonging", "marked"} else call(what, **fields)

    monkeypatch.setattr(nodes["n2"], "call", elsewhere)
    result = run(nodes, tmp_path, placed("stay"), "null-run")
    assert (result.state, "rank 1 was at no time seen on the node that it names" in words(result)) == ("fail", True)


# --- real ones ----------------------------------------------------------------------------------------------


def test_labels_of_srun_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_LABELIO", "1")
    script = (
        'while [ "$1" != python3 ]; do shift; done; [ -n "$SLURM_LABELIO" ] && exec "$@" | sed "s/^/0: /"; exec "$@"'
    )
    shell(tmp_path, monkeypatch, "srun", script)
    found = Nodes(["n1"], "slurm")
    found.open()
    assert found["n1"].call("alive", pids=[os.getpid()]) == [os.getpid()]
    found.close()


def judged(way: str, names: str, out: Path) -> None:
    """A right stack passes, and one that does not recover fails, and nothing is left when the suite is killed."""
    found = Nodes([names], way)
    try:
        found.open()
        result = run(found, out / "right", placed())
        assert result.state == "pass", words(result)
        result = run(found, out / "wrong", placed("no-recovery"))
        assert (result.state, failed(result) >= {"completes"}) == ("fail", True)
        left = [Path(found[name].about.directory) for name in found.names]
    finally:
        found.close()
    assert not any(one.exists() for one in left)
    leaves_nothing(way, names, out, kill)


@pytest.mark.slow
def test_in_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = '[ "$1 $2 $3 $5" = "exec --stdin --quiet --" ] || exit 1; export HOSTNAME=$4; shift 5; exec "$@"'
    shell(tmp_path, monkeypatch, "kubectl", script)
    judged("kubernetes", "trainer-0,trainer-1", tmp_path)


@pytest.mark.slow
def test_over_ssh(ssh: str, tmp_path: Path) -> None:
    judged("ssh", ssh, tmp_path)


@pytest.mark.slow
def test_under_slurm(slurm: str, tmp_path: Path) -> None:
    judged("slurm", slurm, tmp_path)


def minimal(way: str, names: str, out: Path, *more: str) -> dict[str, Any]:
    """Report on the minimal stack."""
    arguments = ["run", os.fspath(MINIMAL), "--scenario", "kill-rank", "--trials", "1", "--report", os.fspath(out)]
    done = program(*arguments, "--over", way, "--node", names, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((out / "report.json").read_bytes()))


@pytest.mark.long
def test_the_minimal_stack_over_ssh(ssh: str, tmp_path: Path) -> None:
    assert {one["name"] for one in minimal("ssh", ssh, tmp_path / "out")["nodes"]} == {"n1", "n2"}


@pytest.mark.long
def test_the_minimal_stack_under_slurm(slurm: str, tmp_path: Path) -> None:
    assert [one["machine"] for one in minimal("slurm", slurm, tmp_path / "out")["nodes"]] == [1, 1]
