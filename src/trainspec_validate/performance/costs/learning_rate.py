"""Computes how a learning rate follows the batch."""

from __future__ import annotations

import math

RULES = ("none", "linear", "square-root", "adascale", "adam-square-root", "declared")
"""Rules by their names in a training plan; the factors of `declared` are in the plan."""
GAIN_RULES = ("adascale", "adam-square-root")
"""Rules whose factor depends on the noise of the gradient."""


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} is {value}, wanted a finite number above 0")


def adascale_gain(growth: float, noise_over_base_batch: float) -> float:
    """Progress of one step of a batch that has grown, in steps of the base batch; between 1 and the growth.

    It is (noise + 1) / (noise / growth + 1), with the noise scale in base batches. It is also the ratio of the
    best learning rates, e / (1 + noise / batch), of arXiv:1812.06162, equation 2.6.
    Source: arXiv:2007.05105 (AdaScale), with the variance of the base batch over the squared gradient as noise.

    >>> adascale_gain(growth=4, noise_over_base_batch=8)
    3.0

    Raises:
        ValueError: the growth is not above 0, or the noise is negative.
    """
    _positive(growth=growth)
    if not noise_over_base_batch >= 0:
        raise ValueError(f"the noise is {noise_over_base_batch}, wanted 0 or more")
    if math.isinf(noise_over_base_batch):
        return growth
    return (noise_over_base_batch + 1) / (noise_over_base_batch / growth + 1)


def factor(rule: str, growth: float, noise_over_base_batch: float | None = None) -> float:
    """Learning rate over that of the base batch, after the batch has grown by `growth`.

    linear: growth (arXiv:1706.02677); square-root: its root (arXiv:1404.5997); adascale: the gain of
    `adascale_gain`; adam-square-root: its root (petuum/adaptdl, `AdamScale`); none: 1. OLMo 1B doubled its batch
    twice and raised the rate by the root of two each time (arXiv:2505.23971):

    >>> round(factor("square-root", 4096 / 1024), 6), round(factor("adam-square-root", 4, 8), 6)
    (2.0, 1.732051)

    Raises:
        ValueError: an unknown rule, `declared`, which has no formula, a growth that is not above 0, or a rule that
            needs the noise and has none.
    """
    _positive(growth=growth)
    match rule:
        case "none":
            return 1.0
        case "linear":
            return growth
        case "square-root":
            return math.sqrt(growth)
        case "adascale" | "adam-square-root" if noise_over_base_batch is None:
            raise ValueError(f"the factor of {rule} depends on the noise scale over the base batch")
        case "adascale":
            return adascale_gain(growth, noise_over_base_batch or 0.0)
        case "adam-square-root":
            return math.sqrt(adascale_gain(growth, noise_over_base_batch or 0.0))
        case _:
            raise ValueError(f"no formula for the rule {rule}; known: {', '.join(RULES[:-1])}")


def factor_bounds(rule: str, growth: float) -> tuple[float, float]:
    """Least and most factor for any noise: one number, or the range of a rule that depends on the noise.

    >>> factor_bounds("adascale", 4), factor_bounds("adam-square-root", 4), factor_bounds("linear", 4)
    ((1.0, 4), (1.0, 2.0), (4, 4))

    Raises:
        ValueError: as `factor`.
    """
    if rule in GAIN_RULES:
        without, most = factor(rule, growth, 0.0), factor(rule, growth, math.inf)
        return min(without, most), max(without, most)
    only = factor(rule, growth)
    return only, only


def noise_of_factor(gain: float, growth: float) -> float:
    """Noise scale in base batches at which AdaScale gives this gain: the inverse of `adascale_gain`.

    >>> noise_of_factor(gain=3, growth=4)
    8.0

    Raises:
        ValueError: the gain is not between 1 (included) and the growth, or the growth is 1.
    """
    _positive(growth=growth, gain=gain)
    if growth == 1 or not min(1.0, growth) <= gain <= max(1.0, growth) or gain == growth:
        raise ValueError(f"a gain of {gain} after a growth of {growth}: it is between 1 and the growth")
    return (gain - 1) / (1 - gain / growth)


def saturating_rate(largest_rate: float, batch: float, noise_scale: float, exponent: float = 1.0) -> float:
    """Best learning rate at a batch: largest / (1 + noise / batch)^exponent.

    The exponent is 1 for plain gradient descent, and between 0.5 and 1 for Adam and RMSProp.
    Source: arXiv:1812.06162, equation 2.6 and appendix E.

    >>> saturating_rate(0.5, 1000, 1000), round(saturating_rate(0.5, 1000, 3000, 0.5), 3)
    (0.25, 0.25)

    Raises:
        ValueError: an argument is not above 0, or the exponent is above 1.
    """
    _positive(largest_rate=largest_rate, batch=batch, noise_scale=noise_scale, exponent=exponent)
    if exponent > 1:
        raise ValueError(f"the exponent is {exponent}, wanted at most 1")
    return float(largest_rate / (1 + noise_scale / batch) ** exponent)


def warmup_samples(base_samples: float, growth: float) -> float:
    """Samples of warm-up after the batch has grown, when the warm-up keeps its number of steps.

    Source: arXiv:1901.08256 (LEGW: square-root scaling, and a warm-up that is longer in epochs by the growth).

    >>> warmup_samples(375e6, 4)
    1500000000.0

    Raises:
        ValueError: an argument is not above 0.
    """
    _positive(base_samples=base_samples, growth=growth)
    return base_samples * growth
