"""A band is given for the kinds of jobs that were measured, and for no other."""

from __future__ import annotations

import pytest

from trainspec_validate.performance.costs.step_errors import (
    BANDS,
    LARGE_NUM_RANKS,
    LEAST_RUNS,
    UNNAMED,
    ErrorBand,
    band_of,
    family_of,
)
from trainspec_validate.performance.costs.transformer import Shape

DENSE = Shape(32, 4096, 32, 8, 128, 14336, 128256)
ROUTED = Shape(32, 4096, 32, 8, 128, 0, 128256, num_experts=8, num_active_experts=2, num_expert_layers=32)


@pytest.mark.parametrize(
    ("accelerator", "shape", "narrow", "num_ranks", "family"),
    [
        ("nvidia-h100-sxm-80gb", DENSE, False, LARGE_NUM_RANKS, "dense, 16-bit, small scale"),
        ("nvidia-h100-sxm-80gb", DENSE, False, LARGE_NUM_RANKS + 1, "dense, 16-bit, large scale"),
        ("nvidia-h100-sxm-80gb", DENSE, True, 8, "dense, below 16 bits"),
        ("nvidia-gb200-186gb", ROUTED, True, 8, "mixture of experts, below 16 bits"),
        ("google-tpu-v5p", DENSE, False, 8, "TPU, dense, 16-bit"),
    ],
)
def test_a_measured_kind_has_a_band(accelerator: str, shape: Shape, narrow: bool, num_ranks: int, family: str) -> None:
    assert family_of(accelerator, shape, narrow=narrow, num_ranks=num_ranks) == family
    for named in (True, False):
        band = band_of(family, named=named)
        assert band is not None
        assert 0 < band.low < band.high


def test_adapters_are_a_kind_of_their_own() -> None:
    family = family_of("nvidia-h100-sxm-80gb", DENSE, narrow=True, num_ranks=8, has_adapters=True)
    assert family == "dense with adapters, below 16 bits"
    assert band_of(family, named=True) is not None


@pytest.mark.parametrize("accelerator", ["graphcore-bow", "aws-trainium2", "intel-gaudi3-128gb", "my-own"])
def test_what_nobody_measured_has_none(accelerator: str) -> None:
    for named in (True, False):
        assert band_of(family_of(accelerator, DENSE, narrow=False, num_ranks=8), named=named) is None
        assert band_of(family_of("google-tpu-v5p", ROUTED, narrow=True, num_ranks=8), named=named) is None
    assert UNNAMED.keys() == BANDS.keys()
    assert all(band.num_runs >= LEAST_RUNS for band in BANDS.values())


def test_every_band_holds_the_prediction_that_it_is_printed_with() -> None:
    assert all(band.low <= 1 <= band.high for bands in (BANDS, UNNAMED) for band in bands.values())
    with pytest.raises(ValueError, match="leaves out the prediction"):
        ErrorBand(1.069, 1.547, 0.2, 4, 2)
