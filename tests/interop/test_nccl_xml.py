from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_facts import (
    assert_fits_schema,
    fixture,
    group,
    messages,
    mutated,
    read_or_refuse,
    samples,
    unknown_keys,
)

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.nccl_xml import FORMATS, read

[FORMAT] = FORMATS
SWITCHED = fixture("nccl-switched.xml")
UNEVEN = fixture("nccl-uneven.xml")
MESH = fixture("rccl-mesh.xml")


def changed(text: ForeignText, pattern: str, new: str = "", count: int = 0) -> Fragment:
    after, times = re.subn(pattern, new, text.text, count=count)
    assert times
    fragment = read(ForeignText(text.name, after))
    assert_fits_schema(fragment)
    return fragment


def test_a_regular_node_needs_no_layout() -> None:
    fragment = read(SWITCHED)
    assert_fits_schema(fragment)
    assert "layout" not in fragment.facts
    assert group(fragment) == {
        "name": "nodes",
        "num_accelerators_per_node": 4,
        "accelerator": {"model": "nvidia-h100-sxm-80gb", "vendor": "nvidia"},
        "host_link": {
            "technology": "pcie",
            "generation": 5,
            "num_lanes": 16,
            "num_devices_per_upstream_link": 2,
            "upstream_bandwidth_bytes_per_second": 63e9,
        },
        "nics": [
            {
                "name": "nics",
                "num_per_node": 4,
                "technology": "infiniband",
                "rate_bytes_per_second": 50e9,
                "devices": ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"],
                "gpu_direct": True,
                "host_link": {"technology": "pcie", "generation": 5, "num_lanes": 16},
                "nearest_path": "PIX",
                "same_numa_node": True,
                "num_accelerators_served": 1,
            }
        ],
        "scale_up": {"technology": "nvlink", "topology": "switched", "num_links": 18, "domain_num_accelerators": 4},
    }
    assert fragment.remarks == ()
    assert {"host.num_sockets", "host.num_numa_nodes", "nics.0.role", "nics.0.accelerator_path"} <= unknown_keys(
        fragment
    )


@pytest.mark.parametrize(
    ("attribute", "keys"),
    [
        ("link_speed", {"host_link.generation", "nics.0.host_link.generation"}),
        ("link_width", {"host_link.num_lanes", "nics.0.host_link.num_lanes"}),
        ("device", {"accelerator.model"}),
        ("speed", {"nics.0.rate_bytes_per_second"}),
        ("count", {"scale_up"}),
        ("class", set()),
    ],
)
def test_a_lost_attribute_becomes_unknown_and_nothing_takes_its_place(attribute: str, keys: set[str]) -> None:
    fragment = changed(SWITCHED, rf' {attribute}="[^"]*"')
    assert keys <= unknown_keys(fragment)
    before, after = group(read(SWITCHED)), group(fragment)
    for key in ("accelerator", "host_link", "scale_up"):
        assert after.get(key, {}).items() <= before[key].items()


def test_one_device_without_a_slot_makes_the_slot_of_all_unknown() -> None:
    fragment = changed(SWITCHED, r'(0x2330"[^>]*?) link_speed="[^"]*"', r"\1", count=1)
    assert "generation" not in group(fragment)["host_link"]
    assert "host_link.generation" in unknown_keys(fragment)
    [node] = fragment.facts["layout"]["nodes"]
    assert [item.get("link_generation") for item in node["accelerators"]] == [None, 5, 5, 5]


def test_a_file_without_device_identity_names_no_product() -> None:
    fragment = changed(SWITCHED, r' device="0x2330"', ' device="0x9999"')
    assert group(fragment)["accelerator"] == {"vendor": "nvidia"}
    [reason] = [item.reason for item in fragment.unknown if item.pointer[-1] == "model"]
    assert "10de:9999" in reason


def test_an_irregular_node_is_summed_up_and_listed() -> None:
    fragment = read(UNEVEN)
    assert_fits_schema(fragment)
    facts = group(fragment)
    assert facts["num_accelerators_per_node"] == 3, "the display adapter of the board is no accelerator"
    assert facts["host_link"]["num_lanes"] == 8
    assert facts["host_link"]["generation"] == 4
    [node] = fragment.facts["layout"]["nodes"]
    assert [(item["numa_node"], item["link_num_lanes"]) for item in node["accelerators"]] == [(0, 16), (0, 8), (1, 16)]
    assert node["accelerators"][0]["upstream_generation"] == 3
    assert [item["name"] for item in node["nics"]] == ["mlx5_0", "bond0", "eth9"]
    told = messages(fragment)
    assert "accelerators differ in link_num_lanes: accelerator-1 at 8, others at 16" in told
    assert "accelerator-0, mlx5_0: the bridge above is PCIe generation 3, the device 4" in told
    assert "PIX: accelerator-0; PHB: accelerator-1, accelerator-2" in told


