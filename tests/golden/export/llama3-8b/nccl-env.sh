# Written by trainspec VERSION from TrainingPlan torchtitan-llama3-8b, ClusterProfile coreweave-h100.
# Settings were checked against NCCL 2.30.7, RCCL 2.21.5, aws-ofi-nccl 1.21.1 and PyTorch 2.15.0.

# The documents imply no setting; the library's defaults hold.
