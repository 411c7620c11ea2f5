"""The only place that holds what a trial takes from the machine for its injections, and gives it back."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainspec_conformance.disk import CannotMountError, SmallDisk
from trainspec_conformance.hosts import Hosts
from trainspec_validate.documents.scenario import Inject, Scenario

DISK_BYTES = 256 << 20
_DISK_KINDS = frozenset({"fill-disk", "free-disk", "fail-writes", "mend-writes"})


class Means:
    """Hosts and a disk, as far as a scenario needs them."""

    def __init__(self, scenario: Scenario, directory: Path, store: Path) -> None:
        """Take them.

        Raises:
            NotAllowedError: the machine does not allow what the scenario needs.
        """
        kinds = {act.kind for act in scenario.acts if isinstance(act, Inject)}
        self.hosts = Hosts(scenario, directory, store)
        self.disk: SmallDisk | None = None
        if kinds & _DISK_KINDS:
            try:
                self.disk = SmallDisk(store, DISK_BYTES)
            except CannotMountError as error:
                self.hosts.close()
                raise CannotMountError(f"a small disk for the store cannot be mounted: {error}") from error

    def close(self, kept: Path) -> None:
        """Give all back, and keep a copy of what the disk held.

        Raises:
            CannotMountError: something still uses the disk.
        """
        self.hosts.close()
        if self.disk is not None:
            shutil.copytree(self.disk.directory, kept, symlinks=True, ignore_dangling_symlinks=True)
            self.disk.close()
