#!/usr/bin/env bash
# Written by trainspec VERSION from TrainingPlan torchtitan-llama3-8b, ClusterProfile zyphra-ibm-mi300x.
# Settings were checked against PyTorch 2.15.0 (torch/distributed/run.py).
# Rank order, from adjacent ranks outwards (plan: parallelism.order):
# data: groups of 128, 1 apart, over 16 nodes on fabric rails
# The plan states no rank_order (TS-TOP-022). Rendezvous by c10d sorts hosts by name.
set -euo pipefail
(($# > 0)) || { echo "usage: MASTER_ADDR=host RUN_ID=name $0 train.py [argument]..." >&2; exit 2; }
here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
# Variables of the collective library, written by `trainspec export --to nccl-env`.
if [[ -r "${here}/nccl-env.sh" ]]; then
  # shellcheck source=/dev/null
  source "${here}/nccl-env.sh"
fi
exec torchrun \
  --nnodes=16 \
  --nproc-per-node=8 \
  --rdzv-backend=c10d \
  --rdzv-endpoint="${MASTER_ADDR:?first host}":29500 \
  --rdzv-id="${RUN_ID:?name of the run}" \
  --max-restarts=0 \
  "$@"
