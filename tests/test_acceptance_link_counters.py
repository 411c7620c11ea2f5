"""`trainspec accept` with what `nvidia-smi nvlink --errorcounters` prints: faults, counts without a bound, and cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node_reports import links
from tests.test_toolbox_accept import ALL, GOOD, accept
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.node_tools import node_facts

UP_TO_HOPPER = ("Replay Errors: 0", "Recovery Errors: 0", "CRC Errors: 0", "")
BLACKWELL = (
    *("Tx packets: 31771", "Tx bytes: 4097", "Malformed packet Errors: 0", "Rx Errors: 0", "Tx discards: 0"),
    *("Link recovery successful events: 0", "Link recovery failed events: 0", "Total link recovery events: 0"),
    *("Effective Errors: 0", "Effective BER: 15e-255", "Symbol Errors: 0", "Symbol BER: 15e-255"),
    *("FEC Errors - 0: 36140749276", "FEC Errors - 15: 1", "Raw BER Lane 0: 2061", "Raw Errors Lane 0: 82"),
    "PLR Xmit Blocks: 1234567890",
)
"""Names as drivers 535 and 595 print them, and the values of sound links."""
GPU = "GPU-00000000-0000-0000-0000-000000000020"


def counters(names: tuple[str, ...] = UP_TO_HOPPER, num_gpus: int = 8) -> str:
    heads = [line for line in links(num_gpus).splitlines() if line.startswith("GPU")]
    each = "".join(f"\t Link {i}: {name}\n" if name else "\n" for i in range(18) for name in names)
    return "".join(f"{head}\n{each}" for head in heads)


def of_one(text: str, old: str, new: str) -> str:
    """A text with another value of the third GPU."""
    head, gpu, rest = text.partition(GPU)
    return head + gpu + rest.replace(old, new, 1)


@pytest.mark.parametrize("names", [UP_TO_HOPPER, BLACKWELL])
def test_counters_of_sound_links_say_nothing_else(names: tuple[str, ...]) -> None:
    facts = node_facts(counters(names)) or {}
    assert facts["unread"] == []
    assert [list(device) for device in facts["devices"]] == [["name", "faults"]] * 8
    assert not any(device["faults"] for device in facts["devices"])


@pytest.mark.parametrize("join", [lambda a, b: a + b, lambda a, b: b + a])
def test_states_and_counters_of_one_file_are_both_read(join: object) -> None:
    """With the head of a GPU above either."""
    text = join(links(), of_one(counters(), "Link 4: Recovery Errors: 0", "Link 4: Recovery Errors: 3"))  # type: ignore[operator]
    facts = node_facts(text) or {}
    assert [one["num_active_links"] for one in facts["devices"] if "num_active_links" in one] == [18] * 8
    assert [one for one in facts["devices"] if one.get("faults")] == [
        {"name": GPU, "faults": ["nvlink:recovery 3 of link 4"]}
    ]


def test_a_link_that_recovered_is_a_fault_of_its_gpu(tmp_path: Path) -> None:
    text = of_one(counters(), "Link 4: Recovery Errors: 0", "Link 4: Recovery Errors: 3")
    found = accept(tmp_path, {"node-0": {**GOOD, **ALL, "errors.txt": text}})
    assert found.exit_code == 1, found.output
    assert f"node-0/{GPU}: nvlink:recovery 3 of link 4 (the link lost its connection and recovered" in found.output


@pytest.mark.parametrize(
    ("names", "old", "new"),
    [
        (UP_TO_HOPPER, "Link 3: Replay Errors: 0", "Link 3: Replay Errors: 2353"),
        (UP_TO_HOPPER, "Link 0: CRC Errors: 0", "Link 0: CRC Errors: 65535"),
        (UP_TO_HOPPER, "Link 0: Recovery Errors: 0", "Link 0: Recovery Errors: N/A"),
        (BLACKWELL, "Link 9: Link recovery successful events: 0", "Link 9: Link recovery successful events: 4"),
        (BLACKWELL, "Link 9: Symbol Errors: 0", "Link 9: Symbol Errors: 2"),
    ],
)
def test_a_count_without_a_bound_is_named_with_its_number(names: tuple[str, ...], old: str, new: str) -> None:
    facts = node_facts(of_one(counters(names), old, new)) or {}
    link, name, value = new.removeprefix("Link ").split(": ")
    assert facts["unread"] == [f"{GPU}: {name}: {value} of link {link}"]
    assert not any(device["faults"] for device in facts["devices"])


def test_a_link_of_nvlink_5_that_did_not_recover_is_a_fault() -> None:
    text = of_one(counters(BLACKWELL), "Link recovery failed events: 0", "Link recovery failed events: 1")
    faults = [one["faults"] for one in (node_facts(text) or {})["devices"]]
    assert faults == [[], [], ["nvlink:recovery-failed 1 of link 0"], [], [], [], [], []]


@pytest.mark.parametrize("cut", [len("\n\n"), len(" 0\n\n"), 400])
def test_counters_that_are_cut_off_are_refused(cut: int) -> None:
    with pytest.raises(ForeignFormatError, match="is cut off"):
        node_facts(counters()[:-cut])


def test_other_lines_of_links_are_no_counters() -> None:
    """As `--pcibusid`, `--remotelinkinfo` and `--capabilities` print them."""
    head = counters().split("\n", 1)[0]
    lines = ("0: 00000000:0A:00.0", "0: Remote Device 00000000:0A:00.0: Link 3", "0, P2P is supported: true")
    facts = node_facts("\n".join([head, *(f"\t Link {line}" for line in lines), ""])) or {}
    assert [one.get("faults") for one in facts["devices"]] == [None]


def test_counters_without_a_number_or_a_gpu_are_named() -> None:
    absent = node_facts(of_one(counters(), "Recovery Errors: 0", "Recovery Errors:"))
    assert absent is not None
    assert absent["unread"] == [f"{GPU}: Recovery Errors: nothing of link 0"]
    stray = node_facts("\t Link 0: Replay Errors: 0\n" + counters())
    assert stray is not None
    assert stray["unread"] == ["1 counters of links above the line of a GPU"]