def test_slips_of_units_are_said_and_not_mended() -> None:
    fragment = read(UNEVEN)
    told = {remark.message: remark.line for remark in fragment.remarks}
    assert told["eth9: speed 100000000 would be 100 Tb/s, as the unit is Mb/s; perhaps 100000 was meant"] == 18
    assert told["bond0: speed 1000 is only 1 Gb/s"] == 17
    by_name = {entry["devices"][0]: entry for entry in group(fragment)["nics"]}
    assert "rate_bytes_per_second" not in by_name["eth9"]
    assert by_name["bond0"]["bonded"] is True
    assert by_name["bond0"]["rate_bytes_per_second"] == 1.25e8


def test_collectives_inside_the_network_are_said() -> None:
    words = "coll is 1: a plug-in offers collectives inside the network"
    assert words in messages(changed(UNEVEN, '<net name="mlx5_0"', '<net name="mlx5_0" coll="1"'))
    assert words not in messages(changed(UNEVEN, '<net name="mlx5_0"', '<net name="mlx5_0" coll="0"'))


def test_an_odd_rate_is_kept_and_said() -> None:
    fragment = changed(SWITCHED, 'speed="400000"', 'speed="180000"')
    assert group(fragment)["nics"][0]["rate_bytes_per_second"] == 22.5e9
    assert "no interface is built for 180 Gb/s" in messages(fragment)


def test_direct_links_make_a_mesh_and_a_lost_one_does_not() -> None:
    assert group(read(MESH))["scale_up"] == {
        "technology": "xgmi",
        "topology": "full-mesh",
        "num_links": 3,
        "domain_num_accelerators": 4,
    }
    fragment = changed(MESH, r'<xgmi target="0000:75:00.0"[^>]*/>\s*', count=1)
    assert group(fragment)["scale_up"]["topology"] == "hybrid-mesh"
    assert "num_links" not in group(fragment)["scale_up"]
    assert "links from accelerator" in messages(fragment)


def test_links_of_an_accelerator_to_itself_tell_no_topology() -> None:
    text = re.sub(r'target="0000:d\d:00.0"', 'target="0000:11:00.0"', SWITCHED.text)
    text = re.sub(r'(<gpu dev="[123]"[^>]*>)(\s*<nvlink[^>]*/>)+', r"\1", text)
    fragment = read(ForeignText("self", text))
    assert "topology" not in group(fragment)["scale_up"]
    assert "their peers are hidden" in messages(fragment)


def test_a_domain_of_a_coherent_host_may_span_nodes() -> None:
    fragment = changed(SWITCHED, 'arch="x86_64"', 'arch="arm64"')
    assert "domain_num_accelerators" not in group(fragment)["scale_up"]
    assert "scale_up.domain_num_accelerators" in unknown_keys(fragment)


def test_dies_of_one_package_count_once() -> None:
    fragment = changed(MESH, "0x74a1", "0x7408")
    facts = group(fragment)
    assert facts["num_accelerators_per_node"] == 2
    assert facts["accelerator"]["num_ranks_per_accelerator"] == 2
    assert facts["scale_up"]["domain_num_accelerators"] == 2
    assert "num_links" not in facts["scale_up"]


def test_ports_of_one_card_are_interfaces_but_share_its_slot() -> None:
    text = re.sub(r'(<net name="mlx5_(\d)"[^>]*/>)', r'\1<net name="mlx5_1\2" speed="400000" gdr="1"/>', SWITCHED.text)
    facts = group(read(ForeignText("ports", text)))
    assert facts["nics"][0]["num_per_node"] == 8
    assert facts["nics"][0]["num_per_accelerator"] == 2
    assert facts["host_link"]["num_devices_per_upstream_link"] == 2


def test_a_file_that_the_library_would_not_read_is_remarked() -> None:
    extra = "".join(f'<pci busid="0000:f{k:03x}:00.0" class="0x010802"/>' for k in range(256))
    fragment = read(ForeignText("large", SWITCHED.text.replace("  </cpu>", extra + "  </cpu>", 1)))
    assert "NCCL reads at most 256" in messages(fragment)


def test_devices_without_a_class_are_not_guessed() -> None:
    fragment = read(
        ForeignText("bare", '<system version="1"><cpu numaid="0"><pci busid="0000:00:16.0"/></cpu></system>')
    )
    assert group(fragment) == {"name": "nodes"}
    assert "carry no class" in messages(fragment)
    assert "num_accelerators_per_node" in unknown_keys(fragment)


