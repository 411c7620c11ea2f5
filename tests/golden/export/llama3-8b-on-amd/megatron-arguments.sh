# Written by trainspec VERSION from TrainingPlan torchtitan-llama3-8b, ClusterProfile zyphra-ibm-mi300x.
# Settings were checked against Megatron Core 0.20.0 (NVIDIA/Megatron-LM@d98e8a64:megatron/training/arguments.py).
MEGATRON_ARGUMENTS=(
  --num-layers 32
  --hidden-size 4096
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --kv-channels 128
  --ffn-hidden-size 14336
  --swiglu
  --seq-length 8192
  --max-position-embeddings 8192
  --untie-embeddings-and-output-weights
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --context-parallel-size 1
  --use-distributed-optimizer
  --use-megatron-fsdp
  --data-parallel-sharding-strategy optim_grads_params
  --micro-batch-size 2
  --global-batch-size 256
  --calculate-per-token-loss
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --recompute-granularity selective
)
