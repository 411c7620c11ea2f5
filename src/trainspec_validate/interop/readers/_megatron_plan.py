"""Turns arguments of Megatron-LM, by their names, into parts of a plan."""

from __future__ import annotations

import re

from trainspec_validate.interop.readers import _megatron_deepspeed as deepspeed
from trainspec_validate.interop.readers._megatron_model import ARGUMENTS, write_model
from trainspec_validate.interop.readers._megatron_precision import write_precision
from trainspec_validate.interop.readers._plan_parts import Default, Draft, Habit, is_count, like, name_of, shown
from trainspec_validate.model.values import cut_to
from trainspec_validate.system.digits import is_digits

MAX_LENGTH = 16 * 1024
_VARIABLE = ("variable_seq_lengths", "enable_variable_seq_lengths")
_KINDS = ("model", "model_type")
"""Settings whose value names the kind of a model."""
_GROUP = re.compile(r"\(([^()]*)\)\*([0-9]{1,4})")
_REPEAT = re.compile(r"([A-Za-z|])\*([0-9]{1,4})")


def layout_layers(layout: object) -> list[int] | None:
    r"""Decoder layers of each chunk in order; None for what is no layout.

    In a string `t` is a layer, `|` ends a chunk, `*n` repeats a letter or a group in parentheses, and other letters
    are no decoder layers. In a list each chunk is a list of words. Source:
    NVIDIA/Megatron-LM@d98e8a64:megatron/core/transformer/pipeline_parallel_layer_layout.py.

    >>> layout_layers("Et*3|(tt|)*2mL"), layout_layers([["embedding", "decoder"], ["decoder", "loss"]])
    ([3, 2, 2, 0], [1, 1])
    >>> layout_layers(r"Et\|\(tt\|\)*2L")
    [1, 2, 2, 0]
    >>> layout_layers("t*9999*9999*9999") is None
    True
    """
    if isinstance(layout, list):
        if not layout or not all(isinstance(chunk, list) for chunk in layout):
            return None
        return [sum(word == "decoder" for word in chunk) for chunk in layout]
    if not isinstance(layout, str) or len(layout) > MAX_LENGTH:
        return None
    text = re.sub(r"[\s,\\]", "", layout)  # a script that is evaluated twice writes `\|`
    for pattern in (_GROUP, _REPEAT):
        while pattern.search(text):
            grown = sum(len(found[1]) * int(found[2]) for found in pattern.finditer(text))
            if len(text) + grown > MAX_LENGTH:
                return None
            text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    if not re.fullmatch(r"[A-Za-z|]*t[A-Za-z|]*", text):
        return None
    return [chunk.count("t") for chunk in text.split("|")]


_MAX_STAGES = 1024
_ZERO_BUBBLE = ("enable_zbh1_pipeline", "enable_zbh1_exact_semantics", "enable_zero_bubble", "zero_bubble_v_schedule")
"""Of Megatron-DeepSpeed, and of the Megatron-LM of sail-sg."""
_CONTEXT_METHODS = {
    "p2p": "ring",
    "all_gather": "all-gather",
    "a2a": "head-parallel",
    "a2a+p2p": "head-parallel-ring",
}
_OLDER_DEGREES = {
    "tensor": ("tensor_parallel_size", "model_parallel_size"),
    "pipeline": ("pipeline_parallel_size", "pipe_parallel_size"),
    "expert": ("expert_parallel_size", "moe_expert_parallel_size"),
}
"""What the degrees are called in the first version of Megatron-LM and in programs that wrap it."""


def write_plan(draft: Draft, *, logged: bool = False) -> None:
    """Everything that arguments say of model, degrees, batch, formats, communication and memory.

    `logged` is for a table of arguments in which defaults are already filled in.
    """
    write_model(draft)
    _write_degrees(draft)
    _write_pipeline(draft)
    _write_sharding(draft)
    _write_batch(draft)
    _write_ramp(draft)
    _leave_tokens_open(draft)
    write_precision(draft, logged=logged)
    _write_job(draft)


def _leave_tokens_open(draft: Draft) -> None:
    """Leave open the tokens of a step where sequences differ in length, or are latents of a diffusion model."""
    why = ""
    for name, value in draft.values.items():
        if name in _VARIABLE and draft.flag(name):
            why = f"{name}: sequences are as long as they come, and seq_length is the most"
        elif name.rpartition(".")[2] in _KINDS and isinstance(value, str) and "diffusion" in value.casefold():
            why = f"{name} is {cut_to(value, 40)}: a diffusion model trains on latents, and not on tokens"
    if why:
        for place in (("batch", "global_tokens"), ("job", "num_tokens")):
            draft.lacks(place, why)


