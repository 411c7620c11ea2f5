"""Groups simultaneous observations in many series as one occurrence with one cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.checks import Violation
from trainspec_validate.telemetry.checks._words import MAX_ALONE, names_in_words, subjects_in_words
from trainspec_validate.telemetry.view.run_view import NOWHERE, Occurrence

Said = Callable[[Occurrence], str]


def violations_at_once(occurrences: Iterable[Occurrence], message: Said, help_text: Said) -> Iterator[Violation]:
    """One violation for all occurrences whose times overlap; one for the rest where there are more than `MAX_ALONE`."""
    clusters = sorted(_clusters(occurrences), key=lambda cluster: cluster[0].location)
    if len(clusters) > MAX_ALONE:
        rest = [occurrence for cluster in clusters[MAX_ALONE - 1 :] for occurrence in cluster]
        clusters = [*clusters[: MAX_ALONE - 1], sorted(rest, key=lambda occurrence: occurrence.location)]
    for cluster in clusters:
        yield _violation(cluster, message(cluster[0]), help_text(cluster[0]))


def _clusters(occurrences: Iterable[Occurrence]) -> Iterator[list[Occurrence]]:
    """Occurrences of one attempt that all have some time in common, each cluster in order of place."""
    cluster: list[Occurrence] = []
    end = -1
    for occurrence in sorted(occurrences, key=lambda o: (o.attempt, _begin_us(o), o.time_us)):
        if not cluster or occurrence.attempt != cluster[0].attempt or _begin_us(occurrence) > end:
            if cluster:
                yield sorted(cluster, key=lambda o: o.location)
            cluster, end = [], occurrence.time_us
        cluster.append(occurrence)
        end = min(end, occurrence.time_us)
    if cluster:
        yield sorted(cluster, key=lambda o: o.location)


def _begin_us(occurrence: Occurrence) -> int:
    return occurrence.time_before_us if occurrence.time_before_us >= 0 else occurrence.time_us


def _violation(cluster: Sequence[Occurrence], message: str, help_text: str) -> Violation:
    first = cluster[0]
    series = {(occurrence.key, occurrence.subject) for occurrence in cluster}
    subjects = subjects_in_words({subject for _, subject in series})
    evidence = Evidence(
        series=str(first.key) if len(series) == 1 else names_in_words({key.metric for key, _ in series}),
        subjects=subjects,
        first_time_us=min(map(_begin_us, cluster)),
        last_time_us=max(occurrence.time_us for occurrence in cluster),
        count=len(cluster),
    )
    related = () if first.location_before == NOWHERE else ((first.location_before, "the value before it"),)
    found = Violation(first.location, message, help_text, evidence, related)
    if len(cluster) == 1:
        return found
    where = f", on {subjects}" if len(series) > 1 and subjects else ""
    what = f"{len(series):,} series" if len(series) == len(cluster) else f"{len(cluster):,} cases"
    return replace(found, message=f"{message}; the first of {what}{where}")
