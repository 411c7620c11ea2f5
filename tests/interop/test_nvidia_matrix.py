from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_facts import assert_fits_schema, fixture, group, messages, mutated, read_or_refuse, samples, unknown_keys

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.nvidia_matrix import FORMATS, read

[FORMAT] = FORMATS
SPACES = fixture("nvidia-topo-spaces.txt")


def matrix(size: int, nics: int, cell: Any, tail: str = "0-31\t0\t\tN/A", legend: str = "") -> ForeignText:
    labels = [f"GPU{k}" for k in range(size)] + [f"NIC{k}" for k in range(nics)]
    lines = ["\t\x1b[4m" + "\t".join([*labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for i, label in enumerate(labels):
        cells = [" X " if i == j else cell(i, j) for j in range(len(labels))]
        lines.append("\t".join([label, *cells, tail if i < size else "\t"]))
    return ForeignText("matrix", "\n".join([*lines, "", legend]))


def facts(text: ForeignText) -> tuple[dict[str, Any], Fragment]:
    assert FORMAT.looks_like(text)
    fragment = read(text)
    assert_fits_schema(fragment)
    return group(fragment), fragment


def test_a_matrix_with_spaces_bonds_and_uneven_interfaces() -> None:
    found, fragment = facts(SPACES)
    assert found["num_accelerators_per_node"] == 4
    assert found["scale_up"] == {
        "technology": "nvlink",
        "topology": "full-mesh",
        "num_links": 18,
        "domain_num_accelerators": 4,
    }
    assert [(nic["devices"], nic.get("bonded")) for nic in found["nics"]] == [
        (["mlx5_0"], None),
        (["mlx5_bond_1"], True),
    ]
    assert found["nics"][0]["nearest_path"] == "PHB"
    [node] = fragment.facts["layout"]["nodes"]
    assert [item["numa_node"] for item in node["accelerators"]] == [0, 0, 1, 1]
    assert "PIX: accelerator-0, accelerator-2; PHB: accelerator-1, accelerator-3" in messages(fragment)
    assert {"accelerator.model", "host_link.generation", "nics.0.rate_bytes_per_second"} <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("size", "links", "topology", "num_links"),
    [(8, 18, "switched", 18), (8, 12, "switched", 12), (4, 4, "full-mesh", 12), (2, 12, None, 12), (3, 12, None, None)],
)
def test_switches_show_when_no_accelerator_has_so_many_links(
    size: int, links: int, topology: str | None, num_links: int | None
) -> None:
    found, fragment = facts(matrix(size, 0, lambda i, j: f"NV{links}"))
    assert found["scale_up"].get("topology") == topology
    assert found["scale_up"].get("num_links") == num_links
    assert ("scale_up.topology" in unknown_keys(fragment)) == (topology is None)


def test_a_lost_link_does_not_hide_the_switches() -> None:
    found, fragment = facts(matrix(8, 0, lambda i, j: "NV17" if 3 in {i, j} else "NV18"))
    assert found["scale_up"] == {"technology": "nvlink", "topology": "switched", "domain_num_accelerators": 8}
    assert "pairs differ in NVLinks: NV17, NV18; links may be down" in messages(fragment)


def test_unequal_direct_links_are_a_hybrid_mesh() -> None:
    found, _ = facts(matrix(8, 0, lambda i, j: "NV2" if abs(i - j) in {1, 4} else "NV1"))
    assert found["scale_up"]["topology"] == "hybrid-mesh"


def test_pairs_are_a_hybrid_mesh_of_domains_of_two() -> None:
    found, _ = facts(matrix(4, 0, lambda i, j: "NV4" if i // 2 == j // 2 else "NODE"))
    assert found["scale_up"] == {
        "technology": "nvlink",
        "topology": "hybrid-mesh",
        "num_links": 4,
        "domain_num_accelerators": 2,
    }


@pytest.mark.parametrize(
    ("size", "links", "topology", "num_links"),
    [
        (8, 18, "switched", 18),
        (8, 6, "full-mesh", 18),
        (8, 4, "full-mesh", 12),
        (8, 10, None, None),
        (16, 18, "switched", 18),
    ],
)
def test_islands_are_domains_of_their_own(size: int, links: int, topology: str | None, num_links: int | None) -> None:
    half = size // 2
    found, fragment = facts(matrix(size, 0, lambda i, j: f"NV{links}" if i // half == j // half else "SYS"))
    assert found["scale_up"]["domain_num_accelerators"] == half
    assert found["scale_up"].get("topology") == topology
    assert found["scale_up"].get("num_links") == num_links
    assert "links join these accelerators, and others reach each other by another path: 0, 1, 2, 3" in messages(
        fragment
    )


def test_an_island_with_a_lost_link_is_still_switched() -> None:
    def cell(i: int, j: int) -> str:
        return "SYS" if i // 4 != j // 4 else "NV17" if 3 in {i, j} else "NV18"

    found, fragment = facts(matrix(8, 0, cell))
    assert found["scale_up"] == {"technology": "nvlink", "topology": "switched", "domain_num_accelerators": 4}
    assert "scale_up.num_links" in unknown_keys(fragment)


@pytest.mark.parametrize("joined", [{0, 1, 2, 3}, {0, 1}])
def test_islands_of_different_sizes_have_no_common_domain(joined: set[int]) -> None:
    found, fragment = facts(matrix(8, 0, lambda i, j: "NV18" if {i, j} <= joined else "SYS"))
    assert found["scale_up"] == {"technology": "nvlink"}
    keys = {f"scale_up.{key}" for key in ("topology", "num_links", "domain_num_accelerators")}
    assert keys <= unknown_keys(fragment)
    assert ", ".join(map(str, sorted(joined))) in messages(fragment)


def test_without_nvlink_there_is_no_domain() -> None:
    found, fragment = facts(matrix(2, 0, lambda i, j: "PHB"))
    assert "scale_up" not in found
    assert "over PCIe" in messages(fragment)


def test_coherent_hosts_hide_paths_and_domains() -> None:
    text = matrix(4, 2, lambda i, j: "NV18" if max(i, j) < 4 else "SYS", "0-71\t0,3-9,11-17\t2")
    found, fragment = facts(text)
    assert "nearest_path" not in found["nics"][0]
    assert "same_numa_node" not in found["nics"][0]
    assert {"nics.0.nearest_path", "scale_up.domain_num_accelerators"} <= unknown_keys(fragment)
    assert "NUMA affinity is a list: 0,3-9,11-17" in messages(fragment)


def test_an_interface_that_is_near_to_nobody_stands_apart() -> None:
    def cell(i: int, j: int) -> str:
        a, b = min(i, j), max(i, j)
        return "NV18" if b < 8 else "PXB" if b - 8 == a else "SYS"

    found, fragment = facts(matrix(8, 9, cell, legend="NIC Legend:\n\n  NIC8: mlx5_bond_0\n  NIC0: mlx5_0"))
    assert [nic["num_per_node"] for nic in found["nics"]] == [8, 1]
    assert found["nics"][0]["nearest_path"] == "PXB"
    assert found["nics"][0]["num_accelerators_served"] == 1
    assert found["nics"][1] == {"name": "nics-2", "num_per_node": 1, "bonded": True, "devices": ["mlx5_bond_0"]}
    assert "devices" not in found["nics"][0], "the legend lacks some of the names"
    assert "no accelerator is nearest to mlx5_bond_0" in messages(fragment)


def test_columns_may_carry_device_names() -> None:
    text = SPACES.text.replace("NIC0: mlx5_0", "").replace("NIC1: mlx5_bond_1", "").replace("NIC0", "mlx5_0")
    found, _ = facts(ForeignText("old", text.replace("NIC1", "mlx5_1")))
    assert found["nics"][0]["devices"] == ["mlx5_0", "mlx5_1"]


def test_a_one_sided_cell_is_remarked() -> None:
    text = SPACES.text.replace(
        "GPU3    NV6     NV6     NV6      X      SYS", "GPU3    NV6     NV6     NV6      X      PIX"
    )
    _, fragment = facts(ForeignText("x", text))
    assert "NIC0 to GPU3 is SYS, back PIX" in messages(fragment)


@pytest.mark.parametrize("lost", ["0-31    0               N/A", "32-63   1               N/A"])
def test_a_lost_affinity_leaves_the_numa_node_unknown(lost: str) -> None:
    text = SPACES.text.replace(lost, lost.partition(" ")[0])
    _, fragment = facts(ForeignText("x", text))
    [node] = fragment.facts["layout"]["nodes"]
    assert sum("numa_node" in item for item in node["accelerators"]) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("GPU3    NV6 ", "GPU9    NV6 ", "row of GPU3 is expected, 'GPU9' found"),
        ("GPU2    NV6     NV6      X      NV6     SYS     PIX     32-63   1               N/A\n", "", "row of GPU2"),
        ("NODE    SYS     0-31", "NEAR    SYS     0-31", "'NEAR', which is no cell"),
        ("NIC1    SYS     SYS     PIX     NODE    SYS      X", "NIC1    SYS     SYS", "2 cells for 6 columns"),
        ("GPU0    GPU1    GPU2", "GPU0    GPU1    GPU1", "twice"),
        ("CPU Affinity", "Affinity", "holds no matrix"),
    ],
)
def test_damage_is_refused(old: str, new: str, words: str) -> None:
    assert old in SPACES.text
    with pytest.raises(ForeignFormatError, match=words):
        read(ForeignText("x", SPACES.text.replace(old, new, 1)))


@pytest.mark.parametrize("between", ["\n\n", "\r\n", " \n\t\n"])
def test_blank_lines_and_carriage_returns_change_nothing(between: str) -> None:
    found, _ = facts(ForeignText("x", SPACES.text.replace("\n", between)))
    assert found == facts(SPACES)[0]


def test_lines_without_end_are_refused() -> None:
    with pytest.raises(ForeignFormatError, match="longer than"):
        read(ForeignText("x", SPACES.text + "\n" + "GPU0\t" * 200_000))
    assert not FORMAT.looks_like(ForeignText("x", "\n" * 1_000_000 + " " * 1_000_000))


@pytest.mark.parametrize("path", samples("nvidia-smi-topo-m-*.txt", "synthetic/topo-m-*.txt"))
def test_published_and_constructed_files_import(path: Path) -> None:
    found, fragment = facts(ForeignText(path.name, path.read_text(encoding="utf-8")))
    expected = {
        "topo-m-4x-nv4-pairs.txt": ("hybrid-mesh", 2),
        "topo-m-8xpcie-no-nvlink.txt": (None, None),
        "topo-m-gb200-4gpu-all-sys.txt": ("switched", None),
    }.get(path.name, ("switched", 8))
    shape = found.get("scale_up", {})
    assert (shape.get("topology"), shape.get("domain_num_accelerators")) == expected
    assert ("layout" in fragment.facts) == (
        path.name in {"topo-m-8xH20-2nic.txt", "topo-m-8xH100-nics-on-even-gpus.txt"}
    )


@examples(120)
@given(mutated(SPACES.text) | st.text(max_size=200))
def test_any_text_is_facts_or_a_refusal(text: str) -> None:
    read_or_refuse(FORMAT, text)
