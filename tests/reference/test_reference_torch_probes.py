"""What the PyTorch backend tells a probe of its arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from torch import distributed
from trainspec_conformance.testbed.probe_parts import Formats, UnsupportedError
from trainspec_conformance.testbed.torch.probes import BackendProbes

from trainspec_validate.documents.types.communication import Compression

GRADIENTS = np.random.default_rng(0).standard_normal((50, 256)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_group_after() -> Iterator[None]:
    """A probe ends with its process, and leaves its group of one rank; the tests after this one share the process."""
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("settings", "num_bytes"),
    [
        (Compression(method="bf16", error_feedback=True), 512),
        (Compression(method="top-k", density=0.125, error_feedback=True), 32 * 8),
        (Compression(method="power-sgd", rank=2, error_feedback=True), (16 + 16) * 2 * 4),
    ],
)
def test_a_compressor_keeps_what_it_does_not_send(settings: Compression, num_bytes: int) -> None:
    compressor = BackendProbes().compressor(settings, (16, 16))
    answers = [compressor.sent(gradient) for gradient in GRADIENTS]
    sent = np.sum([answer[0] for answer in answers], axis=0, dtype=np.float64)
    total = GRADIENTS.sum(0, dtype=np.float64)
    assert np.linalg.norm(total - sent - compressor.residual) <= 1e-5 * np.linalg.norm(total)
    assert {answer[1] for answer in answers} == {num_bytes}


def test_what_is_not_there_is_said() -> None:
    probes, values = BackendProbes(), np.ones(3, np.float32)
    with pytest.raises(UnsupportedError, match="int8"):
        probes.compressor(Compression(method="int8"), (4, 4))
    with pytest.raises(UnsupportedError, match="stochastic"):
        probes.rounded(values, "bf16", "stochastic", np.random.default_rng(0))
    with pytest.raises(UnsupportedError, match="rounded to nearest"):
        probes.updated(values, 1.0, "bf16", "nearest", 0)
    with pytest.raises(UnsupportedError, match="added up in fp32"):
        probes.reduced([[values]], Formats(reduction="bf16"))


def test_terms_of_sixteen_bits_are_added_up_in_thirty_two() -> None:
    terms = [[np.float32([0.1]), np.float32([0.2])], [np.float32([1000.0]), np.float32([0.3])]]
    (found,) = BackendProbes().reduced(terms, Formats(gradients="bf16"))
    assert found == np.float32(0.10009765625 + 0.2001953125) + np.float32(1000.0 + 0.30078125)


def test_norms_are_of_the_mean_gradient_of_each_group() -> None:
    terms = [np.float32([3.0, 4.0]) * 8, np.float32([0.0, 2.0]) * 4]
    assert BackendProbes().group_squared_norms(terms, [8.0, 4.0], Formats()) == [25.0, 4.0]
