"""Turns arguments of slime, which trains with Megatron-LM on generated responses, into the rollouts of a plan."""

from __future__ import annotations

from trainspec_validate.interop.readers._plan_parts import Draft


def put_rollouts(draft: Draft) -> None:
    """Prompts and responses of a rollout, the optimizer steps on it, and the accelerators that generate alone.

    Source: THUDM/slime:slime/utils/arguments.py.
    """
    prompts, responses = draft.count("rollout_batch_size"), draft.count("n_samples_per_prompt")
    if prompts is None or responses is None:
        return
    draft.put(("rollout", "num_prompts"), prompts)
    draft.put(("rollout", "num_responses_per_prompt"), responses)
    whole = draft.counted("batch", "global_sequences")
    if whole:
        how = f"{prompts} prompts x {responses} responses over the sequences of a step"
        updates = draft.divide(("rollout", "num_updates"), prompts * responses, whole, how)
        rollouts = draft.count("num_rollout")
        if updates and rollouts:
            draft.put(("job", "num_steps"), rollouts * updates, f"{rollouts} rollouts x {updates} optimizer steps")
    if draft.flag("colocate"):
        draft.look("rollout_num_gpus")
    else:
        draft.copy(("rollout", "num_accelerators"), "rollout_num_gpus")
