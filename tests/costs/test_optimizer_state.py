"""Optimizer state by formula against the tensors that optimizers of PyTorch keep after a step."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.performance.costs.optimizer_state import NUM_MOMENTS, factor_numbers

torch = pytest.importorskip("torch")
SIDES = ((48, 96), (256, 48), (64, 64))


def numbers_kept(optimizer: Any) -> int:
    """Numbers of all tensors of state with more than one element; counters of steps have one."""
    return sum(
        value.numel()
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value) and value.numel() > 1
    )


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("adam", "Adam", {}),
        ("adamw", "AdamW", {}),
        ("sgd", "SGD", {"momentum": 0.9}),
        ("muon", "Muon", {}),
        ("adafactor", "Adafactor", {}),
    ],
)
def test_state_of_an_optimizer(name: str, kind: str, options: dict[str, float]) -> None:
    made = getattr(torch.optim, kind, None)
    if made is None:
        pytest.skip(f"this PyTorch has no {kind}")
    parameters = [torch.nn.Parameter(torch.ones(sides)) for sides in SIDES]
    optimizer = made(parameters, lr=1e-3, **options)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()
    expected = sum(
        NUM_MOMENTS[name][1] * rows * columns + factor_numbers(name, rows, columns) for rows, columns in SIDES
    )
    assert numbers_kept(optimizer) == expected
