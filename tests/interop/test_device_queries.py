from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_facts import FIXTURES, assert_fits_schema, fixture, group, messages, mutated, read_or_refuse, unknown_keys

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import device_queries, hwloc, nccl_graph, nccl_xml, nvidia_matrix, rocm_matrix

FORMATS = {entry.name: entry for entry in device_queries.FORMATS}
ALL = [
    entry
    for module in (device_queries, hwloc, nccl_graph, nccl_xml, nvidia_matrix, rocm_matrix)
    for entry in module.FORMATS
]
FILES = {
    "nvidia-smi-query-csv": fixture("nvidia-query.csv"),
    "nvidia-smi-log-xml": fixture("nvidia-log.xml"),
    "dcgm-discovery": fixture("dcgm-discovery.txt"),
    "tpu-info": fixture("tpu-info.txt"),
    "rocm-smi-list": fixture("rocm-list.txt"),
    "amd-smi": fixture("amd-static.txt"),
}


def read(name: str, *changes: tuple[str, str]) -> Fragment:
    text = FILES[name].text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    fragment = FORMATS[name].read(ForeignText(FILES[name].name, text))
    assert_fits_schema(fragment)
    return fragment


def test_every_fixture_is_recognised_by_one_format_alone() -> None:
    for path in sorted(FIXTURES.iterdir()):
        fitting = [entry.name for entry in ALL if entry.looks_like(fixture(path.name))]
        assert len(fitting) == 1, (path.name, fitting)
    assert set(FILES) == set(FORMATS)


PCIE5 = {"technology": "pcie", "generation": 5, "num_lanes": 16}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "nvidia-smi-query-csv",
            {
                "accelerator": {"model": "nvidia-h100-sxm-80gb", "vendor": "nvidia", "power_watts": 700.0},
                "num_accelerators_per_node": 4,
                "host_link": PCIE5,
            },
        ),
        (
            "nvidia-smi-log-xml",
            {
                "accelerator": {"model": "nvidia-b200-sxm-180gb", "vendor": "nvidia", "power_watts": 1000.0},
                "num_accelerators_per_node": 2,
                "host_link": PCIE5,
            },
        ),
        (
            "dcgm-discovery",
            {
                "accelerator": {"model": "nvidia-h200-sxm-141gb", "vendor": "nvidia"},
                "num_accelerators_per_node": 2,
                "scale_up": {"technology": "nvlink", "topology": "switched", "num_switches": 4},
            },
        ),
        ("tpu-info", {"accelerator": {"model": "google-tpu-v6e", "vendor": "google"}, "num_accelerators_per_node": 4}),
        (
            "rocm-smi-list",
            {
                "accelerator": {"model": "amd-mi300x-192gb", "vendor": "amd", "power_watts": 750.0},
                "num_accelerators_per_node": 8,
            },
        ),
        (
            "amd-smi",
            {
                "accelerator": {"model": "amd-mi325x-256gb", "vendor": "amd", "power_watts": 1000.0},
                "num_accelerators_per_node": 2,
                "host_link": PCIE5,
            },
        ),
    ],
)
def test_each_tool_tells_product_count_and_what_it_was_asked_for(name: str, expected: dict[str, Any]) -> None:
    assert group(read(name)) == {"name": "nodes", **expected}


def test_versions_of_software() -> None:
    assert read("nvidia-smi-query-csv").facts["software"] == {"driver": {"name": "nvidia", "version": "550.90.07"}}
    assert read("nvidia-smi-log-xml").facts["software"]["runtime"] == {"name": "cuda", "version": "12.8"}


@pytest.mark.parametrize(
    ("name", "old", "new", "key"),
    [
        ("nvidia-smi-query-csv", "NVIDIA H100 80GB HBM3", "[N/A]", "accelerator.model"),
        ("nvidia-smi-query-csv", "700.00 W", "[N/A]", "accelerator.power_watts"),
        ("nvidia-smi-query-csv", ", 5, 16,", ", [N/A], 16,", "host_link.generation"),
        ("nvidia-smi-query-csv", ", 5, 16,", ", 5, [N/A],", "host_link.num_lanes"),
        ("nvidia-smi-log-xml", "<max_link_gen>5</max_link_gen>", "", "host_link.generation"),
        ("nvidia-smi-log-xml", "<product_name>NVIDIA B200</product_name>", "", "accelerator.model"),
        ("nvidia-smi-log-xml", "1000.00 W", "N/A", "accelerator.power_watts"),
        ("dcgm-discovery", "NVIDIA H200", "", "accelerator.model"),
        ("rocm-smi-list", "AMD Instinct MI300X OAM", "0x74a1", "accelerator.model"),
        ("rocm-smi-list", ": Max Graphics Package Power (W): 750.0", "", "accelerator.power_watts"),
        ("amd-smi", "MARKET_NAME: AMD Instinct MI325X", "MARKET_NAME: N/A", "accelerator.model"),
        ("amd-smi", "MAX_PCIE_SPEED: 32 GT/s", "", "host_link.generation"),
    ],
)
def test_what_a_tool_does_not_print_is_unknown(name: str, old: str, new: str, key: str) -> None:
    fragment = read(name, (old, new))
    assert key in unknown_keys(fragment)


