"""Makes large documents to measure with; they validate without findings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from trainspec_validate.documents.load import load_file

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "spec" / "v1" / "base" / "cluster.yaml"


def base() -> dict[str, Any]:
    """The base cluster without what ties it to its size."""
    data = load_file(BASE).data
    for key in ("measurements", "power", "reliability"):
        del data[key]
    data["fabrics"] = [{"name": "backend", "transport": "infiniband", "topology": "fat-tree"}]
    return data


def with_groups(num_groups: int) -> dict[str, Any]:
    """A cluster of so many node groups with 16 nodes each."""
    data = base()
    data["storage_targets"] = [target for target in data["storage_targets"] if target["scope"] == "cluster"]
    nic = {
        "name": "rail",
        "num_per_node": 8,
        "technology": "infiniband",
        "rate_bytes_per_second": 50e9,
        "fabric": "backend",
    }
    group = {
        "num_nodes": 16,
        "num_accelerators_per_node": 8,
        "accelerator": {"model": "nvidia-h100-sxm-80gb"},
        "nics": [nic],
    }
    data["node_groups"] = [{"name": f"compute-{number}", **group} for number in range(num_groups)]
    data["num_nodes"] = 16 * num_groups
    data["num_accelerators"] = 128 * num_groups
    return data


def explicit_node(number: int) -> dict[str, Any]:
    """One explicit node with its devices, about 1 kB as YAML."""
    return {
        "name": f"node-{number:06}",
        "group": "compute",
        "rack": f"rack-{number // 4:05}",
        "accelerators": [{"name": f"gpu{i}", "numa_node": i // 4, "link_generation": 5} for i in range(8)],
        "nics": [{"name": f"mlx5_{i}", "numa_node": i // 4, "rail": i} for i in range(8)],
    }


def with_nodes(num_nodes: int) -> dict[str, Any]:
    """A cluster with every node, accelerator and compute NIC listed."""
    data = base()
    group = data["node_groups"][0]
    group["num_nodes"] = data["num_nodes"] = num_nodes
    group["nics"] = [nic for nic in group["nics"] if nic["role"] == "compute"]
    data["num_accelerators"] = 8 * num_nodes
    data["layout"] = {"nodes": [explicit_node(number) for number in range(num_nodes)]}
    return data


def with_links(num_links: int) -> dict[str, Any]:
    """A cluster of 16 bare nodes with so many explicit links to switches."""
    data = base()
    num_switches = max(1, num_links // 16)
    data["layout"] = {
        "nodes": [{"name": f"node-{n}", "group": "compute"} for n in range(16)],
        "switches": [{"name": f"switch-{n}"} for n in range(num_switches)],
        "links": [
            {
                "source": f"node-{n % 16}",
                "target": f"switch-{n // 16 % num_switches}",
                "bandwidth_bytes_per_second": 50e9,
            }
            for n in range(num_links)
        ],
    }
    return data


def yaml_text(data: Any, indent: int = 0) -> str:
    """Block-style YAML as a person or a program would write it, about 25 times as fast as a general dumper."""
    pad = "  " * indent
    if isinstance(data, dict) and data:
        return "".join(
            f"{pad}{key}:{_inline(value)}" if _scalar(value) else f"{pad}{key}:\n{yaml_text(value, indent + 1)}"
            for key, value in data.items()
        )
    if isinstance(data, list) and data:
        return "".join(_item(value, indent) for value in data)
    return f"{pad}{json.dumps(data)}\n"


def _item(value: Any, indent: int) -> str:
    if _scalar(value):
        return f"{'  ' * indent}-{_inline(value)}"
    body = yaml_text(value, indent + 1)
    return f"{'  ' * indent}- {body.lstrip()}"


def _scalar(value: Any) -> bool:
    return not isinstance(value, (dict, list)) or not value


def _inline(value: Any) -> str:
    return f" {json.dumps(value)}\n"


MAKERS = {"groups": with_groups, "nodes": with_nodes, "links": with_links}


def main() -> None:
    """Write one document: `python documents.py KIND SIZE PATH`, as YAML or JSON by the suffix."""
    kind, size, name = sys.argv[1:]
    data = MAKERS[kind](int(size))
    Path(name).write_text(yaml_text(data) if name.endswith(".yaml") else json.dumps(data), encoding="utf-8")


if __name__ == "__main__":
    main()
