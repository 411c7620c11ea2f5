"""`trainspec accept`: each fact that a file of each format states is compared, and each that it lacks is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.interop.topology_facts import FIXTURES
from tests.node_reports import links, ports, smi
from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop.recognise import formats

GUIDE = Path(__file__).parents[1] / "spec" / "guide" / "accept.md"
NETWORK = FIXTURES.parent / "network"
Group = dict[str, Any]


def text(name: str, *changes: tuple[str, str], folder: Path = FIXTURES) -> str:
    found = (folder / name).read_text(encoding="utf-8")
    for old, new in changes:
        assert old in found
        found = found.replace(old, new)
    return found


def group(num: int, model: str, kind: str = "nvlink", num_links: int = 18, **nics: Any) -> Group:
    """A node group with every fact that a file can state."""
    nic = {"name": "rail", "num_per_node": num, "technology": "infiniband", "rate_bytes_per_second": 50e9, **nics}
    return {
        "name": "compute",
        "num_nodes": 1,
        "num_accelerators_per_node": num,
        "accelerator": {"model": model},
        "host_link": {"technology": "pcie", "generation": 5, "num_lanes": 16},
        "scale_up": {
            "technology": kind,
            "topology": "switched",
            "domain_num_accelerators": num,
            "num_links": num_links,
            "link_bandwidth_bytes_per_second": 25e9,
        },
        "nics": [nic],
    }


H100, OWN = "nvidia-h100-sxm-80gb", "tesla-v100-sxm2-16gb"
CSV = text("nvidia-query.csv")
MATRIX = text("nvidia-topo-spaces.txt", ("mlx5_bond_1", "mlx5_1"))
DCGM = text("dcgm-discovery.txt", ("NVIDIA H200", "Tesla V100-SXM2-16GB"))
HWLOC = text("hwloc-two-sockets.xml")
CASES: dict[str, tuple[str, Group, str]] = {
    "amd-smi": (
        text("amd-static.txt", ("GPU: 0\n", "GPU: 0\n    DRIVER:\n        NAME: amdgpu\n        VERSION: 6.14.4\n")),
        group(2, "amd-mi325x-256gb"),
        "product, memory, host links, driver, partitions",
    ),
    "dcgm-discovery": (DCGM, group(2, OWN), "product, kind of links"),
    "hwloc-xml": (HWLOC, group(2, "nvidia-a100-sxm-80gb"), "product, memory, kind of links, NICs, link layer"),
    "mlperf-system": (
        text("mlperf-system.json", folder=NETWORK),
        group(8, H100),
        "product, kind of links, NICs, link layer, rate of NICs, host links, driver",
    ),
    "nccl-graph-xml": (text("nccl-graph.xml"), group(2, H100), "kind of links"),
    "nccl-topology-xml": (
        text("nccl-switched.xml"),
        group(4, H100),
        "product, number of links, kind of links, NICs, link layer, rate of NICs, host links",
    ),
    "nvidia-smi-log-xml": (
        text("nvidia-log.xml", ("<max_link_width>", "<current_link_width>16x</current_link_width><max_link_width>")),
        group(2, "nvidia-b200-sxm-180gb"),
        "product, memory, host links, driver, partitions",
    ),
    "nvidia-smi-query-csv": (CSV, group(4, H100), "product, memory, host links, driver, partitions"),
    "nvidia-smi-topology-matrix": (
        MATRIX,
        group(4, H100, num_per_node=2),
        "number of links, kind of links, NICs",
    ),
    "rocm-smi-list": (text("rocm-list.txt"), group(8, "amd-mi300x-192gb"), "product, memory, partitions"),
    "rocm-smi-topology": (text("rocm-topo-mesh.txt"), group(4, "amd-mi300x-192gb", "xgmi"), "kind of links"),
    "tpu-info": (text("tpu-info.txt"), group(4, "google-tpu-v6e", "ici"), "product, memory"),
}
"""A file of each format, the node group that it is of, and the facts that it can state of a node."""
NUMBER_ALONE = {"netq-compute-nodes"}
NOTHING = {
    *("astra-sim-network", "collective-benchmark", "collective-library-log", "ibnetdiscover", "netq-topology-graph"),
    *("slurm-topology-conf", "slurm-topology-yaml", "topograph-model"),
}
"""Formats of networks and of jobs, which state none of these facts of a node."""
DRIVERS = {
    "amd-smi": "6.14.4",
    "mlperf-system": "550.54.15",
    "nvidia-smi-log-xml": "570.86.15",
    "nvidia-smi-query-csv": "550.90.07",
}


def _other_product(own: Group) -> None:
    is_tpu = own["accelerator"]["model"].startswith("google")
    own["accelerator"] = {"model": "nvidia-l40s-48gb" if is_tpu else "google-tpu-v5p"}


def _faster_slots(own: Group) -> None:
    own["host_link"] |= {"generation": 6}


WRONG: dict[str, tuple[Callable[[Group], None], str]] = {
    "product": (_other_product, ", declared is "),
    "memory": (lambda own: own["accelerator"].update(memory_bytes=1e12), "declared is "),
    "number of links": (lambda own: own["scale_up"].update(num_links=5), "scale-up links, declared are 5"),
    "kind of links": (lambda own: own["scale_up"].update(technology="gaudi-roce"), "declared is gaudi-roce"),
    "NICs": (lambda own: own["nics"][0].update(num_per_node=17), "declared are 17 compute NICs"),
    "link layer": (
        lambda own: own["nics"][0].update(technology="ethernet"),
        "network interfaces are ethernet, declared",
    ),
    "rate of NICs": (lambda own: own["nics"][0].update(rate_bytes_per_second=100e9), "run at 100 GB/s, declared are"),
    "host links": (_faster_slots, "declared is 6"),
}
OPEN = {
    "product": ("the product of its accelerators",),
    "number of links": ("the scale-up links of each accelerator",),
    "NICs": ("the compute NICs",),
    "link layer": ("the compute NICs", "the link layer of compute NICs"),
    "rate of NICs": ("the compute NICs", "the rate of compute NICs"),
    "host links": ("the lanes of the host link of each accelerator",),
    "driver": ("the driver",),
}
"""How a fact is named that no file states; the kind of links is named with their number."""


def accept(root: Path, content: str, own: Group, driver: str = "550.1") -> Result:
    """What the command says of one node with one file; a profile that is wrong in one fact may contradict itself."""
    profile = {
        "apiVersion": "trainspec/v1",
        "kind": "ClusterProfile",
        "metadata": {"name": "hall-a"},
        "num_nodes": 1,
        "num_accelerators": own["num_accelerators_per_node"],
        "node_groups": [own],
        "software": {"driver": {"name": "nvidia", "version": driver}},
    }
    (root / "cluster.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    (root / "nodes" / "node-0").mkdir(parents=True)
    (root / "nodes" / "node-0" / "file").write_text(content, encoding="utf-8")
    arguments = ["accept", f"{root}/cluster.yaml", "--from", f"{root}/nodes", "--format", "concise", "--force"]
    return CliRunner().invoke(command, arguments, prog_name="trainspec")


def facts_of(name: str) -> list[str]:
    return CASES[name][2].split(", ")


def test_every_format_of_a_cluster_is_here() -> None:
    known = {name for name, entry in formats().items() if entry.kind == "ClusterProfile"}
    assert known == {*CASES, *NUMBER_ALONE, *NOTHING}


def test_the_guide_has_the_facts_of_each_format() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    for name, (_, _, facts) in CASES.items():
        assert f"| `{name}` | {facts} |" in guide, name


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_the_declared_machine_is_no_finding_and_the_rest_is_named(name: str, tmp_path: Path) -> None:
    content, own, _ = CASES[name]
    found = accept(tmp_path, content, own, DRIVERS.get(name, "550.1"))
    assert found.exit_code == 0, found.output
    for fact, words in OPEN.items():
        told = any(f"no file states {one} of 1 of 1 nodes (node-0)" in found.output for one in words)
        assert told is (fact not in facts_of(name)), (fact, found.output)


@pytest.mark.parametrize(
    ("name", "fact"),
    [(name, fact) for name in CASES for fact in facts_of(name) if fact in WRONG and name != "hwloc-xml"],
)
def test_a_wrong_fact_is_a_finding(name: str, fact: str, tmp_path: Path) -> None:
    content, own, _ = CASES[name]
    change, message = WRONG[fact]
    wrong = copy.deepcopy(own)
    change(wrong)
    found = accept(tmp_path, content, wrong, DRIVERS.get(name, "550.1"))
    assert found.exit_code == 1, found.output
    lines = [line for line in found.output.splitlines() if message in line]
    assert lines
    assert all("node-0" in line for line in lines)


@pytest.mark.parametrize("name", DRIVERS)
def test_another_driver_is_a_finding(name: str, tmp_path: Path) -> None:
    found = accept(tmp_path, CASES[name][0], CASES[name][1], "1.2.3")
    assert (found.exit_code, f"node-0: driver {DRIVERS[name]}, declared is 1.2.3" in found.output) == (1, True)


@pytest.mark.parametrize("fact", ["product", "kind of links", "NICs", "link layer"])
def test_a_wrong_fact_of_hwloc_is_a_finding(fact: str, tmp_path: Path) -> None:
    wrong = copy.deepcopy(CASES["hwloc-xml"][1])
    WRONG[fact][0](wrong)
    found = accept(tmp_path, HWLOC, wrong)
    assert (found.exit_code, WRONG[fact][1] in found.output) == (1, True), found.output


@pytest.mark.parametrize(
    ("name", "old", "new", "who"),
    [
        ("nvidia-smi-query-csv", "Disabled", "Enabled", "GPU 0 and 3 more"),
        ("nvidia-smi-log-xml", "Disabled", "Enabled", "mig:enabled (divided into instances (MIG)"),
        ("rocm-smi-list", "GPU[0]", "GPU[0]\t\t: Compute Partition: CPX\nGPU[0]", "the accelerator"),
        ("amd-smi", "GPU: 0\n", "GPU: 0\n    COMPUTE_PARTITION: DPX\n", "0000:05:00.0"),
    ],
)
def test_a_divided_device_is_a_finding(name: str, old: str, new: str, who: str, tmp_path: Path) -> None:
    content, own, _ = CASES[name]
    if old not in content:
        pytest.fail(f"{name} lacks {old!r}")
    found = accept(
        tmp_path, content.replace(old, new, 1 if name != "nvidia-smi-query-csv" else -1), own, DRIVERS.get(name, "1")
    )
    assert found.exit_code == 1, found.output
    assert any(who in line and "divided into instances" in line for line in found.output.splitlines()), found.output


def test_one_other_device_of_a_list_is_named(tmp_path: Path) -> None:
    content = CSV.replace("NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB", 1).replace("81559 MiB", "16160 MiB", 1)
    found = accept(tmp_path, content, CASES["nvidia-smi-query-csv"][1], DRIVERS["nvidia-smi-query-csv"])
    told = f"node-0: GPU 0 is {OWN} with 16.94 GB, declared is {H100} with 85.52 GB (node-0/file)"
    assert (found.exit_code, told in found.output) == (1, True), found.output


def test_an_accelerator_with_fewer_links_in_a_matrix_is_named(tmp_path: Path) -> None:
    lines = MATRIX.split("\n")
    lines[2], lines[3] = (line.replace("NV6", "NV5", 1) for line in lines[2:4])
    found = accept(tmp_path, "\n".join(lines), CASES["nvidia-smi-topology-matrix"][1])
    told = "node-0: GPU0 and 1 more: 17 scale-up links, declared are 18"
    assert (found.exit_code, told in found.output) == (1, True), found.output


def test_a_matrix_without_links_is_a_finding(tmp_path: Path) -> None:
    found = accept(tmp_path, MATRIX.replace("NV6", "SYS"), CASES["nvidia-smi-topology-matrix"][1])
    told = "node-0: GPU0 and 3 more: 0 scale-up links, declared are 18"
    assert (found.exit_code, told in found.output) == (1, True), found.output


def test_a_bond_hides_the_number_of_interfaces(tmp_path: Path) -> None:
    found = accept(tmp_path, text("nvidia-topo-spaces.txt"), group(4, H100, num_per_node=8))
    assert (found.exit_code, "no file states the compute NICs of 1 of 1 nodes" in found.output) == (0, True)


def test_a_list_of_ports_says_nothing_of_other_technologies(tmp_path: Path) -> None:
    """A matrix shows InfiniBand and Ethernet interfaces, perhaps for storage, where Slingshot carries collectives."""
    found = accept(tmp_path, MATRIX, group(4, H100, num_per_node=4, technology="slingshot"))
    assert (found.exit_code, "no file states the compute NICs of 1 of 1 nodes" in found.output) == (0, True), (
        found.output
    )


def test_a_part_of_a_machine_leaves_its_numbers_open(tmp_path: Path) -> None:
    content = HWLOC.replace('type="Machine"', 'type="Machine" nodeset="0x00000003" complete_nodeset="0x0000000f"', 1)
    own = group(4, "nvidia-a100-sxm-80gb")
    found = accept(tmp_path, content, own)
    assert found.exit_code == 0, found.output
    for fact in ("the number of accelerators", "the compute NICs"):
        assert f"no file states {fact} of 1 of 1 nodes" in found.output
    _other_product(own)
    (tmp_path / "other").mkdir()
    assert accept(tmp_path / "other", content, own).exit_code == 1


def test_slow_links_are_a_finding(tmp_path: Path) -> None:
    content = links().replace("Link 3: 26.562 GB/s", "Link 3: 13.281 GB/s")
    found = accept(tmp_path, content, group(8, H100))
    assert (found.exit_code, "a scale-up link runs at 13.28 GB/s, declared are 25 GB/s" in found.output) == (1, True)


@pytest.mark.parametrize("content", [smi(), ports(), links(), CSV])
def test_what_the_profile_lists_as_unknown_leaves_the_rest_to_be_compared(content: str, tmp_path: Path) -> None:
    own = group(8, H100)
    del own["scale_up"], own["nics"]
    own["accelerator"] = {"model": "google-tpu-v5p"}
    found = accept(tmp_path, content, own, "535.183.01")
    assert found.exit_code == int(content in {smi(), CSV}), found.output