def amd_static(*versions: str) -> str:
    """The output of `amd-smi static` with the driver of each device, next to other versions."""
    ifwi = "    IFWI:\n        NAME: AMD MI350X\n        VERSION: 00154951\n"
    driver = "    DRIVER:\n        NAME: amdgpu\n        VERSION: {}\n        OS_KERNEL_VERSION: 5.15.0-164-generic\n"
    asic = "GPU: {}\n    ASIC:\n        MARKET_NAME: AMD Instinct MI350X\n"
    return "".join(f"{asic.format(i)}{ifwi}{driver.format(one)}\n" for i, one in enumerate(versions))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (amd_static("6.18.3", "6.18.3"), "6.18.3"),
        (amd_static("6.9.0-rc5+"), "6.9.0-rc5+"),
        (amd_static("6.18.3", "6.14.4"), None),
        (amd_static("Linuxversion6.8.0-79-generic(buildd@lcy02)(gcc-13)#79-UbuntuSMP"), None),
        (amd_static("Linuxversion6.8.0-79-generic"), None),
        (amd_static("N/A"), None),
        (amd_static("6.18.3").replace("    DRIVER:\n", ""), None),
    ],
)
def test_the_driver_of_amd_is_that_of_its_own_section(text: str, version: str | None) -> None:
    facts = FORMATS["amd-smi"].read(ForeignText("amd-smi.txt", text)).facts
    expected = None if version is None else {"driver": {"name": "amdgpu", "version": version}}
    assert facts.get("software") == expected


def test_memory_decides_between_products_of_one_name() -> None:
    facts = group(read("nvidia-smi-query-csv", ("81559 MiB", "65247 MiB")))
    assert facts["accelerator"]["model"] == "nvidia-h100-80gb-hbm3"
    assert facts["accelerator"]["memory_bytes"] == 65247 * 2**20
    facts = group(read("nvidia-smi-query-csv", ("NVIDIA H100 80GB HBM3", "NVIDIA H20"), ("81559 MiB", "97871 MiB")))
    assert facts["accelerator"]["model"] == "nvidia-h20-96gb"


def test_differing_devices_are_said() -> None:
    fragment = read(
        "nvidia-smi-query-csv",
        ("3, NVIDIA H100 80GB HBM3, 81559 MiB, 700.00 W, 5, 16", "3, NVIDIA H200, 143771 MiB, 650.00 W, 4, 8"),
    )
    told = messages(fragment)
    assert "accelerators differ within the node: nvidia-h100-sxm-80gb, nvidia-h200-sxm-141gb" in told
    assert "650 W, 700 W" in told
    facts = group(fragment)
    assert "model" not in facts["accelerator"]
    assert facts["host_link"] == {"technology": "pcie", "generation": 4, "num_lanes": 8}
    assert [item["link_num_lanes"] for item in fragment.facts["layout"]["nodes"][0]["accelerators"]] == [16, 16, 16, 8]


def test_partitions_are_said() -> None:
    assert "MIG is enabled" in messages(read("nvidia-smi-query-csv", ("Disabled", "Enabled")))
    assert "partitions" in messages(read("amd-smi", ("BDF:", "PARTITION_ID: 3\n        BDF:")))


def test_dies_count_as_one_package() -> None:
    fragment = read(
        "rocm-smi-list", ("AMD Instinct MI300X OAM", "AMD Instinct MI250X"), ("206141652992", "68702699520")
    )
    facts = group(fragment)
    assert facts["num_accelerators_per_node"] == 4
    assert facts["accelerator"] == {"model": "amd-mi250x-128gb", "vendor": "amd", "num_ranks_per_accelerator": 2}


