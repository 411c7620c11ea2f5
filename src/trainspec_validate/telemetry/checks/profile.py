"""Checks a run against the profile of the machine that it declares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.telemetry.checks import Evidence, NotApplicable, Violation, check, require
from trainspec_validate.telemetry.checks._members import (
    device_metrics,
    devices_by_attempt,
    head_of_scope,
    num_devices_per_rank,
    stated_sizes,
)
from trainspec_validate.telemetry.checks._rows import Columns, rows_of, violations_of_rows
from trainspec_validate.telemetry.checks._words import Fault, counted, few, names_in_words, number, seconds_in_words
from trainspec_validate.telemetry.view.run_view import AttemptSpan, RunView, Series

PEAK, PRECISION = "train.flops.peak", "train.flops.precision"
OFFSET, ERROR = "train.clock.offset", "train.clock.error"
LATENCY = "train.network.latency"
LARGEST_LATENCY_SECONDS = 2e-3
"""Mean round trip of small probes that give way to traffic; switches with deep buffers hold them for a millisecond."""
PEAK_TOLERANCE = 0.01
"""Published peaks of one product are rounded to three digits; the figure with sparsity is twice as large."""


@check("TS-TEL-080")
def ranks_of_profile(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """An attempt has no more ranks than the machine has places."""
    most = sum(
        group.num_nodes * group.num_accelerators_per_node * group.accelerator.num_ranks_per_accelerator
        for group in cluster.node_groups
    )
    for attempt, size, place in require(list(stated_sizes(run)), "no world size is stated"):
        size *= num_devices_per_rank(run, attempt)  # noqa: PLW2901 - places that its ranks take
        if size > most:
            yield Violation(
                place,
                f"attempt {attempt} has {size:,} ranks, and {cluster.metadata.name} has room for {most:,}",
                "give the profile of the machine that the run was on; several ranks of an accelerator are in it",
                Evidence(count=size - most),
            )


@check("TS-TEL-081")
def devices_of_profile(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """Every host reports as many devices as its nodes have accelerators."""
    hosts: dict[tuple[int, str], set[str]] = defaultdict(set)
    writer: dict[tuple[int, str], str] = {}
    for attempt, _, host, device, emitter in devices_by_attempt(run, [m.name for m in device_metrics(run)]):
        if host is not None:
            hosts[(attempt, host)].add(device)
            writer.setdefault((attempt, host), emitter)
    if not hosts:
        raise NotApplicable("no device is named with its host")
    least = min(group.num_accelerators_per_node for group in cluster.node_groups)
    found = []
    for span in run.attempts:
        wanted = min(least, _num_accelerators(run, span, cluster) or least)
        short = {host: names for (attempt, host), names in hosts.items() if attempt == span.number}
        short = {host: names for host, names in short.items() if len(names) < wanted}
        if short:
            host = min(short)
            found.append(
                Violation(
                    head_of_scope(run, span.number, ("device",), writer[(span.number, host)]),
                    f"fewer than {wanted} devices on {counted(len(short), 'host')} in attempt {span.number}: "
                    f"{names_in_words(f'{name} {len(names)}' for name, names in short.items())}",
                    "a device that fell off its bus is reported as lost, not left out",
                    Evidence(subjects=names_in_words(short), count=len(short)),
                )
            )
    yield from few(found)


def _num_accelerators(run: RunView, span: AttemptSpan, cluster: ClusterProfile) -> int | None:
    """Accelerators that an attempt uses, where it says how many ranks it has."""
    if span.world_size is None:
        return None
    size = span.world_size * num_devices_per_rank(run, span.number)
    return -(-size // max(group.accelerator.num_ranks_per_accelerator for group in cluster.node_groups))


@check("TS-TEL-082")
def peak_of_profile(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """Utilisation is measured against the dense peak of the machine's accelerator."""
    judged = False
    for value, head in run.declared(PEAK):
        precision = head.record.declared.get(PRECISION)
        peaks = {
            rate.flops_per_second
            for group in cluster.node_groups
            for rate in group.accelerator.peak_rates
            if rate.format == precision
        }
        if not peaks or not isinstance(value, (int, float)):
            continue
        judged = True
        if not any(abs(value - peak) <= PEAK_TOLERANCE * peak for peak in peaks):
            wanted = " or ".join(number(peak / 1e12) for peak in sorted(peaks))
            yield Violation(
                head.location,
                f"{PEAK} is {number(value / 1e12)} TFLOP/s in {precision}, and the profile has {wanted}",
                "measure against the dense peak of one accelerator at the precision of the matrix products",
                Evidence(PEAK),
            )
    if not judged:
        raise NotApplicable(f"no {PEAK} with a {PRECISION} that the profile has a peak for")


@check("TS-TEL-083")
def clocks_of_profile(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """The clocks of two nodes are no further apart than the profile says."""
    if cluster.clock is None or cluster.clock.max_offset_seconds is None:
        raise NotApplicable("the profile states no largest offset")
    bound = cluster.clock.max_offset_seconds
    judged = False
    for span in run.attempts:
        rows = rows_of(run, [OFFSET])
        rows = rows[run.series.rows["attempt"][rows] == span.number]
        if len(rows) < 2:
            continue
        judged = True
        columns = Columns(run, rows)
        high, low = int(np.argmax(columns["maximum"])), int(np.argmin(columns["minimum"]))
        apart = float(columns["maximum"][high] - columns["minimum"][low])
        if apart > bound:
            worst = high if abs(columns["maximum"][high]) >= abs(columns["minimum"][low]) else low
            series, other = run.series.at(int(rows[worst])), run.series.at(int(rows[low if worst == high else high]))
            yield Violation(
                series.last_location,
                f"clocks of {series.subject.host} and {other.subject.host} are {seconds_in_words(apart)} apart, and "
                f"the profile says at most {seconds_in_words(bound)}",
                "fix the time service, or state what it really gives",
                Evidence(OFFSET, names_in_words([str(series.subject.host), str(other.subject.host)])),
            )
    if not judged:
        raise NotApplicable(f"no {OFFSET} of two nodes")


@check("TS-TEL-084")
def latency_of_profile(run: RunView, cluster: ClusterProfile) -> Iterator[Violation]:
    """Probes between nodes of one machine return within milliseconds."""
    rows = rows_of(run, [LATENCY])
    if not len(rows):
        raise NotApplicable(f"no {LATENCY}")
    means = run.series.rows["total"][rows] / np.maximum(run.series.rows["num_finite"][rows], 1)

    def fault(series: Series) -> Fault:
        mean = seconds_in_words(series.total / max(series.num_finite, 1))
        return Fault(
            key=series.key,
            subject=series.subject,
            location=series.first_location,
            message=f"{series.key} is {mean} on average within {cluster.metadata.name}",
            help="write seconds; a round trip between two hosts of one machine takes microseconds",
            first_time_us=series.first_time_us,
            last_time_us=series.last_time_us,
        )

    yield from violations_of_rows(run, rows[means > LARGEST_LATENCY_SECONDS], "first", fault)
