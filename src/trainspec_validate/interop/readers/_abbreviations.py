"""Reads options that a command cuts short, which the parser of the Trainer's programs completes."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_validate.interop.readers._huggingface_training import is_example
from trainspec_validate.interop.readers._plan_parts import Draft
from trainspec_validate.interop.readers._shell_found import PROGRAM, Option
from trainspec_validate.interop.readers._shell_options import Started

_TRAINER_FIELDS = """
    accelerator_config adafactor adam_beta1 adam_beta2 adam_epsilon auto_find_batch_size
    average_tokens_across_devices batch_eval_metrics bf16 bf16_full_eval data_seed dataloader_drop_last
    dataloader_num_workers dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor
    ddp_backend ddp_broadcast_buffers ddp_bucket_cap_mb ddp_find_unused_parameters ddp_timeout debug deepspeed
    disable_tqdm dispatch_batches do_eval do_predict do_train enable_jit_checkpoint eval_accumulation_steps
    eval_delay eval_do_concat_batches eval_on_start eval_packing eval_steps eval_strategy eval_use_gather_object
    evaluation_strategy fp16 fp16_backend fp16_full_eval fp16_opt_level fsdp fsdp_config fsdp_min_num_params
    fsdp_transformer_layer_cls_to_wrap full_determinism gradient_accumulation_steps gradient_checkpointing
    gradient_checkpointing_kwargs greater_is_better group_by_length half_precision_backend hub_always_push
    hub_model_id hub_private_repo hub_revision hub_strategy hub_token ignore_data_skip include_for_metrics
    include_inputs_for_metrics include_num_input_tokens_seen include_tokens_per_second jit_mode_eval label_names
    label_smoothing_factor learning_rate length_column_name liger_kernel_config load_best_model_at_end local_rank
    log_level log_level_replica log_on_each_node logging_dir logging_first_step logging_nan_inf_filter logging_steps
    logging_strategy lr_scheduler_kwargs lr_scheduler_type max_grad_norm max_steps metric_for_best_model
    mp_parameters neftune_noise_alpha no_cuda num_train_epochs optim optim_args optim_target_modules output_dir
    overwrite_output_dir parallelism_config past_index per_device_eval_batch_size per_device_train_batch_size
    per_gpu_eval_batch_size per_gpu_train_batch_size prediction_loss_only project push_to_hub push_to_hub_model_id
    push_to_hub_organization push_to_hub_token ray_scope remove_unused_columns report_to
    restore_callback_states_from_checkpoint resume_from_checkpoint run_name save_on_each_node save_only_model
    save_safetensors save_steps save_strategy save_total_limit seed sharded_ddp skip_memory_metrics split_batches
    tf32 torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps torchdynamo
    tpu_metrics_debug tpu_num_cores trackio_space_id use_cpu use_legacy_prediction_loop use_liger_kernel
    use_mps_device warmup_ratio warmup_steps weight_decay xpu_backend
"""
"""Fields of TrainingArguments (transformers 4.57.1, training_args.py), with some of earlier and later versions."""
_EXAMPLE_FIELDS = """
    model_name_or_path model_type model_revision model_max_length config_name config_overrides tokenizer_name
    cache_dir use_fast_tokenizer token trust_remote_code torch_dtype low_cpu_mem_usage dataset_name
    dataset_config_name dataset_config dataset_text_field dataset_num_proc train_file validation_file test_file
    max_train_samples max_eval_samples max_predict_samples streaming block_size overwrite_cache
    validation_split_percentage preprocessing_num_workers keep_linebreaks max_seq_length max_length
    max_source_length max_target_length val_max_target_length mlm_probability line_by_line pad_to_max_length
    task_name num_beams source_prefix packing use_peft lora_r lora_alpha lora_dropout lora_target_modules
    load_in_4bit load_in_8bit attn_implementation dtype
"""
"""Further fields of the examples of transformers and TRL, which may make a beginning ambiguous."""
_TRAINER, _EXAMPLES = frozenset(_TRAINER_FIELDS.split()), frozenset(_EXAMPLE_FIELDS.split())
_KNOWN_SHORT = frozenset({"lr_scheduler", "model_name", "dataset", "model", "data", "lora", "lr"})
"""Options of other programs that are no beginnings of these."""


def completed(name: str) -> str:
    """The one option that argparse takes a beginning for; empty for a whole option and where several begin so.

    >>> completed("gradient_acc"), completed("learning"), completed("max_grad")
    ('gradient_accumulation_steps', 'learning_rate', 'max_grad_norm')
    >>> completed("warmup"), completed("bf16"), completed("unheard_of")
    ('', '', '')
    """
    if name in _TRAINER | _EXAMPLES | _KNOWN_SHORT:
        return ""
    fitting = [option for option in _TRAINER | _EXAMPLES if option.startswith(name)]
    return fitting[0] if len(fitting) == 1 and fitting[0] in _TRAINER else ""


def complete_options(started: Started) -> list[tuple[str, str]]:
    """Give options that are cut short their whole names; returns both names of each.

    An example of transformers or TRL is known to take its options so. Of another program they may be options of its
    own, so that the whole option is left open.
    """
    program = started.values.get(PROGRAM)
    own = not (isinstance(program, str) and is_example(program))
    found = [(name, whole) for name in [*started.options] if (whole := completed(name))]
    for name, whole in found:
        given = started.options[name]
        if own and whole not in started.options:
            started.options[whole] = Option(f"$(--{name})", given.line)
        elif not own:
            del started.options[name]
            twice = whole in started.options and started.options[whole].value != given.value
            started.options[whole] = Option(f"$(--{name})", given.line) if twice else given
    return found if not own else []


def tell_completed(draft: Draft, found: Iterable[tuple[str, str]]) -> None:
    """Remarks on the options that were cut short."""
    for name, whole in found:
        draft.remark(f"--{name} is read as the beginning of {whole}, as argparse does", whole)
