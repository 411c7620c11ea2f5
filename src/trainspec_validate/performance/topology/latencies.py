"""Lists the latency of a message where a profile states none, by kind of link, with its source."""

from __future__ import annotations

# Per-hop constants of the ring with 128-byte flags: NVLink, PCIe and InfiniBand of
# NVIDIA/nccl@5067397c:src/graph/tuning.cc (v2.30), xGMI of ROCm/rccl@0cbce2a7:src/graph/tuning.cc (tuning model 0).
# Torus hops: jax-ml/scaling-book@0819a7d8:sharding.md. EFA, RoCE, TCPXO and TCPX: derived from the small-message rows
# of published sweeps (aws-samples/awsome-distributed-training@7217859f, GoogleCloudPlatform/cluster-toolkit@10470803),
# as time of the smallest message over network steps. The others are assumed: NeuronLink as a torus hop; MRC, UET,
# Slingshot and Omni-Path as InfiniBand; sockets and networks between data centres at 100 us.
_DOMAIN_SECONDS = {"nvlink": 1.9e-6, "xgmi": 2.2e-6, "pcie": 2.5e-6, "ici": 1e-6, "neuronlink": 1e-6}
_FABRIC_SECONDS = {
    "infiniband": 4e-6,
    "rocev2": 33e-6,
    "efa-srd": 27e-6,
    "tcpxo": 64e-6,
    "tcpx": 500e-6,
    "mrc": 4e-6,
    "uet": 4e-6,
    "slingshot": 4e-6,
    "omni-path": 4e-6,
    "ici": 1e-6,
    "dcn": 100e-6,
    "tcp": 100e-6,
}
_OTHER_DOMAIN_SECONDS = 2e-6
_OTHER_FABRIC_SECONDS = 10e-6


def domain_latency_seconds(technology: str) -> float:
    """Latency of one hop inside a scale-up domain, software included, where a profile states none.

    >>> domain_latency_seconds("nvlink")
    1.9e-06
    """
    return _DOMAIN_SECONDS.get(technology, _OTHER_DOMAIN_SECONDS)


def fabric_latency_seconds(transport: str) -> float:
    """Latency of one small message between nodes, software included, where a profile states none.

    >>> fabric_latency_seconds("efa-srd")
    2.7e-05
    """
    return _FABRIC_SECONDS.get(transport, _OTHER_FABRIC_SECONDS)
