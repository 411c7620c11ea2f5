"""Computes what a tree of switches can hold and how much each layer lets through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_MOST_INTERFACES = 1e15


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of equal switches, counted from the nodes upwards; rates are one-way bytes per second."""

    num_down_ports: int
    down_rate: float
    up_rate: float
    """Rate of one upward port; not used at the top."""


def oversubscription(num_down: int, down_rate: float, num_up: int, up_rate: float) -> float:
    """Downward capacity of a switch divided by its upward capacity.

    Alibaba HPN gives the first layer 1.067 (SIGCOMM 2024): 128 ports of 200 Gb/s for hosts, 60 of 400 up.

    >>> round(oversubscription(128, 25e9, 60, 50e9), 3)
    1.067

    Raises:
        ValueError: a count or a rate is not positive.
    """
    if min(num_down, num_up) < 1 or min(down_rate, up_rate) <= 0:
        raise ValueError("ports and rates must be positive")
    return num_down * down_rate / (num_up * up_rate)


def most_interfaces(layers: Sequence[Layer], interface_rate: float) -> int:
    """Interfaces that a tree of these layers holds in one plane, at the rate of one of them into that plane.

    A tree has as many branches under a switch as it has down ports, so the down ports multiply; a port that
    is faster than what it is joined to counts as several. For equal switches of radix k this is k^2/2 over
    two layers and k^3/4 over three (Al-Fares et al., SIGCOMM 2008). A 64-port switch of 800 Gb/s that is run
    as 512 ports of 100 Gb/s holds 131,072 interfaces over two layers (arXiv:2605.04333):

    >>> most_interfaces([Layer(256, 12.5e9, 12.5e9), Layer(512, 12.5e9, 12.5e9)], 12.5e9)
    131072

    Raises:
        ValueError: there is no layer, or a count or a rate is not positive.
    """
    if not layers or interface_rate <= 0:
        raise ValueError("a tree has at least one layer, and its interfaces have a rate")
    if any(layer.num_down_ports < 1 or layer.down_rate <= 0 or layer.up_rate <= 0 for layer in layers):
        raise ValueError("ports and rates must be positive")
    *_, most = interfaces_by_layer(layers, interface_rate)
    return most


def interfaces_by_layer(layers: Iterable[Layer], interface_rate: float) -> Iterator[int]:
    """Interfaces below one switch of each layer, from the lowest to the top; numbers beyond 1e15 are given as 1e15."""
    total, up_rate = 1.0, interface_rate
    for layer in layers:
        total *= layer.num_down_ports * layer.down_rate / up_rate
        up_rate = layer.up_rate
        yield int(min(total * (1 + 1e-9), _MOST_INTERFACES))
