"""A loop in JAX with Flax and optax, whose saves Orbax finishes beside it: OUT FIRST."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen

from trainspec_record.adapters.jax import Loop, begin

OUT, FIRST = Path(sys.argv[1]), int(sys.argv[2])
BATCH, NUM_STEPS, SAVE_EVERY, GROWN = 4, 16, 4, 10
SCHEDULE = optax.exponential_decay(0.1, 1, 0.9)


def batches(first: int) -> list[np.ndarray]:
    """Inputs of the steps; one of them is longer, so that the step compiles again."""
    random = np.random.default_rng(0)
    found = [random.normal(size=(2 * BATCH if number == GROWN else BATCH, 4)) for number in range(NUM_STEPS)]
    return [each.astype("float32") for each in found[first:]]


def main() -> None:
    model, optimizer = linen.Dense(1), optax.sgd(SCHEDULE)
    parameters = model.init(jax.random.key(0), jnp.ones((1, 4)))
    state = {"parameters": parameters, "optimizer": optimizer.init(parameters)}

    @jax.jit
    def step(state: dict, x: jax.Array) -> tuple[dict, dict]:
        def loss_of(parameters: dict) -> jax.Array:
            return jnp.square(model.apply(parameters, x) - x.sum(axis=1, keepdims=True)).mean()

        loss, gradient = jax.value_and_grad(loss_of)(state["parameters"])
        updates, optimizer_state = optimizer.update(gradient, state["optimizer"])
        found = {"parameters": optax.apply_updates(state["parameters"], updates), "optimizer": optimizer_state}
        return found, {"loss": loss, "norm": optax.global_norm(gradient)}

    truth: dict[str, list[float]] = {"losses": [], "norms": []}
    unsupported = {"train.token.rate": "there are no tokens", "train.gradient.variance": "not computed"}
    unsupported["train.gradient.signal"] = "not computed"
    with begin(unsupported=unsupported) as run, Loop(run) as loop:
        checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        if FIRST:
            with loop.restoring(OUT / f"step-{FIRST}"):
                state = checkpointer.restore(OUT / f"step-{FIRST}", args=ocp.args.StandardRestore(state))
        for number, x in enumerate(loop.batches(batches(FIRST)), FIRST):
            with loop.step(number):
                state, metrics = step(state, x)
                loop.log(loss=metrics["loss"], gradient_norm=metrics["norm"], samples=len(x))
                loop.log(learning_rate=float(SCHEDULE(number)))
            truth["losses"].append(metrics["loss"])
            truth["norms"].append(metrics["norm"])
            if (number + 1) % SAVE_EVERY == 0:
                with loop.saving(OUT / f"step-{number + 1}"):
                    checkpointer.save(OUT / f"step-{number + 1}", args=ocp.args.StandardSave(state), force=True)
        with loop.evaluation("held-out") as evaluation:
            evaluation.log(loss=float(metrics["loss"]))
        checkpointer.wait_until_finished()
    checkpointer.close()
    (OUT / "truth.json").write_text(json.dumps({key: [float(each) for each in found] for key, found in truth.items()}))


if __name__ == "__main__":
    main()
