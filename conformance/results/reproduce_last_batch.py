"""Shows, without the suite, how an epoch ends whose length is not a multiple of the batch.

A loader of torch, which Lightning, DeepSpeed and Ray Train take as it is, deals out what is left. Accelerate, and the
Trainer with it, fills up with samples that the epoch has had already.
"""

from __future__ import annotations

import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

NUM_SAMPLES, BATCH, NUM_RANKS = 14, 4, 2


def main() -> None:
    """Print the batches of each rank."""
    samples = torch.arange(NUM_SAMPLES)
    for rank in range(NUM_RANKS):
        own = DistributedSampler(samples, NUM_RANKS, rank, shuffle=False)
        print(f"torch, rank {rank}: {[one.tolist() for one in DataLoader(samples, BATCH, sampler=own)]}")  # noqa: T201
        shard = BatchSamplerShard(BatchSampler(range(NUM_SAMPLES), BATCH, drop_last=False), NUM_RANKS, rank)
        print(f"Accelerate, rank {rank}: {list(shard)}")  # noqa: T201


if __name__ == "__main__":
    main()
