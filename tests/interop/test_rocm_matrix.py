from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_facts import assert_fits_schema, fixture, group, messages, mutated, read_or_refuse, unknown_keys

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers.rocm_matrix import FORMATS, read

[FORMAT] = FORMATS
MESH = fixture("rocm-topo-mesh.txt")
PCIE = fixture("rocm-topo-pcie.txt")


def without(text: ForeignText, title: str) -> ForeignText:
    """The text without the block below a title."""
    blocks = text.text.split("\n\n")
    kept = [block for block in blocks if title not in block]
    assert len(kept) == len(blocks) - 1
    return ForeignText(text.name, "\n\n".join(kept))


def test_a_mesh() -> None:
    assert FORMAT.looks_like(MESH)
    fragment = read(MESH)
    assert_fits_schema(fragment)
    assert group(fragment) == {
        "name": "nodes",
        "accelerator": {"vendor": "amd"},
        "num_accelerators_per_node": 4,
        "scale_up": {"technology": "xgmi", "topology": "full-mesh", "domain_num_accelerators": 4},
    }
    assert {"scale_up.num_links", "accelerator.model", "nics"} <= unknown_keys(fragment)
    assert "several dies" in messages(fragment)


@pytest.mark.parametrize("between", ["\n\n\n\n\n", "\r\n"])
def test_blank_lines_and_carriage_returns_change_nothing(between: str) -> None:
    assert group(read(ForeignText("x", MESH.text.replace("\n", between)))) == group(read(MESH))


def test_meshes_of_different_sizes_have_no_common_domain() -> None:
    rows = MESH.text.split("\n")
    start = next(k for k, row in enumerate(rows) if "Link Type between two GPUs" in row)
    header = next(k for k in range(start + 1, len(rows)) if rows[k].split()[:1] == ["GPU0"])
    row = rows[header + 4].split()
    rows[header + 4] = " ".join([row[0], *("PCIE" if cell == "XGMI" else cell for cell in row[1:])])
    for k in range(header + 1, header + 4):
        cells = rows[k].split()
        rows[k] = " ".join([*cells[:4], "PCIE"])
    fragment = read(ForeignText("x", "\n".join(rows)))
    assert group(fragment)["scale_up"] == {"technology": "xgmi"}
    assert {"scale_up.topology", "scale_up.domain_num_accelerators"} <= unknown_keys(fragment)


def test_hops_over_pcie_are_said_and_make_no_domain() -> None:
    fragment = read(PCIE)
    assert_fits_schema(fragment)
    assert "scale_up" not in group(fragment)
    told = messages(fragment)
    assert "2 pairs are 2 hops apart, which means over PCIe within one socket" in told
    assert "4 pairs are 3 hops apart, which means over PCIe across sockets" in told


def test_without_the_types_of_links_the_domain_is_unknown() -> None:
    fragment = read(without(MESH, "Link Type"))
    assert "scale_up" in unknown_keys(fragment)
    assert group(fragment)["num_accelerators_per_node"] == 4


def test_numa_nodes_that_differ_in_number_are_listed() -> None:
    fragment = read(
        ForeignText(
            "x", MESH.text.replace("GPU[3]\t\t: (Topology) Numa Node: 1", "GPU[3]\t\t: (Topology) Numa Node: 0")
        )
    )
    assert_fits_schema(fragment)
    [node] = fragment.facts["layout"]["nodes"]
    assert [item["numa_node"] for item in node["accelerators"]] == [0, 0, 1, 0]


def test_an_unknown_numa_node_stays_unknown() -> None:
    text = MESH.text.replace("Node: 1", "Node: -1").replace("Affinity: 1", "Affinity: -1")
    assert "layout" not in read(ForeignText("x", text)).facts


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\nGPU3   ", "\nGPU7   ", "row of GPU3 is expected"),
        ("XGMI", "WIFI", "'WIFI', which is no cell"),
        ("GPU0         GPU1", "GPU0         CPU1", "something else than devices"),
        ("GPU0         GPU1", "GPU0         GPU0", "twice"),
        (" Weight between two GPUs ", " Weight ", ""),
    ],
)
def test_damage_is_refused(old: str, new: str, words: str) -> None:
    assert old in MESH.text
    text = ForeignText("x", MESH.text.replace(old, new, 1))
    if words:
        with pytest.raises(ForeignFormatError, match=words):
            read(text)
    else:
        assert group(read(text))["num_accelerators_per_node"] == 4


def test_matrices_of_two_runs_are_refused() -> None:
    with pytest.raises(ForeignFormatError, match="different devices"):
        read(
            ForeignText(
                "x",
                MESH.text.split("=== Hops", maxsplit=1)[0] + PCIE.text.replace("GPU3", "GPU4").replace("Weight", "W"),
            )
        )


def test_no_matrix_is_refused() -> None:
    with pytest.raises(ForeignFormatError, match="holds no matrix"):
        read(ForeignText("x", "nothing"))
    with pytest.raises(ForeignFormatError, match="followed by no matrix"):
        read(ForeignText("x", "== Hops between two GPUs =="))


@examples(120)
@given(mutated(MESH.text) | mutated(PCIE.text) | st.text(max_size=200))
def test_any_text_is_facts_or_a_refusal(text: str) -> None:
    read_or_refuse(FORMAT, text)
