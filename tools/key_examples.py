"""Holds a value of each key that no document of the repository gives; schemas offer it, and the data model shows it.

Figures are published ones, with their source next to them. A key that a document or example gives is shown from there.
"""

from __future__ import annotations

from typing import Any

_SUBMISSION = "hsg_ngpu5120_ngc25.09_nemo"
"""A system of NVIDIA in MLPerf Training v5.1."""

OBSERVED: dict[str, dict[str, Any]] = {
    # mlcommons/training_results_v4.1, Clemson, 6 nodes of 8 H100: what `trainspec import` reads in the log of NCCL.
    "CollectiveObservation": {
        "group": "6x8xH100-SXM5-80GB",
        "num_ranks": 48,
        "num_nodes": 6,
        "forced_settings": ["NCCL_SOCKET_IFNAME"],
        # mlcommons/training_results_v5.1, MangoBoost, 2 nodes of 8 MI325X: the log of RCCL.
        "warnings": ["MSCCL++: Cannot enable MSCCL++; environment is not MSCCL compatible"],
    },
    # NVLink 4 has 18 links at each H100, whose clock ends at 1,980 MHz: NVIDIA H100 architecture, `nvidia-smi -q`.
    "DeviceObservation": {
        "num_active_links": 18,
        "least_link_bytes_per_second": 26.562e9,
        "clock_limit_hertz": 1.98e9,
        # leptonai/gpud, test data, `nvidia-smi -q` of an H100 with driver 535.161.08: to the power limit.
        "serial_number": "1650124031592",
        "host_link_most_lanes": 16,
        "host_link_generation": 5,
        "memory_bytes": 85_520_809_984,
        "ecc_enabled": True,
        "application_clock_hertz": 1.98e9,
        "power_limit_watts": 700,
        "num_uncorrected_errors": 0,
        "faults": ["xid:79", "row-remap:failure"],
    },
    # mlcommons/training_results_v4.0, ASUSTeK, ESC8000A-E12: driver 535.154.05.
    # NVIDIA/nvbandwidth@5d364368, README.md: reads of 8 A100 from each other.
    "CopyRate": {
        "kind": "device-to-device",
        "device": 7,
        "peer": 0,
        "bandwidth_bytes_per_second": 263.56e9,
    },
    # zjin-lcf/HeCBench, src/hpl-sycl/README.md.
    "LinpackRun": {"matrix_size": 4096, "num_ranks": 1, "flops_per_second": 138.7e9},
    # A DGX H100 as `nvidia-smi topo -m`, `nvidia-smi --query-gpu` and an XML of NCCL describe it.
    "DescribedAccelerators": {
        "num": 8,
        "names": ["0000:18:00.0", "0000:2a:00.0"],
        "model": "nvidia-h100-sxm-80gb",
        "memory_bytes": 85_520_809_984,
        "num_links": 18,
        "partitioned": False,
    },
    "DescribedNics": {
        "num": 8,
        "names": ["mlx5_0", "mlx5_3"],
        "technology": "infiniband",
        "rate_bytes_per_second": 50e9,
        "bonded": False,
    },
    "NodeDescription": {
        "file": "a08-p1-dgx-04-c01/topo.txt",
        "partial": False,
        "link_technology": "nvlink",
        "link_bytes_per_second": 25e9,
        "host_link_generation": 5,
        "host_link_num_lanes": 16,
    },
    "NodeObservation": {
        "group": "ESC8000A-E12",
        "driver": "535.154.05",
        "failed_checks": ["PCIe: Fail - GPU: 3"],
        "hosts": ["a08-p1-dgx-04-c01"],
    },
    # The output of `ibnetdiscover` in NVIDIA/topograph@e2b62507, tests, by its digest.
    "ObservedFile": {
        "path": "a08-p1-dgx-04-c01/ibnetdiscover.out",
        "digest": "sha256:030c9519c73aca217ab10d38c9481eb820eff222402f3b5cc2d49d2a241f46d1",
    },
    # A port of NDR, 400 Gb/s, of a ConnectX-7.
    "PortObservation": {
        "device": "mlx5_5",
        "rate_bytes_per_second": 50e9,
        "link_layer": "infiniband",
        "firmware": "28.42.1000",
        "node_guid": "a088c20300e3162c",
    },
}
"""Keys of what tools of a real machine report."""

