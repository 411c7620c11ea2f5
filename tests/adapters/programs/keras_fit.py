"""`fit` of Keras 3 with validation, a schedule and saves: OUT EXECUTIONS FIRST."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras
import numpy as np

from trainspec_record.adapters.keras import Recorder, begin

OUT, EXECUTIONS, FIRST = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
BATCH, NUM_BATCHES, NUM_EPOCHS = 4, 6, 3


class Truth(keras.callbacks.Callback):
    """Mean losses of the epochs, as Keras tells them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[float]] = {"losses": [], "validations": []}

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.found["losses"].append((logs or {})["loss"])
        self.found["validations"].append((logs or {})["val_loss"])


def model_of() -> keras.Model:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), loss="mse", steps_per_execution=EXECUTIONS)
    return model


def main() -> None:
    keras.utils.set_random_seed(0)
    inputs = np.random.default_rng(0).normal(size=(BATCH * NUM_BATCHES, 4)).astype("float32")
    outputs = inputs.sum(axis=1, keepdims=True)
    truth = Truth()
    path = OUT / "model.keras"
    with begin(samples=BATCH, report_interval_steps=EXECUTIONS) as run:
        if FIRST:
            with run.restore("model", FIRST):
                model = keras.models.load_model(path)
        else:
            model = model_of()
        model.fit(
            inputs,
            outputs,
            batch_size=BATCH,
            epochs=NUM_EPOCHS,
            initial_epoch=FIRST // NUM_BATCHES,
            validation_data=(inputs, outputs),
            shuffle=False,
            verbose=0,
            callbacks=[Recorder(run, samples=BATCH), keras.callbacks.ModelCheckpoint(path), truth],
        )
    (OUT / "truth.json").write_text(json.dumps({**truth.found, "iterations": int(model.optimizer.iterations)}))
    assert "save" not in model.__dict__


if __name__ == "__main__":
    main()
