"""MLPerf system descriptions: what is clear becomes a fact, what is not stays open and is told."""

from __future__ import annotations

import ast
import csv
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import ROOT, assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._mlperf_text import interconnect, memory_bytes, nics
from trainspec_validate.interop.readers.mlperf_system import NAME, read

ROWS = ROOT.parent / "shared" / "data" / "mlperf_systems.csv"
GROUP = ("node_groups", 0)


def changed(**keys: Any) -> Fragment:
    data = json.loads(fixture("mlperf-system.json").text)
    fragment = read(ForeignText("system.json", json.dumps(data | keys)))
    assert_sound(fragment, NAME)
    return fragment


def test_a_clear_description() -> None:
    text = fixture("mlperf-system.json")
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    assert value(fragment, "metadata", "name") == "Example-system-4x8-H100"
    assert (value(fragment, "num_nodes"), value(fragment, "num_accelerators")) == (4, 32)
    group = value(fragment, *GROUP)
    assert group["accelerator"] == {"model": "nvidia-h100-sxm-80gb"}  # 80 GB is rounded: the catalog has 81,559 MiB
    assert group["host"] == {"num_sockets": 2, "num_cores": 112, "memory_bytes": 2e12}
    assert group["host_link"] == {"technology": "pcie", "generation": 5, "num_lanes": 16}
    assert group["scale_up"] == {
        "technology": "nvlink",
        "generation": "4",
        "topology": "switched",
        "domain_num_accelerators": 8,
        "bandwidth_bytes_per_second": 450e9,
    }
    assert [(nic["role"], nic["num_per_node"], nic["rate_bytes_per_second"]) for nic in group["nics"]] == [
        ("storage", 1, 25e9),
        ("compute", 8, 50e9),
        ("management", 1, 12.5e9),
    ]
    fabric = value(fragment, "fabrics", 0)
    assert fabric == {"name": "fabric", "transport": "infiniband", "topology": "rail-optimised", "num_rails": 8}
    assert value(fragment, "software", "collective_library") == {"name": "nccl", "version": "2.27.3"}
    assert "counts both directions; one way is 450 GB/s" in told(fragment)


def test_a_rate_of_a_whole_node() -> None:
    fragment = changed(accelerator_interconnect="18x 4th Gen NVLink, 7.2 TB/s aggregated bandwidth")
    assert value(fragment, *GROUP, "scale_up", "bandwidth_bytes_per_second") == 450e9
    assert "counts both directions of all 8 accelerators" in told(fragment)


def test_the_number_of_links() -> None:
    fragment = changed(accelerator_interconnect="18x 4th Gen NVLink, 900GB/s")
    assert value(fragment, *GROUP, "scale_up", "num_links") == 18
    for text in ("24x 100Gb/s Ethernet", "8x GPU with NVLink", "2x NVLink Bridge", "2x NVLink + 4x NVLink"):
        assert interconnect(text).num_links is None


def test_a_rate_that_fits_nothing_stays_open() -> None:
    fragment = changed(accelerator_interconnect="NVLINK Gen4 600 GB/s + NVSWITCH")
    assert "bandwidth_bytes_per_second" not in value(fragment, *GROUP, "scale_up")
    assert "but nvlink 4 carries 450 GB/s one way" in told(fragment)


def test_a_generation_of_another_accelerator_is_told() -> None:
    fragment = changed(accelerator_model_name="NVIDIA Blackwell GPU (GB200)")
    assert "but NVIDIA GB200 has nvlink generation 5" in told(fragment)
    assert "80 GB, but NVIDIA GB200 has 198.7 GB" in told(fragment)
    assert "domain_num_accelerators" not in value(fragment, *GROUP, "scale_up")


def test_a_rack_is_told_by_its_name() -> None:
    fragment = changed(accelerator_model_name="NVIDIA Blackwell GPU (GB200)", system_name="Tyche (GB200 NVL72)")
    assert value(fragment, *GROUP, "scale_up", "domain_num_accelerators") == 72


