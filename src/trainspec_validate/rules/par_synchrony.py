"""Rules on replicas that do not step together: declared modes, local updates, and what a checkpoint keeps of them."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, TrainingPlan, is_given
from trainspec_validate.documents.types.parallelism import Synchrony
from trainspec_validate.model.units import number
from trainspec_validate.rules import NotApplicable, Violation, at, rule

BOUNDS = {
    "asynchronous": "max_staleness_steps",
    "decentralised": "outer_interval_steps",
    "local-update": "outer_interval_steps",
}
"""The key that bounds each mode."""
DEFINED_HERE = ("synchronous", "local-update")


@rule("TS-PAR-021")
def synchrony_mode(plan: TrainingPlan) -> Iterator[Violation]:
    """Modes other than synchronous are bounded by their own key, and defined here or by an extension."""
    s, wanted = plan.synchrony, BOUNDS.get(plan.synchrony.mode)
    if wanted and getattr(s, wanted) is None:
        message = f"the mode is {s.mode}, but {wanted} is not given"
        yield Violation(at(plan, "synchrony", "mode"), message, f"bound it with {wanted}")
    for key in sorted(set(BOUNDS.values())):
        if key != wanted and is_given(getattr(s, key)):
            modes = " or ".join(mode for mode, bound in BOUNDS.items() if bound == key)
            message = f"{key} is given, but the mode is {s.mode}"
            yield Violation(at(plan, "synchrony", key), message, f"leave it out, or set mode: {modes}")
    if s.mode not in DEFINED_HERE and s.extension is None:
        message = f"the mode is {s.mode}, and no extension defines it"
        yield Violation(at(plan, "synchrony", "mode"), message, "name a key of `extensions` under `extension`")
    if s.extension is not None and s.extension not in plan.extensions:
        message = f"{s.extension!r} is not a key of the plan's extensions"
        yield Violation(at(plan, "synchrony", "extension"), message, "add it under `extensions`")


def _local(plan: TrainingPlan) -> Synchrony:
    if plan.synchrony.mode != "local-update":
        raise NotApplicable("all replicas step together, or an extension defines how they do")
    return plan.synchrony


@rule("TS-PAR-045")
def local_update_keys(plan: TrainingPlan) -> Iterator[Violation]:
    """A plan with local updates says how many groups there are and how they become one model."""
    s = _local(plan)
    for key, value in (("num_groups", s.num_groups), ("outer_optimizer", s.outer_optimizer)):
        if value is None:
            message = f"groups of data ranks step apart, but {key} is not given"
            yield Violation(at(plan, "synchrony", "mode"), message, f"state {key}")


@rule("TS-PAR-046")
def local_update_groups(plan: TrainingPlan) -> Iterator[Violation]:
    """Each group holds a whole model, and as many data ranks as any other."""
    groups, degrees = _local(plan).num_groups, plan.parallelism
    if groups is None:
        raise NotApplicable("the plan does not state its groups")
    place = at(plan, "synchrony", "num_groups")
    each, rest = divmod(degrees.data, groups)
    if rest:
        message = f"{number(groups)} groups do not divide {number(degrees.data)} data ranks"
        yield Violation(place, message, f"a divisor of {degrees.data}", related=((at(plan, "parallelism"), "ranks"),))
        return
    held = each * degrees.context
    if degrees.sharding == "none":
        return
    shards = degrees.sharding_degree or degrees.data * degrees.context
    if shards > held:
        yield Violation(
            place,
            f"state is sharded over {number(shards)} ranks, but a group has {number(held)} that could share a copy",
            f"set sharding_degree to a divisor of {held}",
            related=((at(plan, "parallelism"), "the sharding"),),
        )


@rule("TS-CKP-109")
def outer_state(plan: TrainingPlan, checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The outer optimizer of local updates is saved, or left out for a reason."""
    outer = _local(plan).outer_optimizer
    kept = {*checkpoint.state.items, *(omitted.item for omitted in checkpoint.state.omitted)}
    if "outer-optimizer" not in kept:
        name = outer.name if outer else "an outer optimizer"
        yield Violation(
            at(checkpoint, "state", "items"),
            f"the checkpoint lacks outer-optimizer, but groups exchange their changes by {name}",
            "add outer-optimizer to items, or to omitted with the reason",
            related=((at(plan, "synchrony", "mode"), "local updates"),),
        )