def _write_degrees(draft: Draft) -> None:
    degrees = {"tensor": "tensor_model", "pipeline": "pipeline_model", "context": "context", "expert": "expert_model"}
    for axis, words in degrees.items():
        names = [f"{words}_parallel_size", *_OLDER_DEGREES.get(axis, ())]
        stated = draft.copy(("parallelism", axis), *names)
        if stated is None and axis in {"context", "expert"} and deepspeed.is_fork(draft):
            deepspeed.write_degrees(draft)
        draft.default(("parallelism", axis), 1, f"the default of {ARGUMENTS}")
    if draft.get("model", "family") != "dense-transformer" or draft.count("expert_tensor_parallel_size") != 1:
        draft.copy(("parallelism", "expert_tensor"), "expert_tensor_parallel_size")
    for name in ("encoder_pipeline_model_parallel_size", "encoder_tensor_model_parallel_size"):
        if draft.count(name):
            why = f"{name} gives the encoder ranks of its own, next to those of the decoder"
            draft.drop([("parallelism", axis) for axis in ("tensor", "pipeline", "data")], why)
    draft.copy(("parallelism", "data"), "data_parallel_size")
    _write_context_method(draft)
    _write_sequence(draft)
    if draft.flag("use_tp_pp_dp_mapping"):
        order = ["tensor", "context", "expert", "pipeline", "data"]
        draft.put(("parallelism", "order"), order, "use_tp_pp_dp_mapping")


def _write_context_method(draft: Draft) -> None:
    """How attention sees sequences that context ranks divide; where layers differ, no word of a plan says it."""
    if (draft.get("parallelism", "context") or 1) == 1:
        return
    pointer, stated = ("parallelism", "context_method"), draft.look("cp_comm_type")
    words = set(stated.split()) if isinstance(stated, str) else set(map(str, stated or ()))
    method = _CONTEXT_METHODS.get(min(words)) if len(words) == 1 else None
    if method:
        draft.put(pointer, method, f"cp_comm_type {min(words)}")
    elif stated:
        draft.lacks(pointer, f"cp_comm_type is {shown(stated)}, for which a plan has no word")
    else:
        draft.default(pointer, "ring", f"the default of {ARGUMENTS}")


def _write_sequence(draft: Draft) -> None:
    """Sequence parallelism, which one tensor rank switches off: with a default degree that is a default as well."""
    pointer, sequence = ("parallelism", "sequence"), draft.flag("sequence_parallel")
    if sequence is None:
        draft.put(pointer, value=False, how=Default(f"the default of {ARGUMENTS}"))
    elif sequence and draft.get("parallelism", "tensor") == 1:
        usual = draft.derived.get(("parallelism", "tensor"), "")
        told = "sequence_parallel has no effect with one tensor rank: Megatron-LM switches it off"
        draft.remark(told, "sequence_parallel")
        draft.put(pointer, value=False, how=like(usual, "one tensor rank"))
    else:
        draft.put(pointer, sequence)


