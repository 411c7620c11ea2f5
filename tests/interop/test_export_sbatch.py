"""A real Slurm takes the batch scripts that are exported, on clusters of as many nodes as the plans ask for."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import node_servers
from trainspec_validate.cli.toolbox import command

PLANS = Path(__file__).resolve().parents[2] / "examples" / "plans"
# Nodes of a cloud are up as soon as a job wants them, so that thousands need no program of their own.
NODES = """\
GresTypes=gpu
SelectTypeParameters=CR_Core
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=300
NodeName=n[1-1024] CPUs=128 RealMemory=1000000 Gres=gpu:8 State=CLOUD
"""


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[node_servers.Servers]:
    """A controller of 1,024 nodes of eight GPUs."""
    with node_servers.slurm_controller(tmp_path_factory.mktemp("slurm") / "controller", NODES, {}) as servers:
        yield servers


def script(plan: str, folder: Path) -> Path:
    """The batch script of a plan of the examples."""
    target = folder / "job.sbatch"
    arguments = ["export", str(PLANS / plan), "--to", "slurm", "--output", str(target), "--force"]
    CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)
    return target


def submitted(batch: Path, servers: node_servers.Servers) -> subprocess.CompletedProcess[str]:
    """What sbatch says of a script that it only tests."""
    return subprocess.run(
        ["sbatch", "--test-only", str(batch), "train.py"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **servers.environment},
    )


@pytest.mark.parametrize(
    ("plan", "num_nodes"),
    [
        ("llama2-70b-lora-eos.yaml", 1),
        ("resnet50-coreweave.yaml", 448),
        ("nemotron-h-56b-h100.yaml", 8),
        ("deepseek-v3-h800.yaml", 256),
        ("falcon-mamba-7b.yaml", 32),
        ("llama3-405b-8192.yaml", 1024),
    ],
)
def test_a_controller_takes_the_script(
    plan: str, num_nodes: int, tmp_path: Path, controller: node_servers.Servers
) -> None:
    said = submitted(script(plan, tmp_path), controller)
    assert said.returncode == 0, said.stderr
    nodes = re.search(r"on nodes n(?:\[1-)?([0-9]+)", said.stderr)
    assert nodes is not None, said.stderr
    assert int(nodes[1]) == num_nodes


def test_a_controller_refuses_more_nodes_than_it_has(tmp_path: Path, controller: node_servers.Servers) -> None:
    said = submitted(script("llama3-405b-16384.yaml", tmp_path), controller)
    assert said.returncode != 0
    assert "configuration is not available" in said.stderr
