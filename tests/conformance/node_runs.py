"""Runs of the suite with ranks on nodes, and what a suite that is killed leaves there."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from conformance_stacks import HERE, fake, scenario
from real_nodes import until
from trainspec_conformance import agent
from trainspec_conformance.nodes import Nodes
from trainspec_conformance.suite import Order, ScenarioResult, run_suite

from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.interop.collect import named


def placed(*lies: str) -> StackDescriptor:
    """The stack of one page, which places its ranks on the hosts of a task."""
    stack = fake(*lies)
    return msgspec.structs.replace(stack, capabilities=(*stack.capabilities, "several-hosts", "separate-hosts"))


def run(
    nodes: Nodes, out: Path, stack: StackDescriptor, name: str = "kill-rank", left_out: str = "", **job: Any
) -> ScenarioResult:
    """One trial of a scenario with its ranks on nodes, but for a criterion of which the stack reports nothing."""
    one = scenario(name, **{"step_seconds": 0.1, **job})
    criteria = tuple(criterion for criterion in one.criteria if criterion.check != left_out)
    order = Order(stack, HERE, out, [msgspec.structs.replace(one, criteria=criteria)], num_trials=1, nodes=nodes)
    (result,) = run_suite(order)
    return result


def words(result: ScenarioResult) -> str:
    """All that a result says."""
    return " ".join([result.reason, *(text for one in result.trials for said in one.judged for text in said.messages)])


def shell(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A program of this name, in front of all others."""
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    """One call of the suite."""
    words = [sys.executable, "-m", "trainspec_conformance", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)


SUITE = """
import os, subprocess, sys, time
from trainspec_conformance import agent
from trainspec_conformance.links import Links
from trainspec_conformance.nodes import Nodes
from trainspec_conformance.privileges import NotAllowedError
nodes = Nodes([sys.argv[3]], sys.argv[1])
nodes.open()
nodes.begin("0-mark-x")
try:
    links = Links(dict(zip(nodes.names, map(nodes.__getitem__, nodes.names))))
    parts = ["network"]
except NotAllowedError:
    parts = []
try:
    nodes.call("watch_writes", directory=sys.argv[2])
    parts.append("writes")
except NotAllowedError:
    pass
variables = {**os.environ, agent.MARK: "0-mark-x"}
for name in nodes.names:  # as a launcher that has left its session, with output of its own
    script = "setsid sleep 600 & echo $! > " + sys.argv[2] + "/pid-" + name + "; wait"
    none = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.Popen([*nodes[name].enter(*parts), "sh", "-c", script], env=variables, start_new_session=True, **none)
print(*parts, "|", *(nodes[name].about.directory for name in nodes.names), flush=True)
time.sleep(600)
"""


def leaves_nothing(way: str, names: str, directory: Path, end: Callable[[subprocess.Popen[bytes]], None]) -> list[str]:
    """A suite whose agents have a process of a trial each leaves neither it nor a directory, however it ends.

    Nor does it leave a network of the trial, where it can make one. Gives the parts of nodes that it damages.
    """
    words = [sys.executable, "-c", SUITE, way, os.fspath(directory), names]
    suite = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        return _ended(suite, directory, names, end)
    finally:
        suite.kill()
        suite.wait()


def _ended(
    suite: subprocess.Popen[bytes], directory: Path, names: str, end: Callable[[subprocess.Popen[bytes]], None]
) -> list[str]:
    assert suite.stdout is not None
    told, _, directories = suite.stdout.readline().decode().partition("|")
    parts, left = told.split(), [Path(name) for name in directories.split()]
    assert len(left) == 2
    holders = [int((one / "network").read_text()) for one in left if "network" in parts]
    files = [directory / f"pid-{name}" for name in named([names])]
    until(lambda: all(one.exists() and one.read_text().strip() for one in files), "the processes have not begun")
    pids = [int(one.read_text()) for one in files]
    assert all(one.exists() for one in left)
    assert all(agent.state(one) not in {"Z", agent.GONE} for one in holders)
    assert all(agent.state(one) not in {"Z", agent.GONE} for one in pids)
    shells = psutil.Process(suite.pid).children(recursive=True)
    end(suite)
    suite.wait(60)
    until(lambda: not any(one.exists() for one in left), "a directory is left")
    until(lambda: all(agent.state(one.pid) in {"Z", agent.GONE} for one in shells), "a remote shell is left")
    until(lambda: all(agent.state(one) in {"Z", agent.GONE} for one in holders), "a network is left")
    assert [agent.state(one) for one in pids if agent.state(one) not in {"Z", agent.GONE}] == []
    return parts


def kill(suite: subprocess.Popen[bytes]) -> None:
    """End a suite as nothing of its own can prevent."""
    suite.kill()


def kill_agents(suite: subprocess.Popen[bytes]) -> None:
    """End the first process of each agent in the same way, and the suite after that."""
    for one in psutil.Process(suite.pid).children():
        with contextlib.suppress(psutil.Error):  # one that carries packets ends with its agent
            if "-c" in one.cmdline():
                one.kill()
    suite.kill()
