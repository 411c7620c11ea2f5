"""Takes from the machine the resources that a trial needs for its injections, and releases them."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from trainspec_conformance.disk import CannotMountError, SmallDisk
from trainspec_conformance.host_faults import DISK
from trainspec_conformance.hosts import AnyHosts, Hosts
from trainspec_conformance.memory import MemoryGroup
from trainspec_conformance.node_hosts import NodeHosts
from trainspec_conformance.nodes import Nodes
from trainspec_validate.documents.types.scenario import Inject, Scenario

DISK_BYTES = 256 << 20


class Means:
    """Hosts, a disk and a limit of memory, as far as a scenario needs them."""

    def __init__(self, scenario: Scenario, directory: Path, store: Path, nodes: Nodes | None = None) -> None:
        """Take them.

        Raises:
            NotAllowedError: the machine does not allow what the scenario needs.
        """
        kinds = {act.kind for act in scenario.acts if isinstance(act, Inject)}
        self.disk: SmallDisk | None = None
        self.memory: MemoryGroup | None = None
        with ExitStack() as taken:
            self.hosts: AnyHosts = (
                NodeHosts(scenario, nodes, directory, store) if nodes else Hosts(scenario, directory, store)
            )
            taken.callback(self.hosts.close)
            if "kill-at-memory-limit" in kinds:
                self.memory = MemoryGroup()
                taken.callback(self.memory.close)
            if kinds & DISK and nodes is None:
                self.disk = _mounted(store)
            self._taken = taken.pop_all()

    def close(self, kept: Path) -> None:
        """Give all back, and keep a copy of what the disk held.

        Raises:
            CannotMountError: something still uses the disk.
        """
        self._taken.close()
        if self.disk is not None:
            shutil.copytree(self.disk.directory, kept, symlinks=True, ignore_dangling_symlinks=True)
            self.disk.close()


def _mounted(store: Path) -> SmallDisk:
    try:
        return SmallDisk(store, DISK_BYTES)
    except CannotMountError as error:
        raise CannotMountError(f"a small disk for the storage target cannot be mounted: {error}") from error
