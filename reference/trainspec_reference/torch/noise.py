"""Gathers the gradient norms of independent groups: data ranks times their micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainspec_reference.torch.groups import Groups


def gather(
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
