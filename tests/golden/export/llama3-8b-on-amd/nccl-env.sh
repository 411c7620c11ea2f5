# Written by trainspec VERSION from TrainingPlan torchtitan-llama3-8b, ClusterProfile zyphra-ibm-mi300x.
# Settings were checked against NCCL 2.30.7, RCCL 2.21.5, aws-ofi-nccl 1.21.1 and PyTorch 2.15.0.

# cluster: fabrics[rails].cross_rail_traffic is forbidden (TS-TOP-003)
export NCCL_CROSS_NIC=0
