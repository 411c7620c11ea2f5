"""Serves JAX's coordination service from a process of its own, so that rank 0 is like any other rank.

`jax.distributed.initialize` has rank 0 serve the group, so that all ranks end with it:
https://docs.jax.dev/en/latest/fault_tolerance.html. No public interface starts that service elsewhere. Here the
controller starts a process that serves, and that outlives the loss of any rank. Where a version of JAX lacks the names
below, that process ends at once, and rank 0 serves by JAX's default.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from trainspec_reference.common.backend import Formation
from trainspec_reference.common.crew import die_with_parent

CONNECT_SECONDS = 60.0
"""Longest wait for all peers to appear; they start one after the other and import their libraries first."""
HEARTBEAT_SECONDS = 10
SHUTDOWN_SECONDS = 1


def connect(formation: Formation) -> None:
    """Connect to the service of a formation, as `jax.distributed.initialize` does on ranks that do not serve."""
    client = _runtime().get_distributed_runtime_client(
        formation.address,
        formation.rank,
        init_timeout=int(CONNECT_SECONDS),
        heartbeat_timeout=heartbeat_seconds(formation),
        use_compression=True,
    )
    client.connect()
    state: Any = import_module("jax._src.distributed").global_state
    state.coordinator_address = formation.address
    state.client, state.process_id, state.num_processes = client, formation.rank, formation.num_ranks


def heartbeat_seconds(formation: Formation) -> int:
    """Silence after which a peer counts as lost; closed connections reveal a lost peer much sooner."""
    return max(HEARTBEAT_SECONDS, int(2 * formation.timeout_seconds))


def serve() -> None:
    """Serve groups: a line `host:port ranks seconds` asks for one, and is answered when it is there.

    A service stays for as long as this process, for a rank that lost its service would end.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as JAX does it
    services = []
    for line in sys.stdin:
        address, num_ranks, seconds = line.split()
        service = _runtime().get_distributed_runtime_service(
            address, int(num_ranks), heartbeat_timeout=int(seconds), shutdown_timeout=SHUTDOWN_SECONDS, recoverable=True
        )
        services.append(service)
        print("served", flush=True)  # noqa: T201 - the answer


def _runtime() -> Any:
    return import_module("jaxlib._jax")


if __name__ == "__main__":
    die_with_parent()
    serve()
    os._exit(0)  # services wait for peers when they are taken down
