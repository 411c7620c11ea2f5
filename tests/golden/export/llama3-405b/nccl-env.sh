# Written by trainspec VERSION from TrainingPlan llama3-405b-16384, ClusterProfile meta-llama3-24k, CheckpointPolicy llama3-405b-16384.
# Settings were checked against NCCL 2.30.7, RCCL 2.21.5, aws-ofi-nccl 1.21.1 and PyTorch 2.15.0.

# The documents imply no setting; the library's defaults hold.
