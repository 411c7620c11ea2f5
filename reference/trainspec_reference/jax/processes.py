"""Forms and leaves the group of JAX processes, and bounds every wait for a peer.

Rank 0 serves the group, so that JAX ends all ranks where it is lost; the controller starts all of them anew, whichever
rank was lost. Source: https://docs.jax.dev/en/latest/fault_tolerance.html
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import jax

from trainspec_reference.common.backend import Formation, PeerLostError

CONNECT_SECONDS = 60.0
"""Longest wait for all peers to appear; they start one after the other and import their libraries first."""
HEARTBEAT_SECONDS = 10
SHUTDOWN_SECONDS = 1
LOST_EXIT_CODE = 75
"""Exit of a process that leaves after it lost a peer, where nothing else ends it before the interpreter does."""
BUILD_SECONDS = 300.0
"""Longest wait for all peers to compile their first step."""
_OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED", "CUDA_ERROR", "CUDNN", "CUBLAS", "ptxas")


class Processes:
    """The processes of one formation; JAX knows only one in the life of a process."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self._is_connected = False
        self._is_lost = False
        self._timeout_seconds = CONNECT_SECONDS

    def join(self, formation: Formation) -> None:
        """Connect to all peers of the formation.

        Raises:
            PeerLostError: a peer did not appear.
            ValueError: this process was in another formation before.
        """
        self._timeout_seconds = formation.timeout_seconds
        threading.Thread(target=self._serve, daemon=True, name="collectives").start()
        if jax.distributed.is_initialized():
            self._check_same(formation)
        if jax.distributed.is_initialized() or formation.num_ranks == 1:
            return
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        # Without it the loss of a peer ends this process, too. https://docs.jax.dev/en/latest/fault_tolerance.html
        jax.config.update("jax_enable_recoverability", True)
        jax.config.update("jax_enable_preemption_service", False)
        self.wait(lambda: self._initialize(formation), CONNECT_SECONDS)
        self._is_connected = True

    def leave(self) -> None:
        """Give the group up, within a second; after a loss the interpreter's end cannot wait for peers either."""
        if self._is_lost:
            atexit.register(os._exit, LOST_EXIT_CODE)
        elif self._is_connected:
            ended = threading.Thread(target=_shut_down, daemon=True)
            ended.start()
            ended.join(SHUTDOWN_SECONDS)
            if ended.is_alive():
                atexit.register(os._exit, 0)
        self._is_connected = False

    def wait(self, work: Callable[[], Any], timeout_seconds: float | None = None) -> Any:
        """Result of the work, which may wait for peers.

        Raises:
            PeerLostError: a peer is gone or did not answer in time; the work is then abandoned.
        """
        if self._is_lost:
            raise PeerLostError("a peer of this formation was lost before")
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        limit = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        self._calls.put((work, answer))
        try:
            found, error = answer.get(timeout=limit)
        except queue.Empty:
            self._is_lost = True
            raise PeerLostError(f"no answer of a peer within {limit:g} s") from None
        if error is None:
            return found
        if self._is_connected and _is_of_a_peer(error):
            self._is_lost = True
            raise PeerLostError(f"a peer is gone: {str(error).splitlines()[0][:300]}") from error
        raise error

    def _check_same(self, formation: Formation) -> None:
        if (jax.process_count(), jax.process_index()) != (formation.num_ranks, formation.rank):
            raise ValueError("JAX cannot form a second group in one process: start a new process")

    def _serve(self) -> None:
        while True:
            work, answer = self._calls.get()
            try:
                answer.put((work(), None))
            except Exception as error:  # it is raised again where the work was asked for
                answer.put((None, error))

    def _initialize(self, formation: Formation) -> None:
        jax.distributed.initialize(
            formation.address,
            formation.num_ranks,
            formation.rank,
            local_device_ids=local_devices(formation),
            initialization_timeout=int(CONNECT_SECONDS),
            heartbeat_timeout_seconds=_heartbeat_seconds(formation),
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )


def _heartbeat_seconds(formation: Formation) -> int:
    """Silence after which a peer counts as lost; closed connections reveal a lost peer much sooner."""
    return max(HEARTBEAT_SECONDS, int(2 * formation.timeout_seconds))


def local_devices(formation: Formation) -> list[int] | None:
    """The accelerator of a rank: a process of JAX takes all of a host unless it names its own.

    Source: https://docs.jax.dev/en/latest/_autosummary/jax.distributed.initialize.html
    """
    if jax.config.jax_platforms == "cpu":  # type: ignore[attr-defined]
        return None
    return [formation.hosts[: formation.rank].count(formation.hosts[formation.rank])]


def _is_of_a_peer(error: Exception) -> bool:
    # Gloo's failures come as ValueError, those of the coordinator and of NCCL as JaxRuntimeError.
    text = str(error)
    if "Gloo" in text or "NCCL" in text:
        return True
    return isinstance(error, jax.errors.JaxRuntimeError) and not any(word in text for word in _OWN_FAULTS)


def _shut_down() -> None:
    with contextlib.suppress(Exception):  # a peer that has gone first is no fault here
        jax.distributed.shutdown()