MACHINES: dict[str, dict[str, Any]] = {
    "ClusterProfile": {
        # mlcommons/training_results_v5.1, Oracle, GB200.
        "notes": "The submission declares NVLink 4 and 8 compute NICs for the 4 accelerators of a node.",
        "unknowns": ["observations.0.library", "observations.0.num_nodes"],
    },
    # NVIDIA/topograph@e2b62507, tests: names and ports of an InfiniBand fabric of NDR; 20 m of fibre at 5 ns/m.
    "ExplicitDevice": {
        "upstream_generation": 5,
        "leaf": "A09-P1-IBLEAF-04-04",
        "identifier": "0xe09d7303007a4bd8",
    },
    "ExplicitLink": {
        "source": "a08-p1-dgx-04-c01",
        "target": "A09-P1-IBLEAF-04-04",
        "bandwidth_bytes_per_second": 50e9,
        "latency_seconds": 1e-7,
    },
    "ExplicitNode": {"rack": "a08"},
    "ExplicitSwitch": {"num_ports": 64},
    # Alibaba HPN, ACM SIGCOMM 2024: 128 ports of 200 Gb/s down and 60 of 400 Gb/s up at each leaf switch.
    "FabricTier": {"up_port_bandwidth_bytes_per_second": 50e9},
    "PortKind": {"num_ports": 128, "bandwidth_bytes_per_second": 25e9},
    "Host": {
        # AMD EPYC 9654: 12 channels of DDR5-4800, 460.8 GB/s for each of two sockets.
        "memory_bandwidth_bytes_per_second": 921.6e9,
        # Azure/azhpc-images@8e9d055f, topology/.
        "topology_file": "/opt/microsoft/ndv5-topo.xml",
    },
    # aws/aws-ofi-nccl@2daf7d30, topology/: p4d has two accelerators and a NIC on each upstream link of PCIe 3 x16.
    "HostLink": {"num_devices_per_upstream_link": 3, "upstream_bandwidth_bytes_per_second": 15.75e9},
    "NodeGroup": {"description": "DGX H100 nodes, each with 8 ConnectX-7 NICs for computation."},
    # Orion, the file system of Frontier: 450 object storage servers.
    # https://blocksandfiles.com/2022/06/04/the-dummies-guide-to-hpe-cray-frontiers-parallel-file-system-storage/
    "StorageTarget": {"num_stripe_targets": 450},
}
"""Keys of a cluster profile."""

