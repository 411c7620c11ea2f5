"""Finds the place in a plan that a setting states by its name, and reports settings that no reader took."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainspec_validate.interop.fragment import Remark

_PLACES = {
    "optimizer.clipping": (
        r"gradient_clipping(?:_threshold)?|clip_grad(?:_norm)?|max_grad_norm|max_norm|gradient_clip_(?:val|norm)"
    ),
    "optimizer.learning_rate": (
        r"(?:min_)?lr|learning_rate|min_lr_(?:rate|ratio|factor)|warmup_(?:ratio|steps|num_steps|max_lr)"
        r"|lr_decay_(?:iters|samples|tokens|style)|lr_warmup_(?:iters|samples|tokens|fraction|steps)"
        r"|lr_scheduler_type|lr_scheduler\.decay_(?:ratio|type)|learning_rate_(?:schedule|final)\w*|sched\.name"
    ),
    "model": (
        r"num_(?:layers|attention_heads|query_groups|experts)|hidden_size|ffn_hidden_size"
        r"|max_position_embeddings|seq_length|max_seq_len(?:gth)?|max_length|tie_word_embeddings"
    ),
    "batch": r"(?:micro_|global_|train_|mini_)?batch_size|gradient_accumulation_steps|gas",
    "parallelism.sharding": r"zero_stage",
    "memory.activation_policy": (
        r"(?:use_|enable_)?(?:grad(?:ient)?|activation)_?(?:checkpoint(?:ing)?|ckpt)(?:_(?:enable|mode|policy))?"
        r"|(?:activations?_)?recompute\w*|checkpoint_activations|remat\w*"
    ),
    "memory.offload": r"(?:cpu_)?offload|offload_(?:optimizer|param|optim)\w*",
    "optimizer.name": r"optim|(?:optimizer|optim)\.(?:name|type)|optimizer|opt_type|use_muon",
    "parallelism.stage_layers": r"(?:pp_|pipe_?)?partition_method|pipe_partition_method",
    "batch.ramp": r"step_batch_size_schedule|(?:global_)?batch_size_(?:schedule|rampup\w*)|rampup_batch_size",
    "precision.loss_scaling": (
        r"fp16\.(?:min_)?loss_scale(?:_window)?|fp16\.(?:initial_scale_power|hysteresis|consecutive_hysteresis)"
        r"|(?:initial_|min_)?loss_scale(?:_window)?|initial_scale_power|hysteresis"
    ),
    "lora": r"lora_(?:r|rank|alpha|target|target_modules|enable)|use_(?:peft|lora)",
    "precision.frozen_parameters": r"load_in_[48]bit|q_?lora|quantization_bit",
    "parallelism.expert_tensor": r"expert_tensor_(?:model_)?parallel_(?:degree|size)",
    "data": r"dataset|datasets|data_path|dataset_(?:name|path|dir)|train_(?:file|data_path)|data\w*\.seed",
}
"""Ends of dotted names, by the place in a plan."""
_OUTSIDE = re.compile(
    r"(?:^|\.)(?:log_level\w*|log(?:ging)?_(?:steps|strategy|dir|first_step|interval|on_each_node)|log_\w+_to_tensorboard"
    r"|report_to|output_dir|overwrite_output_dir|tensorboard\w*|wandb_\w+|steps_per_print|wall_clock_breakdown"
    r"|do_(?:train|eval|predict)|save_(?:strategy|total_limit|only_model)|eval(?:uation)?_strategy"
    r"|per_device_eval_batch_size|remove_unused_columns|eval_batch_size"
    r"|comms_logger(?:\.\w+)?|disable_tqdm|push_to_hub|hub_\w+|tokenizer_(?:type|model|path|name\w*)|vocab_file|merge_file"
    r"|master_(?:addr|port)|node_rank|local_rank|rdzv_\w+|weight_decay|adam_(?:beta1|beta2|eps\w*)|eval_(?:iters|interval|steps))\Z"
)
"""Ends of dotted names of settings that a plan has no key for."""
_ENDS = {place: re.compile(rf"(?:^|\.)(?:{ends})\Z") for place, ends in _PLACES.items()}


def place_of(name: str) -> str | None:
    """Where a plan states what a setting says; None where it has no place for it.

    >>> place_of("profiler.warmup_steps"), place_of("scheduler.warmup_steps")
    (None, 'optimizer.learning_rate')
    >>> place_of("training.max_norm"), place_of("--clip-grad"), place_of("optimizer.params.lr"), place_of("log_level")
    ('optimizer.clipping', 'optimizer.clipping', 'optimizer.learning_rate', None)
    """
    plain = _plain(name)
    if plain.startswith("profil"):
        return None
    return next((place for place, ends in _ENDS.items() if ends.search(plain)), None)


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_")


MAX_LISTED = 400
"""Names that one remark lists."""


def unread_remarks(names: Sequence[str]) -> Iterator[Remark]:
    """Remarks on settings that no one read: those that a plan has a place for, and the rest."""
    places = {name: place_of(name) for name in names}
    placed: dict[str, list[str]] = {}
    for name, place in places.items():
        if place is not None:
            placed.setdefault(place, []).append(name)
    for place, those in placed.items():
        yield Remark(f"not read by this importer; a plan states it in {place}: {listed(those)}")
    rest = [name for name, place in places.items() if place is None]
    outside = [name for name in rest if _OUTSIDE.search(_plain(name))]
    if outside:
        yield Remark(f"not read, because a plan has no place for it: {listed(outside)}")
    if other := [name for name in rest if name not in outside]:
        yield Remark(f"not read, because this reader does not know it: {listed(other)}")


def listed(names: Sequence[str]) -> str:
    """Names for a remark, the first of them where they are very many."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{', '.join(names[:MAX_LISTED])}{more}"