def test_an_accelerator_that_the_catalog_lacks() -> None:
    fragment = changed(accelerator_model_name="AMD Instinct MI100", accelerator_interconnect="XGMI")
    assert value(fragment, *GROUP, "accelerator", "model") == "AMD-Instinct-MI100"
    assert value(fragment, *GROUP, "accelerator", "vendor") == "amd"
    assert any(entry.pointer == (*GROUP, "accelerator", "peak_rates") for entry in fragment.unknown)


def test_a_torus() -> None:
    keys = {"accelerator_model_name": "TPU-v5p", "accelerator_interconnect": "", "accelerators_per_node": "4"}
    fragment = changed(**keys, accelerator_interconnect_topology="8x16x48")
    links = value(fragment, *GROUP, "scale_up")
    assert (links["technology"], links["topology"], links["dimensions"]) == ("ici", "torus", [8, 16, 48])
    assert links["domain_num_accelerators"] == 6144


@pytest.mark.parametrize(
    "text",
    ["Ethernet, Infiniband", "Gig Ethernet", "BF3 200Gbps for NS and 2xBF3 400Gbps for EW", "100GbE InfiniBand"],
)
def test_a_network_that_is_not_clear_stays_open(text: str) -> None:
    fragment = changed(host_networking=text)
    assert "nics" not in value(fragment, *GROUP)
    assert f"host_networking is not clear in all: {text}" in told(fragment)


def test_no_network_for_several_nodes_is_told() -> None:
    fragment = changed(host_networking="", accelerator_interconnect_topology="")
    assert "fabrics" not in fragment.facts
    assert "several nodes of NVIDIA H100 SXM, but host_networking says nothing" in told(fragment)


def test_compute_nics_of_another_machine_are_told() -> None:
    fragment = changed(accelerators_per_node="4")
    assert "8 compute interfaces for 4 accelerators of a node" in told(fragment)


def test_roce() -> None:
    fragment = changed(host_networking="8x RoCEv2 Ethernet 400Gb/s")
    assert value(fragment, "fabrics", 0, "transport") == "rocev2"
    assert value(fragment, *GROUP, "nics", 0, "technology") == "ethernet"


def test_versions_with_blanks_around_their_signs_are_read() -> None:
    stack = {"cuda_version": "11.7 .1", "nccl_version": "2.12 .12", "trt_version": "8.4 .2 .4 - 1 + cuda11 .6"}
    fragment = changed(other_software_stack=[stack | {"cuda_driver_version": "525.125 .06"}])
    software = value(fragment, "software")
    assert software["collective_library"] == {"name": "nccl", "version": "2.12.12"}
    assert (software["runtime"]["version"], software["driver"]["version"]) == ("11.7.1", "525.125.06")


def test_cards_that_do_not_add_up_are_told() -> None:
    assert "host_network_card_count says 9, but host_networking lists 10" in told(changed(host_network_card_count="9"))


def test_fewer_threads_than_cores_are_told() -> None:
    fragment = changed(host_processor_vcpu_count="56")
    assert "num_cores" not in value(fragment, *GROUP, "host")
    assert "2 processors of 56 cores are 112, but host_processor_vcpu_count says 56" in told(fragment)


@pytest.mark.parametrize(
    ("stack", "version"),
    [
        ("CUDA 12.8, NCCL 2.25.1", "2.25.1"),
        ([{"nccl_version": "2.22.3"}, {"nccl_version": "2.25.1"}], None),
        ([{"nccl_version": "2.22.3"}, {"nccl_version": "v2.22.3"}], "2.22.3"),
        ({"nccl_version": "v2.28.3-1"}, "2.28.3-1"),
        ({"python": "3.10"}, None),
        (None, None),
        (["nccl 2.1"], None),
    ],
)
def test_software_stacks(stack: Any, version: str | None) -> None:
    fragment = changed(other_software_stack=stack)
    library = fragment.facts.get("software", {}).get("collective_library", {})
    assert library.get("version") == version


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("81559 MiB", 81559 * 2**20),
        ("141G", 141e9),
        ("1.536TiB", 1.536 * 2**40),
        ("2x 24 GB", None),
        ("Node1: 2.2 TB, Node2: 1.5 TB", None),
        ("2T GB", None),
        ("", None),
    ],
)
def test_amounts(text: str, size: float | None) -> None:
    assert memory_bytes(text) == size


