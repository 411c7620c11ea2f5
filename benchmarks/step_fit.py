"""Fits the constants of the step time model to published runs, and predicts runs that a fit has not seen.

A fit takes some 20 seconds of a processor, and one is needed for each publication that is left out. So `step_fits.csv`
keeps them: `python benchmarks/score_step_time.py --fit` writes it.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from math import log
from pathlib import Path
from statistics import median

from training_sets import Run

from trainspec_validate.performance.costs.step_compute import Calibration

FITS = Path(__file__).resolve().parent / "published" / "step_fits.csv"
START = Calibration(
    sustained_matmul=0.8,
    sustained_experts=1.0,
    sustained_narrow=1.0,
    hidden_communication=0.3,
)
"""Where every fit begins; a constant that no row depends on stays there."""
CONSTANTS = tuple(field.name for field in fields(Calibration))
ALL = "none"
"""Name of the fit to all rows in `step_fits.csv`."""
UNSEEN = (
    "aleph_alpha_layouts",
    *("dgxc_benchmarking", "nemo_automodel", "megatron_moe_model_zoo"),
    *("mlperf_amd", "amd_primus", "tprimat_mi300x", "rocm_cvs"),
    *("mlperf_lora_nvidia", "mlperf_lora_amd"),
    *("tpu_recipes_v6e", "tpu_recipes_v7x", "tpu_recipes_v5p"),
    "plain_pytorch",
)
"""Datasets that no fit ever sees, so that their errors are those of a new source."""
MOST_ROWS = 24
"""Rows of one dataset and family that a fit looks at: every third, say, of a longer list."""
_STEPS = (0.08, 0.02, 0.005)
_LEAST, _MOST = 0.05, 1.5
LEAST_GAIN = 5e-4
"""Gain below which a constant stays where it is: medians of a few rows jump by more, and a fit would follow them."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A run with its predicted time by a fit that has not seen it."""

    run: Run
    predicted_seconds: float

    @property
    def error(self) -> float:
        """Predicted over published time, minus 1."""
        return self.predicted_seconds / self.run.seconds - 1

    @property
    def ratio(self) -> float:
        """Published over predicted time, as bands state it."""
        return self.run.seconds / self.predicted_seconds


@cache
def _predicted(run: Run, calibration: Calibration) -> float:
    return run.predicted(calibration)


def publication(run: Run) -> str:
    """Key of rows that were published together: the dataset and its date."""
    return f"{run.dataset} {run.published}"


def last_day(published: str) -> str:
    """The last day that a date may mean: of a year or a month its end; an unknown date is later than all others.

    >>> last_day("2024"), last_day("2024-12"), last_day("")
    ('2024-12-31', '2024-12-31', '9999-12-31')
    """
    return published + "9999-12-31"[len(published) :]


def groups(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Runs by dataset and family."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.dataset, run.family), []).append(run)
    return found


def sample(runs: Sequence[Run]) -> list[Run]:
    """At most `MOST_ROWS` of each group, evenly over its list."""
    found = []
    for group in groups(runs).values():
        every = -(-len(group) // MOST_ROWS)
        found += group[::every]
    return found


def weights(runs: Sequence[Run]) -> dict[tuple[str, str], float]:
    """Weight of each group: datasets count alike, and the families of a dataset by their rows."""
    sizes = {key: len(group) for key, group in groups(runs).items()}
    rows = Counter[str]()
    for (name, _), size in sizes.items():
        rows[name] += size
    return {key: size / rows[key[0]] / len(rows) for key, size in sizes.items()}


def loss(runs: Sequence[Run], calibration: Calibration) -> float:
    """Weighted mean of the median absolute logarithm of predicted over published time in a sample of each group.

    The median, since a few runs take two to four times as long as predicted, whatever the constants: ZeRO-3 on many
    ranks (arXiv:2104.04473, table 2). By the mean they would pull the constants away from all others.
    """
    weight = weights(runs)
    return sum(
        weight[key] * median(abs(log(_predicted(run, calibration) / run.seconds)) for run in group)
        for key, group in groups(sample(runs)).items()
    )


def fit(runs: Sequence[Run]) -> Calibration:
    """The constants that predict these runs best, by halving steps along one constant at a time."""
    best, least, before = START, loss(runs, START), float("inf")
    while least < before - LEAST_GAIN:
        before = least
        for step in _STEPS:
            best, least = _walked(runs, best, step)
    return best


def _walked(runs: Sequence[Run], best: Calibration, step: float) -> tuple[Calibration, float]:
    """Where steps of one size along single constants lead, and the loss there."""
    least, moved = loss(runs, best), True
    while moved:
        moved = False
        for tried in _neighbours(best, step):
            tried_loss = loss(runs, tried)
            if tried_loss < least - LEAST_GAIN:
                best, least, moved = tried, tried_loss, True
                break
    return best, least


def _neighbours(found: Calibration, step: float) -> list[Calibration]:
    moves = [(name, round(getattr(found, name) + sign * step, 3)) for name in CONSTANTS for sign in (1, -1)]
    return [replace(found, **{name: value}) for name, value in moves if _LEAST <= value <= _MOST]


def residuals(
    runs: Sequence[Run], fits: Mapping[str, Calibration], key: Callable[[Run], str], *, named: bool = True
) -> list[Residual]:
    """Each run predicted with the fit that left it out, or with the fit to all where none saw its dataset.

    Without `named` as if plans named no framework.
    """
    return [Residual(run, run.predicted(fits.get(key(run), fits[ALL]), named=named)) for run in runs]


def read_fits() -> dict[str, Calibration]:
    """The committed fits by what they left out: a publication, what was published from a day on, or `ALL`."""
    with FITS.open(encoding="utf-8", newline="") as file:
        return {
            line["left_out"]: Calibration(**{name: float(line[name]) for name in CONSTANTS})
            for line in csv.DictReader(file)
        }


def rows_fitted(runs: Sequence[Run], left_out: str) -> list[Run]:
    """The rows that a fit may see: a day leaves out what was published on it or later, or at an unknown time."""
    seen = [run for run in runs if run.dataset not in UNSEEN]
    if left_out[:2] == "20":
        return [run for run in seen if last_day(run.published) < left_out]
    return [run for run in seen if publication(run) != left_out]


def write_fits(runs: Sequence[Run], days: Sequence[str]) -> None:
    """Fit again, and write all fits."""
    names = [ALL, *days, *dict.fromkeys(map(publication, rows_fitted(runs, ALL)))]
    with FITS.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(("left_out", "num_rows", *CONSTANTS))
        for name in names:
            seen = rows_fitted(runs, name)
            found = fit(seen)
            out.writerow((name, len(sample(seen)), *(getattr(found, constant) for constant in CONSTANTS)))
            file.flush()
