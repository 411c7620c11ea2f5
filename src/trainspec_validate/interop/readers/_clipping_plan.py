"""Turns the bound on gradients of a launch configuration into the clipping of a plan."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Default, Draft

CLIPPING = ("optimizer", "clipping")
_ALWAYS_CLIPPING = frozenset({"clip_grad_norm", "training.max_norm"})
"""Settings of torchtune and torchtitan, which clip to a bound of 0 as to any other."""


def put_clipping(draft: Draft, usual: tuple[float, str], *names: str) -> None:
    """The bound on the global norm of gradients; 0 is none."""
    threshold, how = draft.number(*names), ""
    for reason in draft.reasons(*names):
        draft.lacks(CLIPPING, reason)
        return
    if threshold is None:
        threshold, how = usual[0], Default(f"the default of {usual[1]}")
    if threshold > 0:
        draft.put((*CLIPPING, "kind"), "global-norm", how or "a bound on the norm of all gradients")
        draft.put((*CLIPPING, "threshold"), threshold, how)
    elif draft.number(*names) is not None:
        name = next(name for name in names if draft.values.get(name) is not None)
        if name in _ALWAYS_CLIPPING:
            draft.lacks(CLIPPING, f"{name} is {threshold:g}, a bound to which the program scales every gradient")
        else:
            draft.remark(f"{name} is {threshold:g}: gradients are not clipped, and the plan has no clipping", name)
