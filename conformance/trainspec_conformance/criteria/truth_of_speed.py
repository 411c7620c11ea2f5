"""Compares utilisation in a metric stream with the work and the time that the suite saw."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_conformance import told
from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check, num_ranks_of
from trainspec_conformance.records import Streamed
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone

UTILISATION, PER_TOKEN, PEAK = "train.flops.utilization", "train.flops.per_token", "train.flops.peak"


@check("utilisation-as-seen")
def utilisation_as_seen(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Utilisation is tokens per second, by the clock of the suite, times operations of a token over the peak."""
    peak = case.scenario.job.peak_flops_per_second
    found, tokens = told.of_job(case.trial, UTILISATION), told.of_job(case.trial, "train.token.count")
    clock = _clock(case.trial)
    known = [key for key in sorted(tokens) if key in clock]
    if not found or not known or peak is None:
        raise CannotJudgeError("the stream reports no model FLOPs utilization (MFU), or counts no tokens")
    if _declared(case.trial, PEAK) != peak:
        yield Problem(f"MFU is reported against a peak of {_declared(case.trial, PEAK):g}, the task says {peak:g}")
    start, per_rate = known[0], _declared(case.trial, PER_TOKEN) / (peak * num_ranks_of(case.trial))
    for key in sorted(found):
        if key not in tokens or key not in clock or clock[key] <= clock[start]:
            raise CannotJudgeError(f"MFU is reported at step {key[1]}, at which no tokens are counted")
        rates = [(tokens[key].value - tokens[start].value) / (clock[key] - clock[start])]
        if start == known[0]:  # the first window may hold the first step, which may have waited for a compiler
            rates.append(tokens[key].value / (clock[key] - _begun(case.trial)))
        slack = criterion.tolerance or 0
        if not min(rates) * per_rate * (1 - slack) <= found[key].value <= max(rates) * per_rate * (1 + slack):
            message = f"MFU at step {key[1]} is reported as {found[key].value:.4g}, tokens and time give "
            yield Problem(f"{message}{rates[0] * per_rate:.4g}", (found[key].entry,), by_load=True)
        start = key


def _begun(view: View) -> float:
    """When the first rank was about to train."""
    return min((entry.seconds for entry, _ in view.restores()), default=view.start_seconds)


def _clock(view: View) -> dict[told.Key, float]:
    """When the first rank was seen to have completed each update."""
    found: dict[told.Key, float] = {}
    for entry, record in view.of(StepDone):
        found.setdefault((record.attempt, record.step), entry.seconds)
    return found


def _declared(view: View, name: str) -> float:
    """A number that the stream declares of the run.

    Raises:
        CannotJudgeError: it does not.
    """
    starts = [record for _, record in view.of(Streamed) if record.kind == "event" and record.name == "train.run.start"]
    for record in [*told.heads(view), *starts]:
        value = record.attributes.get(name)
        if isinstance(value, int | float):
            return float(value)
    raise CannotJudgeError(f"the stream does not declare {name}")
