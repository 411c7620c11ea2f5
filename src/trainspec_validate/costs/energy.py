"""The only place that computes energy: what a run draws at most and at least, and what one token costs."""

from __future__ import annotations

IDLE_SHARE = 0.1
"""Least mean draw of an accelerator as a share of its limit; idle boards of 700 W draw 70 to 100 W."""
NETWORK_SHARE = 0.25
"""Most that switches add to the nodes; MLPerf Training v4.0 estimates 13.6 % for 512 H100."""
RESTART_SHARE = 0.1
"""Time beyond the plan that restarts may add."""


def least_joules(accelerator_watts: float, num_accelerators: float, seconds: float) -> float:
    """Joules that accelerators draw even when they wait.

    >>> round(least_joules(700, 512, 3412) / 3.6e6, 1)
    34.0

    Raises:
        ValueError: an argument is not positive.
    """
    _positive(accelerator_watts, num_accelerators, seconds)
    return IDLE_SHARE * accelerator_watts * num_accelerators * seconds


def most_joules(watts: float, seconds: float, *, with_network: bool = False, overhead: float = 1) -> float:
    """Joules at full draw for the planned time and a tenth more, with switches and overhead if asked.

    MLPerf Training v4.0, GPT-3 on 64 nodes of eight H100: 415.3 kWh measured in 3412 s, against

    >>> round(most_joules(64 * 10200, 3412) / 3.6e6)
    681

    Raises:
        ValueError: an argument is not positive, or the overhead is below 1.
    """
    _positive(watts, seconds)
    if overhead < 1:
        raise ValueError(f"a facility cannot use {overhead} of what its machines use")
    return (1 + RESTART_SHARE) * watts * seconds * (1 + NETWORK_SHARE * with_network) * overhead


def least_joules_per_token(
    num_active_parameters: float, peak_flops_per_second: float, watts: float, operations: float = 6
) -> float:
    """Joules of one token when all operations of the model run at the peak rate for half the power limit.

    Six operations for each parameter and token: arXiv:2001.08361, section 2.1. GPT-3 on H100 with fp8 took
    1.24 J; the least is

    >>> round(least_joules_per_token(175e9, 1979e12, 700), 2)
    0.19

    Raises:
        ValueError: an argument is not positive.
    """
    _positive(num_active_parameters, peak_flops_per_second, watts, operations)
    return 0.5 * operations * num_active_parameters * watts / peak_flops_per_second


def _positive(*values: float) -> None:
    if min(values) <= 0:
        raise ValueError(f"not all positive: {values}")
