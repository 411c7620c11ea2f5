"""Forms and dissolves the process groups of a formation, distinguishes a lost peer from a bug, and gathers norms."""

from __future__ import annotations

import gc
import os
import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from trainspec_reference.common.backend import Formation, PeerLostError
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.torch.parallel import ContextSplit, ExpertSplit, TensorSplit, all_gather_flat
from trainspec_reference.torch.parts import Part

_PEER_WORDS = re.compile(r"gloo/|nccl|timed? ?out|connection|socket|broken pipe|by peer", re.IGNORECASE)


@contextmanager
def peers_needed() -> Iterator[None]:
    """Raise `PeerLostError` for what the libraries raise when a peer is gone; other errors pass."""
    try:
        yield
    except PeerLostError:
        raise
    except (dist.DistError, RuntimeError) as error:
        if isinstance(error, dist.DistError) or _PEER_WORDS.search(str(error)):
            raise PeerLostError(str(error).splitlines()[0]) from error
        raise


class Groups:
    """Groups of one formation; a group of one rank is None.

    `copies` are the ranks that hold the same parameters and sum their gradients: data ranks, each of as many context
    ranks as share a sequence. Where those ranks divide the experts, `copies` are the ones with the same experts, and
    `sharers` all of them, which hold the other parameters alike.
    """

    def __init__(self, formation: Formation, grid: RankGrid, device: torch.device) -> None:
        self.device = device
        self.made: list[weakref.ref[dist.ProcessGroup]] = []
        """All groups that this rank is in."""
        self.formation, self.grid, self.place = formation, grid, grid.place(formation.rank)
        if device.type == "cuda":
            hosts = formation.hosts[: formation.rank]
            torch.cuda.set_device(hosts.count(formation.hosts[formation.rank]) % torch.cuda.device_count())
            # The recorder names the device by it: NVML counts devices in another order than CUDA may.
            os.environ["TRAINSPEC_DEVICE"] = f"GPU-{torch.cuda.get_device_properties().uuid}"
        with peers_needed():
            self._join(formation, device)
            self.made += [weakref.ref(dist.group.WORLD)] if dist.group.WORLD is not None else []
            self.sharers, self.tensor = self._group("data", "context"), self._group("tensor")
            self.copies = self.sharers if grid.parallelism.expert == 1 else self._among(grid.copy_groups())
            # Groups of their own for experts, too, since tokens travel while gradients are summed.
            self.experts = ExpertSplit(self._among(grid.expert_groups(), is_apart=True))
            self.pipeline = self._group("pipeline")
            # A group of its own: attention exchanges on it while a thread sums gradients over the copies.
            self.context = self._context(self._among(grid.groups("context"), is_apart=True))
            self.ends = self._among([ranks[:: len(ranks) - 1 or 1] for ranks in grid.groups("pipeline")])
            self.files = self._among([tuple(range(formation.num_ranks))], backend="gloo")
            self.in_host, self.across_hosts, self.leaders = self._by_host()

    def _join(self, formation: Formation, device: torch.device) -> None:
        host, port = formation.address.rsplit(":", 1)
        if host in ("127.0.0.1", "localhost"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else gloo takes the address of the host's name
        timeout = timedelta(seconds=formation.timeout_seconds)
        is_first = formation.rank == 0
        self.store = TCPStore(
            host, int(port), is_master=is_first, timeout=timeout, wait_for_workers=False, use_libuv=True
        )
        dist.init_process_group(
            self._backend(device),
            store=PrefixStore(f"formation-{formation.number}", self.store),
            rank=formation.rank,
            world_size=formation.num_ranks,
            timeout=timeout,
        )

    def _backend(self, device: torch.device) -> str:
        """NCCL takes one rank for each device; where any host has more, all ranks exchange over gloo, by the host.

        Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
        """
        if device.type != "cuda":
            return "gloo"
        hosts, rank = self.formation.hosts, self.formation.rank
        own = hosts.count(hosts[rank]) <= torch.cuda.device_count()
        self.store.set(f"{self.formation.number}/device/{rank}", str(int(own)))
        keys = [f"{self.formation.number}/device/{other}" for other in range(len(hosts))]
        return "nccl" if all(found == b"1" for found in self.store.multi_get(keys)) else "gloo"

    def _group(self, *axes: str) -> dist.ProcessGroup | None:
        return self._among(self.grid.groups(*axes))  # type: ignore[arg-type]

    def _context(self, group: dist.ProcessGroup | None) -> ContextSplit:
        degrees = self.grid.degrees
        num_divisions = degrees["tensor"] if bool(self.grid.parallelism.sequence) else 1
        return ContextSplit(group, self.place["context"], degrees["context"], num_divisions)

    def _among(
        self, members: Sequence[tuple[int, ...]], backend: str | None = None, *, is_apart: bool = False
    ) -> dist.ProcessGroup | None:
        """Make all of these groups, on every rank in this order, and return the one of this rank."""
        own: dist.ProcessGroup | None = None
        for ranks in members:
            if len(ranks) == 1:
                continue
            whole = backend is None and not is_apart and len(ranks) == self.formation.num_ranks
            group = dist.group.WORLD if whole else dist.new_group(list(ranks), backend=backend)
            if self.formation.rank in ranks:
                own = group
                self.made += [weakref.ref(group)] if group is not None else []
        return own

    def _by_host(self) -> tuple[dist.ProcessGroup | None, ...]:
        """The copies on this host, those of all hosts at the same place in theirs, and the first of each host."""
        hosts, local, across, leaders = self.formation.hosts, [], [], []
        for ranks in self.grid.groups("data", "context"):
            by_host: dict[str, list[int]] = {}
            for rank in ranks:
                by_host.setdefault(hosts[rank], []).append(rank)
            local += [tuple(group) for group in by_host.values()]
            leaders.append(tuple(group[0] for group in by_host.values()))
            if len({len(group) for group in by_host.values()}) == 1:
                across += list(zip(*by_host.values(), strict=True))
        if len(set(hosts)) == 1:
            return None, None, None
        return self._among(local), self._among(across), self._among(leaders)

    @property
    def is_by_host(self) -> bool:
        """Whether tensors of a device pass the host between two ranks: gloo sends no others from one to another."""
        return self.device.type == "cuda" and dist.get_backend() == "gloo"

    @property
    def num_copies(self) -> int:
        """Ranks that hold the same parameters."""
        return self.copies.size() if self.copies is not None else 1

    @property
    def copy(self) -> int:
        """Number of this rank among the copies, as their group counts."""
        return self.copies.rank() if self.copies is not None else 0

    @property
    def part(self) -> Part:
        """The part of the model that this rank holds."""
        degrees = self.grid.degrees
        return Part(
            stage=self.place["pipeline"],
            num_stages=degrees["pipeline"],
            tensor_rank=self.place["tensor"],
            tensor_degree=degrees["tensor"],
            split=TensorSplit(self.tensor, bool(self.grid.parallelism.sequence)),
            expert_rank=self.place.get("expert", 0),
            expert_degree=self.grid.parallelism.expert,
        )

    def sum_of(self, values: torch.Tensor) -> torch.Tensor:
        """The tensor summed over all ranks, in place."""
        if self.formation.num_ranks > 1:
            with peers_needed():
                dist.all_reduce(values)
        return values

    def all_of(self, values: torch.Tensor) -> torch.Tensor:
        """The tensors of all ranks, stacked in order of rank."""
        if self.formation.num_ranks == 1:
            return values[None]
        gathered = values.new_empty((self.formation.num_ranks * values.numel(),))
        with peers_needed():
            all_gather_flat(gathered, values.contiguous().flatten())
        return gathered.view(self.formation.num_ranks, *values.shape)

    def abort(self) -> None:
        """End what waits for peers, from any thread: kernels of NCCL wait until they are aborted."""
        if self.device.type != "cuda" or self.formation.num_ranks == 1:
            return
        for group in dict.fromkeys(made() for made in self.made):
            if group is not None and dist.get_backend(group) == "nccl":
                group.abort()

    def leave(self) -> None:
        """Close all connections, so that no peer waits for this rank."""
        if not dist.is_initialized():
            return
        self.abort()  # a plain destroy waits for kernels that no peer will join
        dist.destroy_process_group()


@contextmanager
def let_go(groups: Sequence[weakref.ref[dist.ProcessGroup]]) -> Iterator[None]:
    """A block after which nothing holds these groups, so that their connections are closed.

    A group of gloo closes none before it is deleted: a rank that is no neighbour of a lost one waits for them.
    """
    yield
    if any(group() is not None for group in groups):
        gc.collect()


def gather_noise(
    groups: Groups, sizes: Sequence[int], squared_norms: Sequence[float], num_targets: int
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Targets, and squared norm of the mean gradient, of each group; groups without a target are left out.

    `squared_norms` are of this rank's part of the gradients as the step sums them, each target weighing
    1/num_targets; a group's own mean weighs each by 1/size. Parts of one replica are added, as squares of norms are.

    Raises:
        ValueError: ranks divide experts.
    """
    if groups.part.expert_degree > 1:
        raise ValueError("experts learn from the tokens of several data ranks: no rank has a gradient of its own")
    device = groups.device
    most = int(groups.all_of(torch.tensor(float(len(sizes)), dtype=torch.float64, device=device)).max())
    table = torch.zeros(groups.grid.degrees["data"], most, 2, dtype=torch.float64, device=device)
    counts = groups.part.is_last and not groups.part.tensor_rank
    is_teller = not groups.place["context"]  # norms of whole sequences are known to all that share them
    for number, (size, squared) in enumerate(zip(sizes, squared_norms, strict=True)):
        if size and is_teller:
            scaled = squared * (num_targets / size) ** 2
            table[groups.place["data"], number] = torch.tensor([size if counts else 0, scaled], dtype=torch.float64)
    rows = [row for row in groups.sum_of(table).flatten(0, 1).tolist() if row[0]]
    return tuple(int(row[0]) for row in rows), tuple(row[1] for row in rows)
