from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_facts import assert_fits_schema, fixture, group, messages, mutated, read_or_refuse, samples, unknown_keys

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.hwloc import FORMATS, read

[FORMAT] = FORMATS
HOST = fixture("hwloc-two-sockets.xml")


def changed(pattern: str, new: str = "", count: int = 0) -> Fragment:
    after, times = re.subn(pattern, new, HOST.text, count=count)
    assert times
    fragment = read(ForeignText("changed", after))
    assert_fits_schema(fragment)
    return fragment


def test_an_export_tells_host_slots_interfaces_and_links() -> None:
    fragment = read(HOST)
    assert_fits_schema(fragment)
    assert group(fragment) == {
        "name": "nodes",
        "host": {"num_sockets": 2, "num_numa_nodes": 2, "num_cores": 4, "memory_bytes": 1.08e12},
        "accelerator": {"model": "nvidia-a100-sxm-80gb", "vendor": "nvidia"},
        "num_accelerators_per_node": 2,
        "host_link": {"technology": "pcie", "bandwidth_bytes_per_second": 31.507692e9},
        "nics": [
            {
                "name": "nics",
                "num_per_node": 2,
                "technology": "infiniband",
                "devices": ["mlx5_0", "mlx5_1"],
                "nearest_path": "PIX",
                "same_numa_node": True,
                "num_accelerators_served": 1,
            }
        ],
        "scale_up": {
            "technology": "nvlink",
            "topology": "full-mesh",
            "domain_num_accelerators": 2,
            "bandwidth_bytes_per_second": 300e9,
        },
    }
    assert {"host_link.generation", "host_link.num_lanes", "scale_up.num_links", "host.virtualised"} <= unknown_keys(
        fragment
    )


def test_a_lost_attribute_becomes_unknown() -> None:
    fragment = changed(r' local_memory="\d+"', count=1)
    assert "host.memory_bytes" in unknown_keys(fragment)
    fragment = changed(r' pci_link_speed="[^"]*"', count=1)
    assert "host_link" not in group(fragment)
    fragment = changed(r"<distances2hetero.*</distances2hetero>(?s:.)*(?=</topology>)".replace(".*", "(?s:.*)"))
    assert "scale_up" in unknown_keys(fragment)


def test_the_product_falls_back_to_the_pci_identifier_and_then_to_nothing() -> None:
    fragment = changed(r'<info name="GPUModel"[^>]*/>')
    assert group(fragment)["accelerator"]["model"] == "nvidia-a100-sxm-80gb"
    text = re.sub(r'<info name="GPUModel"[^>]*/>', "", HOST.text).replace("10de:20b2", "10de:ffff")
    assert group(read(ForeignText("x", text)))["accelerator"] == {"vendor": "nvidia"}


def test_a_product_that_the_catalog_lacks_keeps_its_own_name() -> None:
    fragment = changed("NVIDIA A100-SXM4-80GB", "NVIDIA Example 9")
    assert group(fragment)["accelerator"] == {"model": "nvidia-example-9", "vendor": "nvidia"}
    assert {"accelerator.peak_rates", "accelerator.memory_bytes"} <= unknown_keys(fragment)


def test_interfaces_of_the_other_socket_are_far() -> None:
    text = HOST.text.replace("0207 [15b3:101b]", "0108 [15b3:101b]", 1)
    fragment = read(ForeignText("x", text))
    assert group(fragment)["nics"][0]["nearest_path"] == "SYS"
    assert group(fragment)["nics"][0]["same_numa_node"] is False
    assert "PIX: accelerator-1; SYS: accelerator-0" in messages(fragment)
    assert len(fragment.facts["layout"]["nodes"][0]["accelerators"]) == 2


def test_memory_of_accelerators_is_not_the_hosts() -> None:
    fragment = changed(r'(local_memory="540000000000")', r'\1 subtype="GPUMemory"', count=1)
    assert group(fragment)["host"]["memory_bytes"] == 5.4e11
    assert "memory of accelerators" in messages(fragment)


def test_a_restricted_export_is_remarked() -> None:
    assert "not all processors were allowed" in messages(changed('allowed_cpuset="0x0000000f"', 'allowed_cpuset="0x1"'))


def test_cores_are_not_counted_where_processing_units_are_missing() -> None:
    fragment = changed(r'gp_index="121" os_index="3"', 'gp_index="121" os_index="25"')
    assert "num_cores" not in group(fragment)["host"]
    assert "host.num_cores" in unknown_keys(fragment)
    assert "numbered up to 25, but 4 are listed" in messages(fragment)


def test_a_virtual_machine_says_so() -> None:
    assert group(changed("Example 2S", "Google Compute Engine"))["host"]["virtualised"] is True


def test_xgmi_rates_are_not_taken_for_one_direction() -> None:
    fragment = changed("NVLinkBandwidth", "XGMIBandwidth")
    assert group(fragment)["scale_up"]["technology"] == "xgmi"
    assert "scale_up.bandwidth_bytes_per_second" in unknown_keys(fragment)


@pytest.mark.parametrize(
    ("pattern", "new", "words"),
    [
        ("300000 1000000 ", "300000 ", "2 indexes and 3 values"),
        ("300000 1000000 ", "300000 -1 ", "something else than numbers"),
        ('nbobjs="2"', 'nbobjs="999999999"', "states 999999999 objects"),
        ('version="3.0"', "", "hwloc 1"),
        ('version="3.0"', 'version="4.0"', "hwloc 4.0"),
    ],
)
def test_damage_is_refused_with_its_line(pattern: str, new: str, words: str) -> None:
    with pytest.raises(ForeignFormatError, match=words) as caught:
        read(ForeignText("x", HOST.text.replace(pattern, new)))
    assert caught.value.line


def test_an_older_version_two_export_reads_alike() -> None:
    fragment = changed('version="3.0"', 'version="2.0"')
    assert group(fragment)["host"]["num_cores"] == 4


@pytest.mark.parametrize("path", samples("hwloc-*.xml"))
def test_published_files_import(path: Path) -> None:
    text = ForeignText(path.name, path.read_text(encoding="utf-8"))
    assert FORMAT.looks_like(text)
    fragment = FORMAT.read(text)
    assert_fits_schema(fragment)
    if "DGX2" in path.name:
        facts = group(fragment)
        assert facts["num_accelerators_per_node"] == 16
        assert "num_cores" not in facts["host"], "the export holds 2 cores of each socket"
        assert facts["scale_up"]["topology"] == "switched"
        assert facts["scale_up"]["bandwidth_bytes_per_second"] == 150e9


@examples(120)
@given(mutated(HOST.text) | st.text(max_size=200))
def test_any_text_is_facts_or_a_refusal(text: str) -> None:
    read_or_refuse(FORMAT, text)
