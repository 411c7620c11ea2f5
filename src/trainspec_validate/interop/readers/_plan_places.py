"""Maps settings that no reader of plans takes over to the keys of a plan that state the same."""

from __future__ import annotations

import re

_PLACES = {
    "optimizer.clipping": (
        r"gradient_clipping(?:_threshold)?|clip_grad(?:_norm)?|max_grad_norm|max_norm|gradient_clip_(?:val|norm)"
    ),
    "optimizer.learning_rate": (
        r"(?:min_)?lr|learning_rate|min_lr_(?:rate|ratio|factor)|warmup_(?:ratio|steps|num_steps|max_lr)"
        r"|lr_decay_(?:iters|samples|tokens|style)|lr_warmup_(?:iters|samples|tokens|fraction|steps)"
        r"|lr_scheduler_type|lr_scheduler\.decay_(?:ratio|type)|learning_rate_(?:schedule|final)\w*|sched\.name"
    ),
    "optimizer.name": r"optim|(?:optimizer|optim)\.(?:name|type)|optimizer|opt_type|use_muon",
    "lora": r"lora_(?:r|rank|alpha|target|target_modules|enable)|use_(?:peft|lora)",
    "precision.frozen_parameters": r"load_in_[48]bit|q_?lora|quantization_bit",
    "parallelism.expert_tensor": r"expert_tensor_(?:model_)?parallel_(?:degree|size)",
    "data": r"dataset|datasets|data_path|dataset_(?:name|path|dir)|train_(?:file|data_path)|data\w*\.seed",
}
"""Ends of dotted names, by the place in a plan."""
_ENDS = {place: re.compile(rf"(?:^|\.)(?:{ends})\Z") for place, ends in _PLACES.items()}


def place_of(name: str) -> str | None:
    """Where a plan states what a setting says; None where it has no place for it.

    >>> place_of("training.max_norm"), place_of("--clip-grad"), place_of("optimizer.params.lr"), place_of("log_level")
    ('optimizer.clipping', 'optimizer.clipping', 'optimizer.learning_rate', None)
    """
    plain = name.lower().lstrip("-").replace("-", "_")
    return next((place for place, ends in _ENDS.items() if ends.search(plain)), None)