def test_names_stay_unique() -> None:
    fragment = changed(SWITCHED, r'name="mlx5_\d"', 'name="mlx5_0"')
    assert "two interfaces are called mlx5_0" in messages(fragment)
    text = UNEVEN.text.replace('name="bond0"', 'name="mlx5_0"')
    [node] = read(ForeignText("twice", text)).facts["layout"]["nodes"]
    names = [item["name"] for item in node["nics"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("<graphs/>", "starts with <graphs>", 1),
        ("<system/>", "holds no <cpu>", 1),
        ("<system>\n<cpu>\n</system>", "not XML", 3),
        ("not at all", "not XML", 1),
    ],
)
def test_other_files_are_refused(text: str, words: str, line: int) -> None:
    with pytest.raises(ForeignFormatError, match=words) as caught:
        read(ForeignText("x", text))
    assert caught.value.line == line


def test_more_devices_than_a_node_has_are_refused_early() -> None:
    gpu = '<pci class="0x030200" vendor="0x10de"/>'
    nic = '<pci class="0x020700"/>'
    with pytest.raises(ForeignFormatError, match="for one node"):
        read(ForeignText("x", f"<system><cpu>{gpu * 3_000}{nic * 3_000}</cpu></system>"))


@pytest.mark.parametrize("path", samples("aws-*.xml", "azure-*-topo.xml", "oci-*.xml", "rccl-*.xml"))
def test_published_files_import(path: Path) -> None:
    text = ForeignText(path.name, path.read_text(encoding="utf-8"))
    assert FORMAT.looks_like(text)
    fragment = FORMAT.read(text)
    assert_fits_schema(fragment)
    if "g5" in path.name:
        assert group(fragment) == {"name": "nodes"}
    else:
        assert group(fragment)["num_accelerators_per_node"] in {4, 8}


_VALUES = st.sampled_from(
    ["0", "1", "16", "-1", "", "x", "0x030200", "0x020700", "0x060400", "32.0 GT/s PCIe", "0000:01:00.0", "200000"]
)
_NAMES = [
    "busid",
    "class",
    "link_speed",
    "link_width",
    "numaid",
    "target",
    "count",
    "speed",
    "name",
    "dev",
    "vendor",
    "device",
]


_TAGS = st.sampled_from(["cpu", "pci", "gpu", "nic", "net", "nvlink", "xgmi", "c2c", "other"])
_ATTRIBUTES = st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=5)


def element(tag: str, attributes: dict[str, str], children: list[str]) -> str:
    written = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    return f"<{tag} {written}>{''.join(children)}</{tag}>"


TREES = st.recursive(
    st.builds(element, _TAGS, _ATTRIBUTES, st.just([])),
    lambda below: st.builds(element, _TAGS, _ATTRIBUTES, st.lists(below, max_size=3)),
    max_leaves=12,
)


@given(st.text(max_size=300))
def test_any_text_is_facts_or_a_refusal(text: str) -> None:
    read_or_refuse(FORMAT, text)


@examples(150)
@given(st.lists(TREES, max_size=3))
def test_any_tree_is_facts_or_a_refusal(children: list[str]) -> None:
    assert read_or_refuse(FORMAT, f'<system version="1"><cpu numaid="0">{"".join(children)}</cpu></system>') is not None


@examples(150)
@given(mutated(SWITCHED.text) | mutated(UNEVEN.text) | mutated(MESH.text))
def test_a_damaged_file_is_facts_or_a_refusal(text: str) -> None:
    read_or_refuse(FORMAT, text)


@pytest.mark.parametrize(("link", "maker"), [("xgmi", "amd"), ("nvlink", "nvidia")])
def test_links_tell_the_maker_where_no_identifier_does(link: str, maker: str) -> None:
    gpu = '<pci busid="{}" class="0x038000"><gpu dev="{}"><{} target="{}" count="1"/></gpu></pci>'
    inside = gpu.format("0:1:0.0", 0, link, "0:2:0.0") + gpu.format("0:2:0.0", 1, link, "0:1:0.0")
    fragment = read(ForeignText("x", f'<system version="2"><cpu numaid="0">{inside}</cpu></system>'))
    assert group(fragment)["accelerator"] == {"vendor": maker}
    assert "accelerator.model" in unknown_keys(fragment)


@pytest.mark.parametrize("link", ['<nvlink count="1"/>', '<nvlink count="1" target="0:9:0.0"/>', '<c2c bw="450000"/>'])
def test_a_link_without_a_known_end_makes_no_domain(link: str) -> None:
    inside = f'<pci busid="0:1:0.0" class="0x030200"><gpu dev="0">{link}</gpu></pci>'
    fragment = read(ForeignText("x", f'<system version="1"><cpu numaid="0">{inside}</cpu></system>'))
    assert_fits_schema(fragment)
    assert "scale_up" not in group(fragment)
    assert "scale_up" in unknown_keys(fragment)
