"""Gives how far measured steps were from their predictions, for each family of jobs that was measured."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.costs.transformer import Shape

LARGE_NUM_RANKS = 64
"""Most ranks of a job of small scale: eight nodes of eight accelerators."""


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """Measured over predicted step time of eight of ten runs of a source that the prediction was not fitted to.

    It holds 1, the prediction itself, also where all runs of a family were slower.

    Raises:
        ValueError: it does not.
    """

    low: float
    """10th percentile of the family, lowered until sources left out have eight of ten runs in the band; at most 1."""
    high: float
    """90th percentile of the family, raised likewise; at least 1."""
    mean_error: float
    """Mean absolute error of the prediction, over the published time."""
    num_runs: int
    num_sources: int
    """Data sets that the runs are of; a rule does not rely on the band of one."""

    def __post_init__(self) -> None:
        if not self.low <= 1 <= self.high:
            raise ValueError(f"a band of {self.low} to {self.high} leaves out the prediction that it is printed with")


LEAST_RUNS = 4
"""Fewest measured runs of a family that has a band."""
NO_RUN = "fewer than four measured runs of this kind"
BANDS: dict[str, ErrorBand] = {
    "TPU, dense, 16-bit": ErrorBand(0.852, 1.148, 0.071, 53, 3),
    "TPU, mixture of experts, 16-bit": ErrorBand(0.855, 1.494, 0.15, 4, 2),
    "amd, dense with adapters, below 16 bits": ErrorBand(0.917, 1.187, 0.077, 4, 1),
    "amd, dense, 16-bit": ErrorBand(0.939, 1.471, 0.225, 4, 2),
    "amd, dense, below 16 bits": ErrorBand(0.866, 1.356, 0.092, 9, 3),
    "dense with adapters, below 16 bits": ErrorBand(0.963, 1.313, 0.124, 22, 1),
    "dense, 16-bit, large scale": ErrorBand(0.866, 1.34, 0.117, 108, 11),
    "dense, 16-bit, small scale": ErrorBand(0.818, 1.198, 0.075, 269, 10),
    "dense, below 16 bits": ErrorBand(0.815, 1.318, 0.119, 120, 6),
    "mixture of experts, 16-bit": ErrorBand(0.921, 1.562, 0.238, 47, 4),
    "mixture of experts, below 16 bits": ErrorBand(0.759, 1.474, 0.137, 100, 2),
}
"""By family where plans name their framework; `benchmarks/score_step_time.py` leaves out a publication at a time."""
UNNAMED: dict[str, ErrorBand] = {
    "TPU, dense, 16-bit": ErrorBand(0.833, 1.134, 0.073, 53, 3),
    "TPU, mixture of experts, 16-bit": ErrorBand(0.855, 1.494, 0.15, 4, 2),
    "amd, dense with adapters, below 16 bits": ErrorBand(0.917, 1.187, 0.077, 4, 1),
    "amd, dense, 16-bit": ErrorBand(0.93, 1.602, 0.27, 4, 2),
    "amd, dense, below 16 bits": ErrorBand(0.866, 1.405, 0.1, 9, 3),
    "dense with adapters, below 16 bits": ErrorBand(0.831, 1.358, 0.118, 22, 1),
    "dense, 16-bit, large scale": ErrorBand(0.919, 1.352, 0.115, 108, 11),
    "dense, 16-bit, small scale": ErrorBand(0.878, 1.574, 0.132, 269, 10),
    "dense, below 16 bits": ErrorBand(0.709, 1.758, 0.171, 120, 6),
    "mixture of experts, 16-bit": ErrorBand(0.925, 1.562, 0.232, 47, 4),
    "mixture of experts, below 16 bits": ErrorBand(0.759, 1.474, 0.131, 100, 2),
}
"""The same of the same runs, predicted as if no framework was named."""


def family_of(accelerator: str, shape: Shape, *, narrow: bool, num_ranks: int, has_adapters: bool = False) -> str:
    """The family of a job: vendor, unless it is NVIDIA; kind; width of products; scale of dense jobs in 16 bits.

    >>> family_of("nvidia-h100-sxm-80gb", Shape(32, 4096, 32, 8, 128, 14336, 128256), narrow=False, num_ranks=128)
    'dense, 16-bit, large scale'
    """
    vendor = accelerator.partition("-")[0]
    parts = [] if vendor == "nvidia" else ["TPU" if accelerator.startswith("google-tpu") else vendor]
    kind = "mixture of experts" if shape.num_experts else "dense"
    parts.append(f"{kind} with adapters" if has_adapters else kind)
    parts.append("below 16 bits" if narrow else "16-bit")
    if parts == ["dense", "16-bit"]:
        parts.append("small scale" if num_ranks <= LARGE_NUM_RANKS else "large scale")
    return ", ".join(parts)


def band_of(family: str, *, named: bool) -> ErrorBand | None:
    """The band of a family, where the framework is named or not; None where no run of it was measured."""
    return (BANDS if named else UNNAMED).get(family)
