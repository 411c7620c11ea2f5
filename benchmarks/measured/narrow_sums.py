"""Measures what rounding to bf16 does to small updates, to sums of gradients and to values rounded by chance.

Run with `python benchmarks/measured/narrow_sums.py`. Numbers of bf16 are the upper halves of those of fp32. Seeds are
fixed, so that each run prints the same.
"""

# ruff: noqa: N803, N806 - shapes stand in names: T terms, E entries, D draws

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
SEED = 20_261_127


def to_nearest(values: Array) -> Array:
    """Numbers of bf16 nearest to numbers of fp32, ties to the even one."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.asarray((rounded & np.uint32(0xFFFF0000)).view(np.float32))


def by_chance(values: Array, random: np.random.Generator) -> Array:
    """Numbers of bf16 next to numbers of fp32, the nearer one the more probable."""
    bits = values.astype(np.float32).view(np.uint32)
    drawn = random.integers(0, 1 << 16, bits.shape, dtype=np.uint32)
    return np.asarray(((bits + drawn) & np.uint32(0xFFFF0000)).view(np.float32))


def small_updates() -> str:
    """1,000 updates of 1e-4 to parameters of 1."""
    random = np.random.default_rng(SEED)
    step = np.float32(1e-4)
    nearest, chance = np.ones(1, np.float32), np.ones(2000, np.float32)
    for _ in range(1000):
        nearest, chance = to_nearest(nearest + step), by_chance(chance + step, random)
    error = chance.std(ddof=1) / len(chance) ** 0.5
    return (
        f"1000 updates of 1e-4 to 1 in bf16: to nearest {nearest[0]:g}, "
        f"by chance {chance.mean():.4f} with a standard error of {error:.4f}"
    )


def relative_error(terms_TE: Array, *, narrow: bool) -> float:
    """Error of a running sum against float64, as a share of the sum."""
    total_E = np.zeros(terms_TE.shape[1], np.float32)
    for term_E in terms_TE:
        total_E = to_nearest(total_E + term_E) if narrow else total_E + term_E
    wanted_E = terms_TE.astype(np.float64).sum(0)
    return float(np.linalg.norm(total_E - wanted_E) / np.linalg.norm(wanted_E))


def sums() -> list[str]:
    """Sums of 8 and of 512 gradients of normal entries, of which bf16 holds each."""
    random = np.random.default_rng(SEED)
    found = []
    for num_terms in (8, 512):
        terms_TE = to_nearest(random.standard_normal((num_terms, 4096)).astype(np.float32))
        narrow, wide = (relative_error(terms_TE, narrow=is_narrow) for is_narrow in (True, False))
        found.append(f"sum of {num_terms} gradients: off by {narrow:.1%} in bf16, by {wide:.0e} in fp32")
    return found


def draws() -> str:
    """1,000 values rounded by chance 1,000 times: the squared error of the mean against that of chance, ten times."""
    random = np.random.default_rng(SEED)
    ratios = []
    for _ in range(10):
        values_E = random.standard_normal(1000).astype(np.float32)
        drawn_DE = np.stack([by_chance(values_E, random) for _ in range(1000)]).astype(np.float64)
        spread = np.square(drawn_DE - values_E).sum(1).mean()
        ratios.append(np.square(drawn_DE.mean(0) - values_E).sum() / (spread / len(drawn_DE)))
    return f"mean of 1000 roundings by chance: off by {min(ratios):.2f} to {max(ratios):.2f} of what chance gives"


def main() -> None:
    """Print one line for each measurement."""
    for line in (small_updates(), *sums(), draws()):
        print(line)


if __name__ == "__main__":
    main()
