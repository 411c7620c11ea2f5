"""Measures what uneven groups, ratios of single steps and small errors do to an estimate of gradient noise.

Run with `python benchmarks/measured/gradient_noise.py`. Gradients of 32 entries are drawn with a known signal and
noise; no model is trained. Seeds are fixed, so that each run prints the same.
"""

# ruff: noqa: N803, N806 - shapes stand in names: S steps, G groups, E entries

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
NUM_ENTRIES = 32
SEED = 20_261_127


def drawn(num_steps: int, sizes: Array, noise_trace: float) -> Array:
    """Mean gradients of groups, by step: a signal of squared norm 1, and noise of the given trace for one unit."""
    random = np.random.default_rng(SEED)
    signal_E = np.full(NUM_ENTRIES, NUM_ENTRIES**-0.5)
    spread_GE = np.sqrt(noise_trace / NUM_ENTRIES / sizes)[:, None]
    return np.asarray(signal_E + spread_GE * random.standard_normal((num_steps, len(sizes), NUM_ENTRIES)))


def weighted(gradients_SGE: Array, sizes: Array) -> tuple[Array, Array]:
    """Signal and noise of each step, each group weighted by its size."""
    num_groups, units = len(sizes), sizes.sum()
    of_mean_S = np.square(np.einsum("g,sge->se", sizes / units, gradients_SGE)).sum(1)
    of_groups_S = np.square(gradients_SGE).sum(2) @ (sizes / units)
    signal_S = (num_groups * of_mean_S - of_groups_S) / (num_groups - 1)
    return signal_S, units * (of_groups_S - of_mean_S) / (num_groups - 1)


def two_batches(of_small: float, of_large: float, small: float, large: float) -> tuple[float, float]:
    """Signal and noise from the squared norms of gradients of a small and of a large batch."""
    signal = (large * of_large - small * of_small) / (large - small)
    return signal, (of_small - of_large) / (1 / small - 1 / large)


def uneven_groups() -> str:
    """Groups of 1, 2, 4 and 9 units, taken for equally large, and weighted."""
    sizes = np.array([1.0, 2.0, 4.0, 9.0])
    gradients_SGE = drawn(20_000, sizes, 50.0)
    of_mean = float(np.square(np.einsum("g,sge->se", sizes / sizes.sum(), gradients_SGE)).sum(1).mean())
    of_groups = float(np.square(gradients_SGE).sum(2).mean())
    plain = two_batches(of_groups, of_mean, float(sizes.mean()), float(sizes.sum()))
    signal_S, noise_S = weighted(gradients_SGE, sizes)
    return (
        f"uneven groups, truth 1 and 50: unweighted {plain[0]:.2f} and {plain[1]:.0f}, "
        f"weighted {signal_S.mean():.2f} and {noise_S.mean():.1f}"
    )


def ratios() -> str:
    """A noise scale of 3,200 at a batch of 32: the ratio of means, and the mean of the ratios of single steps."""
    signal_S, noise_S = weighted(drawn(20_000, np.full(8, 4.0), 3200.0), np.full(8, 4.0))
    of_steps = (noise_S / signal_S).reshape(10, 2000).mean(1)
    ratio, share_negative = noise_S.mean() / signal_S.mean(), float(np.mean(signal_S <= 0))
    return (
        f"noise scale 3200 at a batch of 32, 10 times 2000 steps: ratio of means {ratio:.0f}, "
        f"means of ratios {of_steps.min():.0f} to {of_steps.max():.0f}, signal below zero in {share_negative:.0%}"
    )


def small_errors() -> str:
    """A noise scale of 5,150 from batches of 64 and 512, with the squared norm of the large one off by 5 %."""
    small, large = 64.0, 512.0
    of_small, of_large = 1 + 5150 / small, 1 + 5150 / large
    found = [two_batches(of_small, of_large * factor, small, large) for factor in (1.05, 1.0, 0.95)]
    least, truth, most = (noise / signal for signal, noise in found)
    return f"noise scale {truth:.0f}, squared norm of the large batch off by 5 %: {least:.0f} to {most:.0f}"


def equal_groups() -> str:
    """Mean noise of 2,000 steps of eight groups against the truth, over 20 repetitions."""
    sizes = np.full(8, 4.0)
    gradients_SGE = drawn(20 * 2000, sizes, 256.0)
    noise_S = weighted(gradients_SGE, sizes)[1]
    off = np.abs(noise_S.reshape(20, 2000).mean(1) / 256.0 - 1)
    return f"2000 steps of eight groups: mean noise off by at most {off.max():.2%} in 20 repetitions"


def main() -> None:
    """Print one line for each measurement."""
    for measured in (uneven_groups, ratios, small_errors, equal_groups):
        print(measured())


if __name__ == "__main__":
    main()
