"""Lists the names of code that pickles of checkpoints may hold."""

from __future__ import annotations

_PLAIN = {
    "builtins": {"bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object"}
    | {"range", "set", "slice", "str", "tuple"},
    "collections": {"OrderedDict", "defaultdict", "deque", "Counter"},
    "copyreg": {"_reconstructor"},
    "datetime": {"date", "datetime", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "argparse": {"Namespace"},
    "_codecs": {"encode"},
    "uuid": {"UUID"},
}
_PLAIN["__builtin__"] = _PLAIN["builtins"] | {"long", "unicode", "xrange"}
_PLAIN["copy_reg"] = _PLAIN["copyreg"]
_ARRAYS = {"_reconstruct", "scalar", "_frombuffer"}
_NUMPY = {
    **dict.fromkeys(("numpy.core.multiarray", "numpy._core.multiarray"), _ARRAYS),
    **dict.fromkeys(("numpy.core.numeric", "numpy._core.numeric"), _ARRAYS),
    "numpy": {"bool_", "dtype", "float16", "float32", "float64", "int32", "int64", "ndarray", "uint32", "uint64"},
    "numpy.random": {"Generator"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
}
_REBUILD = {
    *("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter"),
    *("_rebuild_parameter_with_state", "_rebuild_qtensor", "_rebuild_sparse_tensor", "_rebuild_meta_tensor_no_storage"),
    *("_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_wrapper_subclass"),
    *("_rebuild_nested_tensor", "_set_obj_state"),
}
# `torch._utils._rebuild_device_tensor_from_numpy` and its kin take arrays only. `torch.storage._load_from_bytes`, which
# loads another pickle, and `torch.load` are left out on purpose.
_TORCH = {
    "torch._utils": _REBUILD,
    "torch._tensor": {"_rebuild_from_type_v2"},
    "torch.nn.parameter": {"Buffer", "Parameter"},
    "torch.storage": {"TypedStorage", "UntypedStorage"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "StorageMeta", "_StoragePrefix", "SerializationFormat"},
    "torch.distributed.device_mesh": {"DeviceMesh"},
    "torch.distributed.tensor": {"DTensor"},
    "torch.distributed._tensor.api": {"DTensor"},
    "torch.distributed.tensor._dtensor_spec": {"DTensorSpec", "TensorMeta"},
    "torch.distributed.tensor.placement_types": {"Partial", "Replicate", "Shard"},
}
_METADATA = "torch.distributed.checkpoint.metadata"
_METADATA_NAMES = {
    *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta"),
    *("TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
}
# Settings of DeepSpeed as a mapping, which TrainingArguments hold:
# https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/integrations/deepspeed.py
_DEEPSPEED = {"HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig"}
_TRAINERS = {
    **dict.fromkeys(("transformers.integrations.deepspeed", "transformers.deepspeed"), _DEEPSPEED),
    "transformers.training_args": {"OptimizerNames", "ParallelMode", "TrainingArguments"},
    "transformers.trainer_utils": {"FSDPOption", "HubStrategy", "IntervalStrategy", "SaveStrategy", "SchedulerType"}
    | {"EvaluationStrategy"},
    "transformers.trainer_pt_utils": {"AcceleratorConfig"},
    "accelerate.state": {"PartialState"},
    "accelerate.utils.dataclasses": {"DeepSpeedPlugin", "DistributedType", "FullyShardedDataParallelPlugin"},
    "deepspeed.runtime.fp16.loss_scaler": {"DynamicLossScaler", "LossScaler"},
    "deepspeed.runtime.zero.config": {"ZeroStageEnum"},
    "deepspeed.utils.tensor_fragment": {"fragment_address"},
    # https://github.com/allenai/OLMo-core/blob/fa6c5014c/src/olmo_core/distributed/checkpoint/filesystem.py
    "olmo_core.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "megatron.core.enums": {"Fp4Recipe", "Fp8Recipe", "ModelType"},
    "megatron.core.transformer.enums": {"AttnBackend", "AttnMaskType", "CudaGraphScope", "LayerType"},
    "megatron.core.rerun_state_machine": {"RerunDiagnostic", "RerunMode", "RerunState"},
}
_SETTINGS = {
    "transformers.training_args_seq2seq": {"Seq2SeqTrainingArguments"},
    "transformers.training_args_tf": {"TFTrainingArguments"},
    "transformers.sagemaker.training_args_sm": {"SageMakerTrainingArguments"},
    "trl.experimental.a2po.a2po_config": {"A2POConfig"},
    "trl.experimental.async_distillation.async_distillation_config": {"AsyncDistillationConfig"},
    "trl.experimental.async_grpo.async_grpo_config": {"AsyncGRPOConfig"},
    "trl.experimental.bco.bco_config": {"BCOConfig"},
    "trl.experimental.cpo.cpo_config": {"CPOConfig"},
    "trl.experimental.distillation.distillation_config": {"DistillationConfig"},
    "trl.experimental.dppo.dppo_config": {"DPPOConfig"},
    "trl.experimental.gkd.gkd_config": {"GKDConfig"},
    "trl.experimental.gmpo.gmpo_config": {"GMPOConfig"},
    "trl.experimental.gold.gold_config": {"GOLDConfig"},
    "trl.experimental.grpo_with_replay_buffer.grpo_with_replay_buffer_config": {"GRPOWithReplayBufferConfig"},
    "trl.experimental.iw_opd.iw_opd_config": {"IWOPDConfig"},
    "trl.experimental.kto.kto_config": {"KTOConfig"},
    "trl.experimental.minillm.minillm_config": {"MiniLLMConfig"},
    "trl.experimental.nash_md.nash_md_config": {"NashMDConfig"},
    "trl.experimental.online_dpo.online_dpo_config": {"OnlineDPOConfig"},
    "trl.experimental.orpo.orpo_config": {"ORPOConfig"},
    "trl.experimental.papo.papo_config": {"PAPOConfig"},
    "trl.experimental.ppo.ppo_config": {"PPOConfig"},
    "trl.experimental.prm.prm_config": {"PRMConfig"},
    "trl.experimental.sdft.sdft_config": {"SDFTConfig"},
    "trl.experimental.sdpo.sdpo_config": {"SDPOConfig"},
    "trl.experimental.self_distillation.self_distillation_config": {"SelfDistillationConfig"},
    "trl.experimental.server_distillation.server_distillation_config": {"ServerDistillationConfig"},
    "trl.experimental.ssd.ssd_config": {"SSDConfig"},
    "trl.experimental.tpo.tpo_config": {"TPOConfig"},
    "trl.experimental.xpo.xpo_config": {"XPOConfig"},
    "trl.trainer.base_config": {"BaseConfig", "_BaseConfig"},
    "trl.trainer.bco_config": {"BCOConfig"},
    "trl.trainer.cpo_config": {"CPOConfig"},
    "trl.trainer.distillation_config": {"DistillationConfig"},
    "trl.trainer.dpo_config": {"DPOConfig", "FDivergenceType"},
    "trl.trainer.gkd_config": {"GKDConfig"},
    "trl.trainer.grpo_config": {"GRPOConfig"},
    "trl.trainer.iterative_sft_config": {"IterativeSFTConfig"},
    "trl.trainer.kto_config": {"KTOConfig"},
    "trl.trainer.nash_md_config": {"NashMDConfig"},
    "trl.trainer.online_dpo_config": {"OnlineDPOConfig"},
    "trl.trainer.orpo_config": {"ORPOConfig"},
    "trl.trainer.ppo_config": {"PPOConfig"},
    "trl.trainer.ppov2_config": {"PPOv2Config"},
    "trl.trainer.prm_config": {"PRMConfig"},
    "trl.trainer.reward_config": {"RewardConfig"},
    "trl.trainer.rloo_config": {"RLOOConfig"},
    "trl.trainer.sft_config": {"SFTConfig"},
    "trl.trainer.utils": {"OnPolicyConfig"},
    "trl.trainer.xpo_config": {"XPOConfig"},
}
"""Classes derived from TrainingArguments, by module: those of transformers 4.38 to 5.24, and of TRL 0.2 to 1.16."""
_ALLOWED = {**_PLAIN, **_NUMPY, **_TORCH, _METADATA: _METADATA_NAMES, **_TRAINERS, **_SETTINGS}
_TYPES = {
    *("Size", "device", "dtype", "Tensor", "strided", "sparse_coo", "per_tensor_affine", "contiguous_format"),
    *("per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric", "per_tensor_symmetric"),
    *("bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"),
    *("preserve_format", "channels_last", "BFloat16Storage", "BoolStorage", "ByteStorage", "CharStorage"),
    *("DoubleStorage", "FloatStorage", "HalfStorage", "IntStorage", "LongStorage", "ShortStorage"),
    *("ComplexFloatStorage", "ComplexDoubleStorage", "QInt8Storage", "QUInt8Storage", "QInt32Storage"),
    *("bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "float", "half", "double"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "qint8", "quint8", "qint32"),
}
_ALLOWED["torch"] = _TYPES


def is_allowed(module: str, name: str) -> bool:
    """Whether a name is one of plain data: numbers, containers, tensors, or settings of a known trainer."""
    return name in _ALLOWED.get(module, ())
