"""Checks devices of a run against the cluster profile: memory and power."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.model.units import bytes_, watts
from trainspec_validate.performance.derived.cluster import memory_bytes, power_watts
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._words import Fault, grouped, series_in_words
from trainspec_validate.telemetry.view.run_view import Series

LIMIT, POWER = "hw.gpu.memory.limit", "hw.power"
MEMORY_TOLERANCE = 0.1
"""80 GB on a data sheet are 79.6 GiB to a driver, which is 85.5 GB; what firmware keeps is a few per cent."""
POWER_TOLERANCE = 0.1
"""Meters are right within 5 %, and limits are held on average."""


@check("TS-TEL-068")
def memory_as_profiled(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """A device has the memory that the profile says, or that of one of its partitions that carry a rank."""
    wanted = []
    for group in cluster.node_groups:
        total = memory_bytes(group)
        if total is not None:
            wanted += [total, total / group.accelerator.num_ranks_per_accelerator]
    indices = run.series.of(LIMIT)
    if not wanted or not len(indices):
        raise NotApplicable(f"no {LIMIT} in the run, or no memory of an accelerator in the profile")
    found = run.series.rows["last_value"][indices]
    is_wrong = np.all([np.abs(found - value) > MEMORY_TOLERANCE * value for value in wanted], axis=0)
    for_profile = f"but the profile says {bytes_(max(wanted))}"
    yield from grouped(
        _fault(series, f"is {bytes_(series.last_value)}, {for_profile}", series.last_value)
        for series in map(run.series.at, indices[is_wrong].tolist())
    )


@check("TS-TEL-069")
def power_as_profiled(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """The mean power of a device, or of a node, is no more than the profile says."""
    devices = [found for group in cluster.node_groups if (found := power_watts(group)) is not None]
    nodes = [group.node_power_watts for group in cluster.node_groups if group.node_power_watts is not None]
    indices = run.series.of(POWER)
    rows = run.series.rows[indices]
    of_device = np.array([subject.device is not None for subject in run.series.subjects], bool)[rows["subject"]]
    limits = np.where(of_device, max(devices, default=np.inf), max(nodes, default=np.inf))
    if not np.isfinite(limits).any():
        raise NotApplicable(f"no {POWER} in the run, or no power in the profile")
    means = rows["total"] / np.maximum(rows["num_finite"], 1)
    faults = []
    for number in np.flatnonzero(means > limits * (1 + POWER_TOLERANCE)).tolist():
        mean, limit = float(means[number]), float(limits[number])
        what = f"is {watts(mean)} on average, {mean / limit:,.3g} times the {watts(limit)} of the profile"
        faults.append(_fault(run.series.at(int(indices[number])), what, mean))
    yield from grouped(faults)


def _fault(series: Series, what: str, value: float) -> Fault:
    return Fault(
        key=series.key,
        subject=series.subject,
        location=series.first_location,
        message=f"{series_in_words(series.key, series.subject)} {what}",
        help="correct the profile, or the unit of the values",
        first_time_us=series.first_time_us,
        last_time_us=series.last_time_us,
        count=1,
        samples=(f"{value:.6g}",),
    )