def test_cores_of_a_chip_are_not_counted() -> None:
    fragment = read("tpu-info", ("TPU v6e chip │ 1", "TPU v3 chip │ 2"))
    assert group(fragment)["num_accelerators_per_node"] == 4
    assert "which are cores" in messages(fragment)


def test_an_old_table_without_borders_reads_alike() -> None:
    rows = "".join(f"/dev/accel{k}   TPU v4 chip   1   130007\n" for k in range(4))
    fragment = FORMATS["tpu-info"].read(ForeignText("x", f"TPU Chips\n{rows}"))
    assert group(fragment)["accelerator"]["model"] == "google-tpu-v4"


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("nvidia-smi-query-csv", ", 5, 16, Disabled, 550.90.07", "", "4 fields, the header 8"),
        ("nvidia-smi-query-csv", "pcie.link.gen.max", "name", "twice"),
        ("nvidia-smi-log-xml", "nvidia_smi_log", "other", "starts with <other>"),
        ("dcgm-discovery", "2 GPUs found.", "3 GPUs found.", "3 GPUs are announced, 2 listed"),
        ("dcgm-discovery", "2 GPUs found.", "", "does not say"),
        ("tpu-info", "/dev/", "/nix/", "lists no chip"),
        ("rocm-smi-list", "GPU[", "CPU[", "lists no device"),
        ("amd-smi", "GPU: ", "APU: ", "lists no device"),
    ],
)
def test_damage_is_refused(name: str, old: str, new: str, words: str) -> None:
    text = FILES[name].text
    assert old in text
    with pytest.raises(ForeignFormatError, match=words):
        FORMATS[name].read(ForeignText("x", text.replace(old, new)))


def test_rows_without_a_header_are_refused() -> None:
    rows = FILES["nvidia-smi-query-csv"].text.partition("\n")[2]
    with pytest.raises(ForeignFormatError, match="has no header") as caught:
        FORMATS["nvidia-smi-query-csv"].read(ForeignText("x", rows))
    assert "noheader" in caught.value.help


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_long_lines_and_many_devices_are_refused(name: str) -> None:
    with pytest.raises(ForeignFormatError):
        FORMATS[name].read(ForeignText("x", " " * 2_000_000))
    many = {
        "nvidia-smi-query-csv": "name, uuid\n" + "a, b\n" * 5000,
        "nvidia-smi-log-xml": "<nvidia_smi_log>" + "<gpu/>" * 5000 + "</nvidia_smi_log>",
        "dcgm-discovery": "5000 GPUs found.\n" + "| 0 | Name: x |\n" * 5000,
        "tpu-info": "TPU Chips\n" + "/dev/a TPU v4 1 2\n" * 5000,
        "rocm-smi-list": "".join(f"GPU[{k}] : Card Series: x\n" for k in range(5000)),
        "amd-smi": "GPU: 0\n  BDF: x\n" * 5000,
    }[name]
    with pytest.raises(ForeignFormatError, match="devices"):
        FORMATS[name].read(ForeignText("x", many))


COUNT = ("node_groups", 0, "num_accelerators_per_node")


def rows(header: str, *names: str, again: bool = False) -> str:
    """A query of H100s, of which each has a name in a column of the header; `again` prints all of it twice."""
    lines = [f"{header}, name", *(f"{name}, NVIDIA H100 80GB HBM3" for name in names)]
    return "\n".join((*lines, *(lines if again else ()))) + "\n"


NAMELESS = "name, memory.total [MiB]\n" + "NVIDIA H100 80GB HBM3, 81559 MiB\n" * 8
SLOTS = [f"00000000:{k:02X}:00.0" for k in range(3)]


