"""Names the collectives on flat tensors, whose names PyTorch 2.13 has changed."""

from __future__ import annotations

import torch.distributed as dist

all_gather_flat = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_flat = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Under the names of PyTorch 2.13, or those before it."""