JOBS: dict[str, dict[str, Any]] = {
    # Every checkpoint: the upper bound of the key, not the figure of a system.
    "CheckpointPolicy": {
        "share_of_restores_tested": 1,
        "notes": "Every save is restored by the evaluation job, which reads it from the object store.",
        "unknowns": ["job.mean_time_between_failures_seconds"],
    },
    "TrainingPlan": {
        "notes": "The report gives the batch and the sizes of parallelism; the order of dimensions is derived.",
        "unknowns": ["parallelism.context"],
    },
    # arXiv:2505.23971 doubles the batch, and measures the critical batch by branched runs.
    "BatchController": {
        "max_growth_factor": 2,
        "critical_batch_evidence": "Branched runs from one checkpoint, as in arXiv:2505.23971.",
    },
    "CollectiveChoice": {"reason": "nccl-tests on this fabric shows the ring ahead at this size."},
    # openai/tiktoken, tiktoken_ext/openai_public.py: the expected digest of cl100k_base.tiktoken.
    "Data": {"tokenizer_digest": "sha256:223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"},
    # The data of MLPerf Training, GPT-3 and Llama 3.1.
    "Dataset": {"reference": "https://huggingface.co/datasets/allenai/c4, en, 3.0.1"},
    "InitialCheckpoint": {"save_id": "676c39c843514b79b720594d20afce9b"},
    # cuBLAS recommends 32 MiB on Hopper: https://docs.nvidia.com/cuda/cublas/#cublassetworkspace
    "KernelFloor": {"implementation": "flash-attention-3", "workspace_bytes": 33_554_432},
    # GPT-3, arXiv:2005.14165, appendix B: 375 million tokens.
    "LearningRateSchedule": {"warmup_tokens": 375e6},
    "Model": {"description": "Llama 3.1 405B, dense, with grouped-query attention."},
    # facebookresearch/optimizers and KellerJordan/modded-nanogpt@f411b3d: Shampoo in blocks of 8,192.
    "Optimizer": {"max_preconditioner_size": 8192},
    "Precision": {"num_optimizer_moments": 2},
    "Rollout": {"node_group": "generation"},
    # PipeDream-2BW, arXiv:2006.09503: a constant delay of one.
    "Synchrony": {"max_staleness_steps": 1},
    "Telemetry": {"sink": "otel-collector"},
    "Source": {"accessed": "2026-11-27"},
    "Waiver": {"pointer": "/batch/ramp", "link": "https://github.com/NVIDIA/nccl/issues/588"},
    "UserRule": {"url": "https://docs.nvidia.com/deploy/xid-errors/"},
}
"""Keys of policies, plans, waivers and rules of users."""

CONFORMANCE: dict[str, dict[str, Any]] = {
    "Fault": {"seconds": 0.1},
    # What the suite itself writes for the hosts of a scenario without a network of its own.
    "TaskHost": {"name": "node-0", "address": "127.0.0.1", "interface": "lo", "enter": ["env"]},
    # karpathy/nanoGPT, config/train_shakespeare_char.py: an evaluation every 250 steps.
    "TestJob": {"evaluation_interval_steps": 250},
    "ConformanceReport": {
        "document_errors": ["cluster.yaml: TS-CLU-001: the groups have 8 nodes together, but num_nodes is 9"],
    },
    "Machine": {"accelerators": ["NVIDIA H200"]},
    "ReportNode": {
        "name": "node-0",
        "machine": 1,
        "system": "Linux 6.1.0",
        "num_processors": 2,
        "memory_bytes": 25_000_000_000,
    },
    # 95 % of the 87 recoveries in conformance/results/reference-torch/report-recovery.json, three scenarios together.
    "MomentFigures": {"p95_seconds": 7.6192},
    "ScenarioReport": {"num_ranks": 2, "gap": "The shim does not save when it is asked to end."},
}
"""Keys of tasks and reports."""

STREAMS: dict[str, dict[str, Any]] = {
    # The severity number of ERROR in OpenTelemetry; times are those of open-telemetry/opentelemetry-proto@ac2c4b5.
    "Event": {"severity": 17, "run": _SUBMISSION, "att": 1, "rank": 5119, "observed_us": 1_544_712_660_300_000},
    "ExtensionMetric": {"unit": "W", "description": "Power of a node, read every 2 s, as in MLPerf Training v4.0."},
    "Head": {
        "counters_start_us": 1_544_712_660_300_000,
        "unsupported": {"hw.energy": "The device is older than Volta; NVML counts energy from there on."},
    },
    # The histogram in open-telemetry/opentelemetry-proto@ac2c4b5, examples/metrics.json.
    "HistogramValue": {"count": 2, "sum": 2, "min": 0, "max": 2, "bounds": [1], "counts": [1, 1]},
    "Producer": {"name": "trainspec-record", "version": "0.1.0"},
    "Sample": {"run": _SUBMISSION},
}
"""Keys of the records of a stream."""

BY_KEY = {
    (name, key): [value]
    for room in (OBSERVED, MACHINES, JOBS, CONFORMANCE, STREAMS)
    for name, keys in room.items()
    for key, value in keys.items()
}
"""Values by definition and key."""