@pytest.mark.parametrize(
    ("text", "num", "remark"),
    [
        (rows("index", *"0123"), 4, ""),
        (rows("index", *"01230123"), 4, "4 devices, each of them listed 2 times"),
        (rows("index", *"0123", again=True), 4, "4 devices, each of them listed 2 times"),
        (rows("index", *"01230"), 4, "index 0 is listed twice"),
        (rows("index", *"0120120"), 3, "index 0, 1, 2 are listed several times"),
        (rows("uuid", "GPU-a", "GPU-b", "GPU-a", "GPU-b"), 2, "2 devices, each of them listed 2 times"),
        (rows("gpu_uuid", "GPU-a", "GPU-b", "GPU-a"), 2, "uuid GPU-a is listed twice"),
        (rows("pci.bus_id", *SLOTS, SLOTS[0].lower()), 3, "pci.bus_id 00000000:00:00.0 is listed twice"),
        (rows("uuid, index", "[N/A], 0", "[N/A], 1", "[N/A], 1"), 2, "index 1 is listed twice"),
        (rows("index, uuid", "0, GPU-a", "0, GPU-b"), 2, ""),
        (NAMELESS, None, "no column identifies the devices of 8 rows; query index or uuid too"),
        (NAMELESS * 2, None, "no column identifies the devices of 16 rows"),
        ("name, memory.total [MiB]\nNVIDIA H100 80GB HBM3, 81559 MiB\n", 1, ""),
    ],
)
def test_a_query_counts_each_device_once(text: str, num: int | None, remark: str) -> None:
    fragment = FORMATS["nvidia-smi-query-csv"].read(ForeignText("x", text))
    assert_fits_schema(fragment)
    assert group(fragment).get("num_accelerators_per_node") == num
    assert group(fragment)["accelerator"]["model"] == "nvidia-h100-sxm-80gb"
    assert (remark in messages(fragment), bool(messages(fragment))) == (True, bool(remark))
    assert any(item.pointer == COUNT for item in fragment.unknown) == (num is None)


def test_an_open_number_has_no_explicit_devices() -> None:
    """Eight rows of differing links that may be samples of fewer devices."""
    text = (
        "name, power.limit [W], pcie.link.gen.max, pcie.link.width.max\n"
        + "NVIDIA H200, 700.00 W, 5, 16\nNVIDIA H200, 700.00 W, 4, 16\n" * 4
    )
    fragment = FORMATS["nvidia-smi-query-csv"].read(ForeignText("x", text))
    assert group(fragment)["host_link"]["generation"] == 4
    assert "layout" not in fragment.facts


def test_another_query_in_the_same_file_is_refused() -> None:
    text = rows("index", *"01") + rows("uuid", "GPU-a", "GPU-b")
    with pytest.raises(ForeignFormatError, match="header of another query") as caught:
        FORMATS["nvidia-smi-query-csv"].read(ForeignText("x", text))
    assert caught.value.line == 4


@pytest.mark.parametrize("attached", ["1", "64", "999999999", "9" * 40, "[N/A]"])
def test_a_log_of_other_than_the_attached_devices_has_no_count(attached: str) -> None:
    fragment = read("nvidia-smi-log-xml", ("<attached_gpus>2<", f"<attached_gpus>{attached}<"))
    assert "num_accelerators_per_node" not in group(fragment)
    assert [item.pointer for item in fragment.remarks if attached[:32] in item.message] == [COUNT]


@examples(200)
@given(
    st.sampled_from(sorted(FORMATS)).flatmap(
        lambda name: st.tuples(st.just(name), mutated(FILES[name].text) | st.text(max_size=200))
    )
)
def test_any_text_is_facts_or_a_refusal(pair: tuple[str, str]) -> None:
    read_or_refuse(FORMATS[pair[0]], pair[1])


@examples(100)
@given(st.text(max_size=200))
def test_no_format_takes_offence_at_any_text(text: str) -> None:
    for entry in ALL:
        read_or_refuse(entry, text)


CURRENT = "<current_power_limit>1000.00 W</current_power_limit>"


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        ("1000.00 W", {"power_watts": 1000.0}),
        ("1200.00 W", {"power_watts": 1200.0, "power_cap_watts": 1000.0}),
        ("700.00 W", {"power_watts": 1000.0}),  # raised above the default: no cap
        ("N/A", {"power_watts": 1000.0}),
    ],
)
def test_a_limit_below_the_default_is_a_cap(default: str, expected: dict[str, float]) -> None:
    own = f"{CURRENT}<default_power_limit>{default}</default_power_limit>"
    accelerator = group(read("nvidia-smi-log-xml", (CURRENT, own)))["accelerator"]
    assert {key: value for key, value in accelerator.items() if key.startswith("power")} == expected


def test_a_column_of_default_limits() -> None:
    changes = (("power.limit [W]", "power.limit [W], power.default_limit [W]"), ("700.00 W", "550.00 W, 700.00 W"))
    accelerator = group(read("nvidia-smi-query-csv", *changes))["accelerator"]
    assert (accelerator["power_watts"], accelerator["power_cap_watts"]) == (700.0, 550.0)
