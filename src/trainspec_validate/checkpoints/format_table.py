"""Lists the checkpoint formats in the order of their readers, and the names of files that show them."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.checkpoints.view import MANIFEST_NAME

STATE_SUFFIXES = (
    *(".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"),
    *(".npy", ".npz", ".h5", ".keras", ".safetensors"),
)
"""Ends of names, in lower case, of files that hold the state of training; loaders unpickle most of them."""


@dataclass(frozen=True, slots=True)
class CheckpointFormat:
    """One format: the module of its reader, and the names by which a directory is a checkpoint."""

    module: str
    """Module of `checkpoints.formats`; its function `read` adds what the format says to a checkpoint."""
    names: tuple[str, ...] = ()
    """Names of files that make their directory a checkpoint."""
    suffixes: tuple[str, ...] = ()
    """Ends of such names."""
    whole: tuple[str, ...] = ()
    """Ends of names of files that the reader judges to the last byte, so that no other looks at their content."""


FORMATS = (
    CheckpointFormat("manifest", names=(MANIFEST_NAME,)),
    CheckpointFormat(
        *("safetensors", ("model.safetensors.index.json",)), suffixes=(".safetensors",), whole=(".safetensors",)
    ),
    CheckpointFormat("huggingface", names=("pytorch_model.bin.index.json", "trainer_state.json")),
    CheckpointFormat("torch_zip"),
    CheckpointFormat(*("dcp", (".metadata", ".metadata.tmp")), suffixes=(".distcp",), whole=(".distcp", ".metadata")),
    CheckpointFormat("deepspeed", suffixes=("_model_states.pt", "_optim_states.pt")),
    CheckpointFormat("megatron"),
    CheckpointFormat("orbax", names=("_CHECKPOINT_METADATA", "manifest.ocdbt")),
    CheckpointFormat("tensorflow"),
    CheckpointFormat("keras", suffixes=(".keras", ".weights.h5"), whole=(".keras",)),
    CheckpointFormat("nearby"),
    CheckpointFormat("residue"),
    CheckpointFormat("by_content"),
)
"""In the order in which they look at a checkpoint; the last take what the others left."""
