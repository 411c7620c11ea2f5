"""Computes energy: bounds and predictions of a run, its boundaries, one token, and carbon."""

from __future__ import annotations

import math
from dataclasses import dataclass

JOULES_PER_KILOWATT_HOUR = 3.6e6
HOST_SHARE = 0.8
"""Full power of the rest of a node over that of its accelerators: 0.82 in a DGX H100 (10.2 kW for 5.6 kW), 0.79 in a
DGX B200 (14.3 kW for 8 kW); largest input by NVIDIA's user guides. Older nodes have more, a DGX A100 1.03."""
BUSY_SHARE = 0.69
"""Mean power of a node that works without waiting, over its full power."""
WAITING_SHARE = 0.46
"""Mean power of a node that only waits for others, over its full power, by the same fit; see `mean_node_watts`."""
NETWORK_ESTIMATE = 0.136
"""Share that switches add to the power of the nodes: 59.6 kW to 438 kW for 512 H100, MLPerf Training v4.0."""
MOST_CARBON_INTENSITY = 2.0
"""Kilograms per kilowatt-hour beyond which an intensity is in another unit; the oldest coal plants emit 1.5."""
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


def node_watts(num_accelerators: int, accelerator_watts: float, host_share: float = HOST_SHARE) -> float:
    """Full power of a node from the limits of its accelerators and the share that the rest adds.

    >>> round(node_watts(8, 700)), round(node_watts(8, 1000))
    (10080, 14400)

    Raises:
        ValueError: a number is not positive, or the share is negative.
    """
    _positive(num_accelerators, accelerator_watts)
    if host_share < 0:
        raise ValueError(f"the rest of a node draws {host_share} of its accelerators")
    return num_accelerators * accelerator_watts * (1 + host_share)


def mean_node_watts(full_watts: float, busy: float = 1.0) -> float:
    """Mean power of a node in training, from its full power and the share of time that it works.

    `busy` is the throughput of a node over that of the best run of the same job, for example of one node alone. Both
    shares are fitted to nine power logs of MLPerf Training v4.0 to v5.0 (H100 and B200, 1 to 64 nodes; busy 0.23 to 1);
    `benchmarks/score_energy.py` fits and scores them with a system or a maker left out. GPT-3 on 64 nodes of eight H100
    drew 6.85 kW per node; predicted:

    >>> round(mean_node_watts(node_watts(8, 700)))
    6955

    Raises:
        ValueError: the power is not positive, or busy is not between 0 and 1.
    """
    _positive(full_watts)
    if not 0 <= busy <= 1:
        raise ValueError(f"a node is busy for a share of {busy} of the time, wanted 0 to 1")
    return full_watts * (WAITING_SHARE + (BUSY_SHARE - WAITING_SHARE) * busy)


def predicted_joules(num_nodes: int, full_watts: float, seconds: float, busy: float = 1.0) -> float:
    """Energy of all nodes in a time, from `mean_node_watts`.

    MLPerf Training v4.0 measured 415.3 kWh for GPT-3 on 64 nodes of eight H100 in 3412 s:

    >>> round(predicted_joules(64, node_watts(8, 700), 3412) / JOULES_PER_KILOWATT_HOUR, 1)
    421.9

    Raises:
        ValueError: a number is not positive, or as `mean_node_watts`.
    """
    _positive(num_nodes, seconds)
    return num_nodes * mean_node_watts(full_watts, busy) * seconds


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Energy of one job inside each boundary, in joules."""

    device: float
    node: float
    node_and_network: float
    facility: float

    def per_token(self, num_tokens: float) -> Boundaries:
        """The same for one token.

        >>> Boundaries(80, 100, 110, 132).per_token(10)
        Boundaries(device=8.0, node=10.0, node_and_network=11.0, facility=13.2)

        Raises:
            ValueError: there are no tokens.
        """
        _positive(num_tokens)
        parts = (self.device, self.node, self.node_and_network, self.facility)
        return Boundaries(*(joules / num_tokens for joules in parts))


def boundaries(
    device_joules: float,
    host_joules: float,
    *,
    supply_loss: float = 0.0,
    network_share: float = NETWORK_ESTIMATE,
    power_usage_effectiveness: float = 1.0,
) -> Boundaries:
    """Energy from the devices outwards: the rest of the node, power supplies, switches, the facility.

    `supply_loss` is what the supplies take over what they give: 415.3 kWh in for 408.8 kWh out is 0.016 (MLPerf
    Training v4.0, GPT-3 on 512 H100); it is 0 where the node is metered at its inlet.

    >>> job = boundaries(80, 20, network_share=0.1, power_usage_effectiveness=1.2)
    >>> [round(joules, 6) for joules in (job.device, job.node, job.node_and_network, job.facility)]
    [80, 100.0, 110.0, 132.0]

    Raises:
        ValueError: the devices use nothing, a share is negative, or the effectiveness is below 1.
    """
    _positive(device_joules)
    if min(host_joules, supply_loss, network_share) < 0:
        raise ValueError("the host, losses and the network cannot give energy back")
    node = (device_joules + host_joules) * (1 + supply_loss)
    network = node * (1 + network_share)
    return Boundaries(device_joules, node, network, facility_joules(network, power_usage_effectiveness))


def facility_joules(machine_joules: float, power_usage_effectiveness: float) -> float:
    """Energy of the facility for what its machines use.

    >>> facility_joules(100, 1.25)
    125.0

    Raises:
        ValueError: the energy is not positive, or the effectiveness is below 1.
    """
    _positive(machine_joules)
    if not 1 <= power_usage_effectiveness < math.inf:
        raise ValueError(f"a facility cannot use {power_usage_effectiveness} of what its machines use")
    return machine_joules * power_usage_effectiveness


def carbon_kilograms(
    machine_joules: float, power_usage_effectiveness: float, kilograms_per_kilowatt_hour: float
) -> float:
    """Carbon dioxide of a job in kilograms: energy of its machines, effectiveness of the facility, carbon intensity.

    Llama 3.1 took 27.5 GWh at the power limits of its accelerators; at 0.414 kg/kWh that is the 11,390 t of its card:

    >>> round(carbon_kilograms(27.5e6 * JOULES_PER_KILOWATT_HOUR, 1.0, 0.414) / 1000)
    11385

    Raises:
        ValueError: the energy is not positive, the effectiveness is below 1, or the intensity is negative or so large
            that it must be in grams per kilowatt-hour or kilograms per megawatt-hour.
    """
    if not 0 <= kilograms_per_kilowatt_hour <= MOST_CARBON_INTENSITY:
        raise ValueError(
            f"an intensity of {kilograms_per_kilowatt_hour:g} kg/kWh; grids are between 0 and 1.5, "
            "and g/kWh or kg/MWh are a thousand times as many"
        )
    joules = facility_joules(machine_joules, power_usage_effectiveness)
    return joules / JOULES_PER_KILOWATT_HOUR * kilograms_per_kilowatt_hour


def _positive(*values: float) -> None:
    if not all(value > 0 for value in values):
        raise ValueError(f"not all positive: {values}")
