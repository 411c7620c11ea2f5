"""All-reduce of a gradient between hosts: flat, by a ring, by a tree, and in two levels, over a link that is shaped.

Run as root with `python benchmarks/trainer_network.py`; `--short` keeps to seconds. Each host is one of those that the
conformance suite makes, with a token bucket (tbf) on its link; ranks of one host share it. Where the kernel does
not allow this, the program says so and measures nothing. All algorithms run in turn in the same processes, round after
round.
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
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine
from trainspec_conformance.network import INTERFACE, MTU_BYTES, Network
from trainspec_conformance.privileges import NotAllowedError

ALGORITHMS = ("automatic", "ring", "tree", "hierarchical")
NUM_BYTES = 8 * 2**20
PORT = 29411
TIMEOUT_SECONDS = 120.0
BURST_BYTES = 2 * MTU_BYTES


def shape(network: Network, rate: str) -> None:
    """Let the link of each host carry `rate` out of it.

    Raises:
        subprocess.CalledProcessError: the kernel has no token bucket.
    """
    bucket = ["tbf", "rate", rate, "burst", f"{BURST_BYTES}", "latency", "200ms"]
    for host in network.hosts:
        command = [*host.enter, "tc", "qdisc", "add", "dev", INTERFACE, "root", *bucket]
        subprocess.run(command, check=True, capture_output=True, text=True)


def worker(rank: int, hosts: Sequence[str], address: str, num_rounds: int) -> None:
    """One rank: print the seconds of each round of each algorithm, in JSON, on the first."""
    import torch  # noqa: PLC0415
    from trainspec_conformance.testbed.torch.algorithms import ring, tree  # noqa: PLC0415
    from trainspec_reference.common.backend import Formation  # noqa: PLC0415
    from trainspec_reference.common.ranks import RankGrid  # noqa: PLC0415
    from trainspec_reference.torch.exchange import data_sum  # noqa: PLC0415
    from trainspec_reference.torch.groups import Groups  # noqa: PLC0415

    from trainspec_validate.documents.types.communication import Communication  # noqa: PLC0415
    from trainspec_validate.documents.types.parallelism import Parallelism  # noqa: PLC0415

    torch.set_num_threads(1)
    formation = Formation(0, rank, tuple(hosts), address, TIMEOUT_SECONDS)
    grid = RankGrid(Parallelism(num_accelerators=len(hosts), data=len(hosts)), len(hosts))
    groups = Groups(formation, grid, torch.device("cpu"))
    sums = {
        "automatic": data_sum(groups, Communication()),
        "ring": partial(ring, group=groups.sharers),
        "tree": partial(tree, group=groups.sharers),
        "hierarchical": data_sum(groups, Communication(hierarchical_reduction=True)),
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
    environment = os.environ | {"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[str]] = []
    network = Network(num_hosts)
    try:
        shape(network, rate)
        address = f"{network.hosts[0].address}:{PORT}"
        for rank in range(len(hosts)):
            command = [*network.hosts[rank // num_local].enter, sys.executable, __file__, "--rank", str(rank)]
            command += ["--hosts", ",".join(hosts), "--address", address, "--rounds", str(num_rounds)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        output, _ = processes[0].communicate(timeout=TIMEOUT_SECONDS + 60 * num_rounds)
        return {name: list(seconds) for name, seconds in json.loads(output).items()}
    finally:
        for process in processes:
            process.kill()
            process.wait()
        network.close()


def main() -> int:
    """Print the time of each algorithm, and how many times as fast as the flat one of the library it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few rounds, one shape")
    parser.add_argument("--rate", default="100mbit", help="what a host's link carries, in the words of tc")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hosts", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that are timed")
    options = parser.parse_args()
    if options.rank is not None:
        worker(options.rank, options.hosts.split(","), options.address, options.rounds)
        return 0
    print(machine.describe("torch"))
    num_rounds = 3 if options.short else options.rounds
    for num_hosts, num_local in ((2, 2),) if options.short else ((2, 2), (2, 4), (4, 2)):
        print(f"\n{num_hosts} hosts of {num_local} ranks, {NUM_BYTES >> 20} MiB, {options.rate} out of each host")
        try:
            found = measure(num_hosts, num_local, options.rate, num_rounds)
        except (NotAllowedError, subprocess.CalledProcessError, OSError) as error:
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