def test_words_for_links_and_interfaces() -> None:
    assert interconnect("4th Gen NVLINK - 900 GB /Sec ").rate_bytes_per_second == 900e9
    assert interconnect("Infinity Fabric Link").technology == "xgmi"
    assert interconnect("24x 100Gb/s Ethernet").technology is None
    spaced = nics("Management: 1 x 100 Gb / Sec Ethernet, Compute: 8 x ConnectX - 7 IB NDR 400 Gb / Sec")
    assert [(nic.role, nic.num_per_node, nic.rate_bytes_per_second) for nic in spaced] == [
        ("management", 1, 12.5e9),
        ("compute", 8, 50e9),
    ]


def test_what_is_no_description() -> None:
    with pytest.raises(ForeignFormatError, match="is an object"):
        read(ForeignText("list", "[]"))
    with pytest.raises(ForeignFormatError, match="no system description"):
        read(ForeignText("cut", '{"submitter": '))


@examples(80)
@given(damaged("mlperf-system.json") | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(read, text)


KEYS = sorted(json.loads(fixture("mlperf-system.json").text))
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.lists(st.text(max_size=5))


@examples(150)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_values_are_read(keys: dict[str, Any]) -> None:
    survives(read, json.dumps(keys).replace("NaN", "0").replace("Infinity", "1"))


@pytest.mark.slow
def test_every_published_description_is_read() -> None:
    if not ROWS.is_file():
        pytest.skip("no table of published descriptions")
    fragments = []
    with ROWS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            stack = row["other_software_stack"]
            keys: dict[str, Any] = dict(row)
            # The table cuts long cells, so one stack has lost its end.
            if stack.startswith(("{", "[")) and stack.endswith(("}", "]")):
                keys["other_software_stack"] = ast.literal_eval(stack)
            fragment = read(ForeignText(row["file"], json.dumps(keys)))
            assert_sound(fragment, NAME)
            fragments.append(fragment)
    assert len(fragments) == 369
    with_network = [
        f for f in fragments if any(nic["role"] == "compute" for nic in f.facts["node_groups"][0].get("nics", []))
    ]
    assert len(with_network) == 138
    several = [f for f in fragments if f.facts["num_nodes"] > 1]
    assert len(several) == 197
    assert sum("host_networking says nothing" in told(f) for f in several) == 41
    wrong = [f for f in fragments if "has nvlink generation 5" in told(f)]
    assert len(wrong) == 5


def test_a_published_slip_of_generation() -> None:
    fragment = read(sample("mlperf-system-oracle-gb200-declared-nvlink4.json"))
    assert "but NVIDIA GB200 has nvlink generation 5" in told(fragment)
    assert "8 compute interfaces for 4 accelerators" in told(fragment)


def test_compute_interfaces_have_the_link_layer_of_the_network() -> None:
    text = "Storage: 2x BF3 ConnectX-7 400Gb/s, Compute: 8x BF3 ConnectX-7 400Gb/s, Management: 100Gb/s Ethernet NIC"
    fragment = changed(host_networking=text, host_networking_topology="Ethernet Fabric")
    nics_read = {nic["role"]: nic for nic in value(fragment, *GROUP, "nics")}
    assert nics_read["compute"]["technology"] == "ethernet"
    assert nics_read["compute"]["num_per_node"] == 8


def test_a_list_that_lacks_the_compute_interfaces_is_open() -> None:
    text = "Compute: 8x BF3 ConnectX-7 400Gb/s, Management: 100Gb/s Ethernet NIC"
    fragment = changed(host_networking=text, host_networking_topology="")
    assert (*GROUP, "nics") in {item.pointer for item in fragment.unknown}


@pytest.mark.parametrize(
    ("words", "name", "version"),
    [
        ("Red Hat Enterprise Linux release 8.3", "Red-Hat-Enterprise-Linux", "8.3"),
        ("Rocky Linux release 8.4 (Green Obsidian)", "Rocky-Linux", "8.4"),
        ("Ubuntu 22.04 LTS", "Ubuntu", "22.04"),
    ],
)
def test_the_release_of_an_operating_system(words: str, name: str, version: str) -> None:
    system = changed(operating_system=words).facts["software"]["operating_system"]
    assert system == {"name": name, "version": version}
