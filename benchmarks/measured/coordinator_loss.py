"""Measures what becomes of a process of JAX whose coordinator is killed.

Run with `python benchmarks/measured/coordinator_loss.py`. Two processes form a group; the one that coordinates kills
itself, and the other only waits. The line says how the other one ended, and after how long, or that it was still
there.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec

TIMEOUT_SECONDS = 150.0


def work(address: str, number: int) -> None:
    """One process of the group."""
    import jax  # noqa: PLC0415

    jax.distributed.initialize(address, num_processes=2, process_id=number)
    print("joined", flush=True)
    sys.stdin.readline()
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(2 * TIMEOUT_SECONDS)


def main() -> int:
    """Print how the process without a coordinator ends; 0 also where JAX is not installed."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]))
        return 0
    if find_spec("jax") is None:
        print("not measured: jax is not installed")
        return 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--work", address, str(number)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout
            process.stdout.readline()
        start = time.monotonic()
        for process in processes:
            assert process.stdin
            process.stdin.write("continue\n")
            process.stdin.flush()
        status = processes[1].wait(TIMEOUT_SECONDS)
        seconds = time.monotonic() - start
        print(f"the process without a coordinator ends with status {status} after {seconds:.0f} s")
    except subprocess.TimeoutExpired:
        print(f"the process without a coordinator still runs after {TIMEOUT_SECONDS:.0f} s")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
