"""Lists the formats; each reader adds what its format says of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.formats import (
    by_content,
    dcp,
    deepspeed,
    huggingface,
    keras,
    manifest,
    megatron,
    nearby,
    orbax,
    residue,
    safetensors,
    tensorflow,
    torch_zip,
)
from trainspec_validate.checkpoints.view import Checkpoint

READERS: tuple[Callable[[Checkpoint], None], ...] = (
    manifest.read,
    safetensors.read,
    huggingface.read,
    torch_zip.read,
    dcp.read,
    deepspeed.read,
    megatron.read,
    orbax.read,
    tensorflow.read,
    keras.read,
    nearby.read,
    residue.read,
    by_content.read,
)


def read_all(checkpoint: Checkpoint) -> None:
    """Let every reader look at the checkpoint; what one of them fails at keeps no other from it."""
    for read in READERS:
        with judged(checkpoint, "", f"what the reader {read.__module__.rpartition('.')[2]} takes for its own"):
            read(checkpoint)
