"""Shows, without the suite, what TensorFlow does with a damaged and with a lost checkpoint."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import tensorflow as tf


def main() -> None:
    """Flip a bit of the newer of two checkpoints, then let the file that names the newest one name another, or none."""
    with TemporaryDirectory() as directory:
        weights = tf.Variable(tf.zeros(1000))
        checkpoint = tf.train.Checkpoint(weights=weights)
        manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=3)
        for step in (1, 2):
            weights.assign(tf.fill([1000], float(step)))
            manager.save(checkpoint_number=step)
        file = Path(directory) / "ckpt-2.data-00000-of-00001"
        content = bytearray(file.read_bytes())
        content[2000] ^= 1
        file.write_bytes(content)
        newest = tf.train.latest_checkpoint(directory)
        print(f"newest: {Path(newest).name}, of {[Path(one).name for one in manager.checkpoints]}")  # noqa: T201
        try:
            checkpoint.restore(newest)
        except tf.errors.DataLossError as error:
            print(f"restore: DataLossError: {error.message[-110:]}")  # noqa: T201
        (Path(directory) / "checkpoint").write_text('model_checkpoint_path: "ckpt-9"\n', encoding="utf-8")
        print(f"newest where ckpt-9 is named: {tf.train.latest_checkpoint(directory)}")  # noqa: T201
        (Path(directory) / "checkpoint").write_text("", encoding="utf-8")
        try:
            tf.train.latest_checkpoint(directory)
        except ValueError as error:
            print(f"newest where the file is empty: ValueError: {str(error)[:32]}")  # noqa: T201


if __name__ == "__main__":
    main()