def _write_pipeline(draft: Draft) -> None:
    stages = draft.counted("parallelism", "pipeline") or 1
    layers = draft.counted("model", "num_layers")
    chunks = draft.count("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    per_chunk = draft.count("num_layers_per_virtual_pipeline_stage")
    if chunks is None and per_chunk and layers:
        how = f"{layers} layers over {stages} stages and {per_chunk} layers of a chunk"
        chunks = draft.divide(("parallelism", "num_virtual_stages"), layers, stages * per_chunk, how)
        if chunks is None:
            draft.lacks(("parallelism", "schedule"), "the number of chunks is not known")
            return
    elif chunks:
        draft.put(("parallelism", "num_virtual_stages"), chunks)
    for reason in draft.reasons("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage"):
        draft.lacks(("parallelism", "num_virtual_stages"), reason)
        draft.lacks(("parallelism", "schedule"), reason)
        return
    layout = draft.look("pipeline_model_parallel_layout")
    listed = layout_layers(layout) if layout is not None else None
    if layout is not None and (listed is None or len(listed) > _MAX_STAGES) and chunks is None:
        draft.lacks(("parallelism", "schedule"), "the chunks of each stage are in the layout, which is not understood")
    if listed and chunks is None and stages > 1 and len(listed) % stages == 0:
        chunks = len(listed) // stages
        draft.put(("parallelism", "num_virtual_stages"), chunks, "chunks of the layout over stages")
    if stages > 1:
        schedule, how = ("interleaved-1f1b" if (chunks or 1) > 1 else "1f1b"), "1F1B, interleaved with several chunks"
        if any(draft.flag(name) for name in _ZERO_BUBBLE):
            schedule, how = "zero-bubble", "a zero-bubble schedule that the command turns on"
        if ("parallelism", "schedule") not in draft.unknown:
            draft.put(("parallelism", "schedule"), schedule, Habit(f"Megatron-LM runs {how}"))
        method = draft.look("pp_partition_method")
        if method is not None or draft.reasons("pp_partition_method"):
            why = f"pp_partition_method {shown(method)} splits them by kind; list the layers of each stage"
            draft.lacks(("parallelism", "stage_layers"), why)
        elif layout is None:
            _write_split(draft, layers, stages, chunks or 1)
        else:
            _write_layout(draft, listed, stages * (chunks or 1))


def _write_layout(draft: Draft, listed: list[int] | None, total: int) -> None:
    """Layers of each chunk as a layout lists them."""
    if listed is None or len(listed) > _MAX_STAGES:
        draft.lacks(("parallelism", "stage_layers"), "the layout is not understood; list the layers of each chunk")
        draft.remark("pipeline_model_parallel_layout is not understood", "pipeline_model_parallel_layout")
        return
    if len(listed) != total:
        told = f"the layout has {len(listed)} chunks, the stages have {total}"
        draft.remark(told, "pipeline_model_parallel_layout")
    draft.put(("parallelism", "stage_layers"), listed, "layers of each chunk in the layout")


def _write_split(draft: Draft, layers: int | None, stages: int, chunks: int) -> None:
    """Layers of each stage where they are not split evenly."""
    pointer = ("parallelism", "stage_layers")
    first = draft.count("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage")
    last = draft.count("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage")
    ends = [bool(draft.flag(f"account_for_{end}_in_pipeline_split")) for end in ("embedding", "loss")]
    total = stages * chunks
    if (first or last) and chunks > 1:
        draft.lacks(pointer, "the ends hold another number of layers over several chunks; list the layers of each")
        draft.remark("an uneven split of layers over chunks is not read; list it in parallelism.stage_layers")
        return
    if layers is None or total > _MAX_STAGES or total < 2 or not (first or last or any(ends)):
        return
    split = None
    if any(ends) and (layers + sum(ends)) % total == 0:
        each = (layers + sum(ends)) // total
        split = [each - ends[0], *[each] * (total - 2), each - ends[1]]
    elif first or last:
        rest = layers - (first or 0) - (last or 0)
        inner = total - bool(first) - bool(last)
        if rest >= 0 and inner and rest % inner == 0:
            split = [*([first] if first else []), *[rest // inner] * inner, *([last] if last else [])]
    if split is None:
        draft.remark(f"{layers} layers do not divide over {total} stages in the way that the arguments ask for")
    else:
        draft.put(pointer, split, "the ends as the arguments say, the rest evenly")


_STRATEGIES = {
    "no_shard": "none",
    "optim": "optimizer",
    "optim_grads": "gradients",
    "optim_grads_params": "parameters",
}


def _write_sharding(draft: Draft) -> None:
    flags = {draft.flag(name) for name in ("use_custom_fsdp", "use_megatron_fsdp", "use_torch_fsdp2")}
    fsdp = True in flags
    strategy = draft.known(_STRATEGIES, "data_parallel_sharding_strategy")
    distributed = draft.flag("use_distributed_optimizer")
    sharding = "optimizer" if distributed else "none"
    if fsdp and strategy is None and not draft.flag("use_torch_fsdp2"):
        why = "use_megatron_fsdp shards by data_parallel_sharding_strategy, which is not given"
        draft.lacks(("parallelism", "sharding"), why)
        return
    if fsdp:
        sharding = _STRATEGIES[strategy] if strategy else "parameters"
    said = fsdp or distributed is not None
    if not fsdp and deepspeed.is_fork(draft):
        found = deepspeed.sharding(draft)
        if found is None:
            return
        sharding, said = found, True
    how = "" if said else Default(f"whole copies, the default of {ARGUMENTS}")
    draft.put(("parallelism", "sharding"), sharding, how)
    instances = draft.count("num_distributed_optimizer_instances")
    if instances and instances > 1 and sharding != "none":
        data = draft.counted("parallelism", "data")
        if data:
            context = draft.counted("parallelism", "context") or 1
            draft.divide(("parallelism", "sharding_degree"), data * context, instances, "copies over instances")
        else:
            draft.lacks(("parallelism", "sharding_degree"), f"the data ranks over {instances} instances")


def _write_batch(draft: Draft) -> None:
    if draft.flag("use_dynamic_batch_size"):
        why = "use_dynamic_batch_size fills each micro-batch up to max_tokens_per_gpu"
        draft.lacks(("batch", "micro_sequences"), why)
        draft.lacks(("batch", "accumulation_steps"), why)
    else:
        draft.copy(("batch", "micro_sequences"), "micro_batch_size", "batch_size")
    whole = draft.copy(("batch", "global_sequences"), "global_batch_size")
    if whole is None and draft.look("retro_project_dir") is not None:
        for key in ("global_sequences", "accumulation_steps"):
            draft.lacks(("batch", key), "the project of retro_project_dir sets the batch, and is not read")
    elif whole is None and draft.get("batch", "global_sequences") is None and not draft.reasons("global_batch_size"):
        how = Default(f"no global batch is given: one micro-batch, after {ARGUMENTS}")
        draft.put(("batch", "accumulation_steps"), 1, how)
    if draft.word("task") == "RACE":
        why = "a sample of RACE is four sequences, one for each choice (NVIDIA/Megatron-LM:tasks/race/data.py)"
        draft.drop([("batch", "micro_sequences"), ("batch", "global_sequences")], why)
    per_token = draft.flag("calculate_per_token_loss")
    reduction = "global-token-mean" if per_token else "mean-of-micro-batch-means"
    draft.put(("batch", "loss_reduction"), reduction, "" if per_token else Default(f"the default of {ARGUMENTS}"))


def _write_ramp(draft: Draft) -> None:
    """`rampup_batch_size` start, increment, samples: equal shares of the samples at each size."""
    ramp = draft.look("rampup_batch_size")
    if draft.look("step_batch_size_schedule") is not None:
        draft.lacks(("batch", "ramp"), "step_batch_size_schedule changes the batch, and is not read")
        return
    if ramp is None:
        for reason in draft.reasons("rampup_batch_size"):
            draft.lacks(("batch", "ramp"), reason)
        return
    if isinstance(ramp, str):
        ramp = [int(word) if is_digits(word) and len(word) <= 18 else word for word in ramp.split()[:4]]
    whole, length = draft.counted("batch", "global_sequences"), draft.counted("model", "sequence_length")
    fits = isinstance(ramp, list) and len(ramp) == 3 and all(is_count(item) for item in ramp)
    if not fits or whole is None or length is None:
        draft.remark("rampup_batch_size is not understood: it takes the first batch, the increment and the samples")
        draft.lacks(("batch", "ramp"), "rampup_batch_size is not understood")
        return
    start, increment, samples = ramp
    count = (whole - start) // increment
    if not 0 < count <= 512:
        draft.remark(f"a ramp from {start} by {increment} to {whole} has {count} increments; it is not taken over")
        draft.lacks(("batch", "ramp"), f"it has {count} increments")
        return
    stages = [
        {"from_tokens": -(-samples * step // count) * length, "global_sequences": start + step * increment}
        for step in range(count + 1)
    ]
    if (whole - start) % increment:
        draft.remark(f"increments of {increment} do not lead from {start} to {whole} sequences", "rampup_batch_size")
    draft.put_records(("batch", "ramp"), stages, f"{count} increments over {samples} samples")


def _write_job(draft: Draft) -> None:
    run = name_of(draft.word("wandb_exp_name") or "")
    if run:
        draft.put(("metadata", "name"), run)
    draft.copy(("job", "num_steps"), "train_iters")
    draft.copy(("job", "seed"), "seed", least=0)
    samples = draft.count("train_samples")
    if samples and draft.get("job", "num_steps") is not None:
        why = "train_iters and train_samples are both given; Megatron-LM takes one of them"
        draft.remark(why, "train_samples")
        draft.drop([("job", "num_steps")], why)
        draft.lacks(("job", "num_tokens"), why)
        return
    whole, length = draft.counted("batch", "global_sequences"), draft.counted("model", "sequence_length")
    if samples and length:
        draft.put(("job", "num_tokens"), samples * length, "samples x sequence length")
        grows = draft.get("batch", "ramp") or ("batch", "ramp") in draft.unknown
        if whole and not grows and draft.get("job", "num_steps") is None:
            draft.put(("job", "num_steps"), max(1, samples // whole), "samples over sequences of a step")
    deepspeed.write_tokens(draft)
    for name in ("save_interval", "non_persistent_save_interval"):
        steps = draft.count(name)
        if steps:
            draft.remark(f"{name}: a checkpoint every {steps} steps; it belongs into a checkpoint policy", name)
    if draft.flag("async_save"):
        draft.remark(
            "async_save: checkpoints are saved during training; it belongs into a checkpoint policy", "async_save"
        )
