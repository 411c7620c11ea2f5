"""Compares the peak of a plan with the one that its layout predicts, whatever the machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.model.units import bytes_
from trainspec_validate.performance.derived.state import state_bytes_per_rank
from trainspec_validate.performance.derived.trained import trained_of
from trainspec_validate.rules import NotApplicable, Uncovered, Violation, at, rule
from trainspec_validate.rules._records import memory_of

if TYPE_CHECKING:
    from trainspec_validate.performance.costs.rank_memory import RankMemory

MOST_LOSS = 16 / 6
"""Bytes of a logit in a loss that is not compiled over those of the formula; a loss in pieces needs next to none."""
LEAST_SHARE, MOST_SHARE = 0.85, 2.0
"""Stated over predicted peak. Measured ones were 0.9 to 1.16 times the prediction (benchmarks/score_memory.py); a
peak that is stated too high only costs nodes, so twice the most that code keeps is let pass."""


def _predicted(plan: TrainingPlan) -> tuple[RankMemory, RankMemory]:
    """The fullest rank with activations as the formulas have them, and with twice as many."""
    # Most plans state no peak, and start-up would pay for the models.
    from trainspec_validate.performance.forecast.facts import Unpredictable, layout_of, model_facts  # noqa: PLC0415
    from trainspec_validate.performance.forecast.predict import settings_of  # noqa: PLC0415
    from trainspec_validate.rules._forecast import check_chunks, not_predicted  # noqa: PLC0415
    from trainspec_validate.rules._lean_memory import generous_memory, lean_memory, leanest  # noqa: PLC0415

    check_chunks(plan)
    try:
        model, layout = model_facts(plan.model, plan.precision, plan.optimizer, trained_of(plan)), layout_of(plan)
        settings = settings_of(plan)
        if layout.num_ranks != plan.parallelism.num_accelerators:
            raise Unpredictable("the degrees do not multiply to the ranks")
        _, lean = lean_memory(model, leanest(plan, layout), settings)
        _, generous = generous_memory(model, layout, settings)
    except (Unpredictable, ValueError) as reason:
        raise not_predicted(plan, reason) from None
    return lean, generous


def bounds(lean: RankMemory, generous: RankMemory, view: str | None) -> tuple[float, float]:
    """Least and largest peak that a rank can have: without fragmentation and the loss, and with twice of everything."""
    low = (lean.total if view == "device" else lean.allocator - lean.fragmentation) - lean.logits
    high = (generous.allocator if view == "allocator" else generous.total) + (MOST_LOSS - 1) * generous.logits
    return LEAST_SHARE * low, MOST_SHARE * high


@rule("TS-MEM-021")
def peak_agrees(plan: TrainingPlan) -> Iterator[Violation]:
    """A stated peak is one that the layout can have."""
    memory = memory_of(plan)
    peak = memory.predicted_peak_bytes
    if peak is None or memory.unified_memory != "none":
        raise NotApplicable("the plan states no peak, or shares memory with the host")
    if plan.model.experts:
        from trainspec_validate.rules._lean_memory import MEASURE, UNMEASURED  # noqa: PLC0415

        raise Uncovered(at(plan, "model", "experts"), UNMEASURED, MEASURE)
    if peak < state_bytes_per_rank(plan):
        raise NotApplicable("the peak does not even hold the state")
    lean, generous = _predicted(plan)
    low, high = bounds(lean, generous, memory.peak_view)
    if not low <= peak <= high:
        parts = f"state {bytes_(lean.weights + lean.gradients + lean.optimizer)}, activations and loss "
        parts += f"{bytes_(lean.activations + lean.logits)} to {bytes_(generous.activations + generous.logits)}"
        central = lean.total if memory.peak_view == "device" else lean.allocator
        yield Violation(
            at(plan, "memory", "predicted_peak_bytes"),
            f"the peak is stated as {bytes_(peak)}, but the layout is predicted to need {bytes_(central)}: {parts}",
            f"expected {bytes_(low)} to {bytes_(high)}; measure one step, or fix the layout",
        )
