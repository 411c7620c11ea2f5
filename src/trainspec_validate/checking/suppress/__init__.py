"""Lists the three ways of silencing a finding, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainspec_validate.checking.suppress import inline
from trainspec_validate.checking.suppress.common import NEVER_SILENCED, Complaint, Run, SuppressionResult, is_below
from trainspec_validate.model.finding import Finding

if TYPE_CHECKING:
    from datetime import date

    from trainspec_validate.checking.suppress.baseline import Baseline
    from trainspec_validate.checking.suppress.waivers import WaiverFile

__all__ = ["NEVER_SILENCED", "Complaint", "Run", "SuppressionResult", "is_below", "silence"]


def silence(
    findings: Iterable[Finding],
    run: Run,
    waivers: WaiverFile | None = None,
    baseline: Baseline | None = None,
    today: date | None = None,
) -> SuppressionResult:
    """Silence by comment, then by waiver, then by baseline; the first that takes a finding has it."""
    total = inline.apply(findings, run)
    if waivers is not None:
        from trainspec_validate.checking.suppress.waivers import apply  # noqa: PLC0415

        total = _then(total, apply(total.kept, waivers, run, today))
    if baseline is not None:
        total = _then(total, baseline.apply(total.kept, run))
    return total


def _then(first: SuppressionResult, second: SuppressionResult) -> SuppressionResult:
    return SuppressionResult(
        kept=second.kept,
        suppressed=first.suppressed + second.suppressed,
        complaints=first.complaints + second.complaints,
    )
