"""Shows, without the suite, that `fit` of Keras 3 does not train on two TensorFlow workers.

Run it once: it starts the workers itself. With `accumulation` as its argument it shows another limit, of one worker.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

LIMIT_SECONDS = 300


def model(strategy: Any, accumulation_steps: int | None) -> Any:
    """A layer that is compiled in a strategy."""
    import keras  # noqa: PLC0415 - the environment is set before

    with strategy.scope():
        made = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        made.compile(keras.optimizers.SGD(gradient_accumulation_steps=accumulation_steps), loss="mse")
    return made


def train(accumulation_steps: int | None) -> None:
    """Five optimizer steps, as a user writes them."""
    import numpy as np  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    inputs = np.ones((40, 4), "float32")
    samples = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(1, keepdims=True))).batch(8)
    name = f"{strategy.num_replicas_in_sync} workers, accumulation {accumulation_steps}"
    try:
        model(strategy, accumulation_steps).fit(samples, verbose=0)
    except (ValueError, RuntimeError) as error:
        print(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)  # noqa: T201
        os._exit(1)  # the other workers would wait for this one
    print(f"{name}: trained", flush=True)  # noqa: T201


def main() -> None:
    """Two workers without accumulation, or one with it."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    if "TF_CONFIG" in os.environ:
        train(None)
        return
    if sys.argv[1:] == ["accumulation"]:
        train(2)
        return
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind(("127.0.0.1", 0))
        workers = [f"127.0.0.1:{one.getsockname()[1]}" for one in (first, second)]
    configs = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(2)]
    started = [
        subprocess.Popen([sys.executable, __file__], env={**os.environ, "TF_CONFIG": json.dumps(config)})  # noqa: S603
        for config in configs
    ]
    for worker in started:
        worker.wait(LIMIT_SECONDS)


if __name__ == "__main__":
    main()
