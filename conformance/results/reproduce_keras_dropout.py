"""Shows, without the suite, that a checkpoint of TensorFlow lacks the random state of Keras."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import keras
import tensorflow as tf


def made() -> keras.Model:
    """A model with dropout and weights, the same each time."""
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.layers.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])


def main() -> None:
    """Compare the outputs that follow a save with those that follow its restore."""
    inputs = tf.ones((1, 8))
    with TemporaryDirectory() as directory:
        model = made()
        model(inputs, training=True)
        path = tf.train.Checkpoint(model=model).save(str(Path(directory) / "ckpt"))
        uninterrupted = [float(model(inputs, training=True)[0, 0]) for _ in range(3)]
        resumed = made()
        tf.train.Checkpoint(model=resumed).restore(path).assert_existing_objects_matched()
        found = [float(resumed(inputs, training=True)[0, 0]) for _ in range(3)]
        print("in the checkpoint:", [name for name, _ in tf.train.list_variables(path)])  # noqa: T201
        print(f"uninterrupted {uninterrupted}, resumed {found}, equal: {found == uninterrupted}")  # noqa: T201


if __name__ == "__main__":
    main()
