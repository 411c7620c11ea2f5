"""Capacity of switch trees: published designs, edges and errors."""

from __future__ import annotations

import doctest

import pytest

from trainspec_validate.performance.costs import fabric
from trainspec_validate.performance.costs.fabric import Layer, most_interfaces, oversubscription


def test_worked_examples() -> None:
    result = doctest.testmod(fabric)
    assert result.attempted >= 2
    assert result.failed == 0


@pytest.mark.parametrize("radix", [4, 16, 64, 128])
def test_equal_switches_follow_the_textbook(radix: int) -> None:
    half, full = Layer(radix // 2, 50e9, 50e9), Layer(radix, 50e9, 50e9)
    assert most_interfaces([full], 50e9) == radix
    assert most_interfaces([half, full], 50e9) == radix**2 // 2
    assert most_interfaces([half, half, full], 50e9) == radix**3 // 4


def test_a_port_split_in_two_holds_two_interfaces() -> None:
    # MegaScale: 32 leaf ports of 400 Gb/s take 64 NICs of 200 Gb/s (arXiv:2402.15627).
    assert most_interfaces([Layer(32, 50e9, 50e9)], 25e9) == 64


def test_superpod_core_layer_holds_its_largest_design() -> None:
    # DGX SuperPOD B200 with 64 scalable units: 16,384 NICs.
    layers = [Layer(32, 50e9, 50e9), Layer(32, 50e9, 50e9), Layer(64, 50e9, 50e9)]
    assert most_interfaces(layers, 50e9) == 65536


@pytest.mark.parametrize(
    ("layers", "rate"),
    [([], 50e9), ([Layer(16, 50e9, 50e9)], 0), ([Layer(0, 50e9, 50e9)], 50e9), ([Layer(16, 0, 50e9)], 50e9)],
)
def test_no_tree_is_an_error(layers: list[Layer], rate: float) -> None:
    with pytest.raises(ValueError, match=r"tree|positive"):
        most_interfaces(layers, rate)


def test_oversubscription_of_published_tiers() -> None:
    assert oversubscription(32, 50e9, 32, 50e9) == 1
    assert oversubscription(112, 50e9, 16, 50e9) == 7
    assert oversubscription(128, 25e9, 60, 50e9) == pytest.approx(1.0667, abs=1e-4)


@pytest.mark.parametrize("arguments", [(0, 1, 1, 1), (1, 1, 0, 1), (1, 0, 1, 1), (1, 1, 1, -1)])
def test_oversubscription_wants_positive_numbers(arguments: tuple[int, float, int, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        oversubscription(*arguments)
