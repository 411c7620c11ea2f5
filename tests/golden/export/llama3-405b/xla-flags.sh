# Written by trainspec VERSION from TrainingPlan llama3-405b-16384, ClusterProfile meta-llama3-24k, CheckpointPolicy llama3-405b-16384.
# Settings were checked against jaxlib 0.10.2.
# Device mesh, outermost axis first (plan: parallelism.order): data 128, pipeline 16, tensor 8

# plan: communication.overlap_gradients (TS-COM-011)
XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_latency_hiding_scheduler=true"

export XLA_FLAGS
