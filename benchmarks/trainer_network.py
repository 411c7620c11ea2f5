"""All-reduce of a gradient between hosts: flat, by a ring, by a tree, and in two levels, over a link that is shaped.

Run as root with `python benchmarks/trainer_network.py`; `--short` keeps to seconds. Each host is a network namespace
of its own, with a token bucket (tbf) on its link; ranks of one host share it. What the kernel does not allow is told,
and nothing is measured then. All algorithms run in turn in the same processes, round after round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine

ALGORITHMS = ("automatic", "ring", "tree", "hierarchical")
NUM_BYTES = 8 * 2**20
PORT = 29411
TIMEOUT_SECONDS = 120.0
PREFIX = f"tsb{os.getpid()}"


def ip(*words: str) -> None:
    """Change the network.

    Raises:
        subprocess.CalledProcessError: the kernel refuses, or the user may not.
    """
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def raise_hosts(num_hosts: int, rate: str) -> None:
    """Make so many hosts around one switch, each with a link that carries `rate` out of it."""
    switch = f"{PREFIX}s"
    ip("netns", "add", switch)
    ip("-n", switch, "link", "add", "br0", "type", "bridge")
    ip("-n", switch, "link", "set", "br0", "up")
    for number in range(num_hosts):
        host, port = f"{PREFIX}h{number}", f"p{number}"
        ip("netns", "add", host)
        ip("link", "add", "name", "eth0", "netns", host, "type", "veth", "peer", "name", port, "netns", switch)
        ip("-n", switch, "link", "set", port, "master", "br0", "up")
        ip("-n", host, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
        for link in ("eth0", "lo"):
            ip("-n", host, "link", "set", link, "up")
        shaping = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "200ms"]
        subprocess.run(["tc", "-n", host, *shaping], check=True, capture_output=True, text=True)


def drop_hosts(num_hosts: int) -> None:
    """Remove all of it."""
    for name in (f"{PREFIX}s", *(f"{PREFIX}h{number}" for number in range(num_hosts))):
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def worker(rank: int, hosts: Sequence[str], num_rounds: int) -> None:
    """One rank: print the seconds of each round of each algorithm, in JSON, on the first."""
    import torch  # noqa: PLC0415
    from trainspec_reference.common.backend import Formation  # noqa: PLC0415
    from trainspec_reference.common.ranks import RankGrid  # noqa: PLC0415
    from trainspec_reference.torch.algorithms import DataSum  # noqa: PLC0415
    from trainspec_reference.torch.groups import Groups  # noqa: PLC0415

    from trainspec_validate.documents.communication import CollectiveChoice, Communication  # noqa: PLC0415
    from trainspec_validate.documents.parallelism import Parallelism  # noqa: PLC0415

    torch.set_num_threads(1)
    formation = Formation(0, rank, tuple(hosts), f"10.77.0.1:{PORT}", TIMEOUT_SECONDS)
    grid = RankGrid(Parallelism(num_accelerators=len(hosts), data=len(hosts)), len(hosts))
    groups = Groups(formation, grid, torch.device("cpu"))
    sums = {
        name: DataSum(
            groups,
            Communication(collectives=(CollectiveChoice(operation="all-reduce", axis="data", algorithm=name),)),
        )
        for name in ALGORITHMS
    }
    found: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
    gradient = torch.ones(NUM_BYTES // 4)
    for number in range(num_rounds + 1):
        for name, total in sums.items():
            groups.all_of(torch.zeros(1))
            start = time.perf_counter()
            total(gradient)
            slowest = float(groups.all_of(torch.tensor(time.perf_counter() - start, dtype=torch.float64)).max())
            if number:
                found[name].append(slowest)
            gradient.fill_(1.0)
    groups.leave()
    if rank == 0:
        print(json.dumps(found))


def measure(num_hosts: int, num_local: int, rate: str, num_rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by algorithm."""
    hosts = [f"h{number}" for number in range(num_hosts) for _ in range(num_local)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[str]] = []
    try:
        raise_hosts(num_hosts, rate)
        for rank, host in enumerate(hosts):
            command = [sys.executable, __file__, "--rank", str(rank), "--hosts", ",".join(hosts)]
            command = ["ip", "netns", "exec", f"{PREFIX}{host}", *command, "--rounds", str(num_rounds)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        output, _ = processes[0].communicate(timeout=TIMEOUT_SECONDS + 60 * num_rounds)
        return {name: list(seconds) for name, seconds in json.loads(output).items()}
    finally:
        for process in processes:
            process.kill()
            process.wait()
        drop_hosts(num_hosts)


def main() -> int:
    """Print the time of each algorithm, and how many times as fast as the flat one of the library it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few rounds, one shape")
    parser.add_argument("--rate", default="100mbit", help="what a host's link carries, in the words of tc")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that are timed")
    options = parser.parse_args()
    if options.rank is not None:
        worker(options.rank, options.hosts.split(","), options.rounds)
        return 0
    print(machine.describe("torch"))
    num_rounds = 3 if options.short else options.rounds
    for num_hosts, num_local in ((2, 2),) if options.short else ((2, 2), (2, 4), (4, 2)):
        print(f"\n{num_hosts} hosts of {num_local} ranks, {NUM_BYTES >> 20} MiB, {options.rate} out of each host")
        try:
            found = measure(num_hosts, num_local, options.rate, num_rounds)
        except (subprocess.CalledProcessError, OSError) as error:
            reason = getattr(error, "stderr", None) or str(error)
            print(f"  not measured: {reason.strip()} (this needs root, network namespaces and tbf)")
            return 0
        flat = statistics.median(found["automatic"])
        for name, seconds in found.items():
            median, low, high = statistics.median(seconds), min(seconds), max(seconds)
            print(f"  {name:14} {median:6.3f} s ({low:.3f} to {high:.3f})  {flat / median:5.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
