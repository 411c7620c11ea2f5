#!/usr/bin/env bash
# Written by trainspec VERSION from TrainingPlan llama3-405b-16384, ClusterProfile meta-llama3-24k, CheckpointPolicy llama3-405b-16384.
# Settings were checked against PyTorch 2.15.0 (torch/distributed/run.py).
# Rank order, from adjacent ranks outwards (plan: parallelism.order):
# tensor: groups of 8, 1 apart, inside a node
# pipeline: groups of 16, 8 apart, over 16 nodes on fabric roce
# data: groups of 128, 128 apart, over 2048 nodes on fabric roce
# plan: parallelism.rank_order is topology (TS-TOP-022). Static rendezvous keeps the order of --node-rank.
set -euo pipefail
(($# > 0)) || { echo "usage: NODE_RANK=0 MASTER_ADDR=host $0 train.py [argument]..." >&2; exit 2; }
here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# Variables of the collective library, written by `trainspec export --to nccl-env`.
if [[ -r "${here}/nccl-env.sh" ]]; then
  # shellcheck source=/dev/null
  source "${here}/nccl-env.sh"
fi
# Static rendezvous cannot restart other nodes: what starts this script restarts all of them.
exec torchrun \
  --nnodes=2048 \
  --nproc-per-node=8 \
  --node-rank="${NODE_RANK:?this node}" \
  --master-addr="${MASTER_ADDR:?first host}" \
  --master-port=29500 \
  --max-restarts=0 \
  "$@"
