"""Nodes for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_nodes import slurm_nodes, ssh_nodes
from trainspec_conformance.nodes import Nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Two nodes on this machine."""
    found = Nodes(["n[1-2]"], "local")
    found.open()
    yield found
    found.close()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two nodes with an sshd each."""
    with ssh_nodes(tmp_path) as (path, names):
        monkeypatch.setenv("PATH", path)
        yield names


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two nodes with a slurmd each."""
    with slurm_nodes(tmp_path) as (variables, names):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield names
