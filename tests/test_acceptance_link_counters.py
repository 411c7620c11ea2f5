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
    assert stray["unread"] == ["a line of links that are below the line of no GPU: Link 0: Replay Errors: 0"]


def within(text: str, old: str, new: str, number: int) -> str:
    """A text with another word in place of one of its alike ones."""
    parts = text.split(old)
    return old.join(parts[:number]) + new + old.join(parts[number:])


@pytest.mark.parametrize("whole", [counters(), counters(BLACKWELL), links()], ids=["hopper", "blackwell", "states"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Link 3: ", "Lnk 3: "),
        ("Link 3: ", "L\x00nk 3: "),
        ("\t Link 3: ", "Link 3: "),
        ("Link 3: ", "Link 3; "),
        ("(UUID: GPU-", "(UUID: GPX-"),
        ("GPU 7: ", "GPU 7; "),
        ("GPU 0: ", "GP\ufffd 0: "),
    ],
)
def test_lines_whose_names_are_damaged_are_named(whole: str, old: str, new: str) -> None:
    assert (node_facts(whole) or {})["unread"] == []
    for number in {1, whole.count(old) // 2, whole.count(old)} - {0}:
        try:
            facts = node_facts(within(whole, old, new, number)) or {}
        except ForeignFormatError as error:
            assert "cut off" in str(error)  # noqa: PT017
        else:
            assert facts["unread"], (old, number)


def test_other_lines_of_gpus_are_no_damage() -> None:
    """As `nvidia-smi -L` prints them with MIG, and `nvidia-smi nvlink --capabilities`."""
    mig = "  MIG 3g.20gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000001)\n"
    listed = "".join(line + "\n" + mig for line in links().splitlines() if line.startswith("GPU"))
    able = links().replace("\t Link 0: 26.562 GB/s\n", "\t Link 0, P2P is supported: true\n\t Link 0: 26.562 GB/s\n")
    for text in (listed, listed + links(), able, links() + "\nLinks of the fabric:\n  Link 3 of the switch\n"):
        assert (node_facts(text) or {})["unread"] == [], text


@pytest.mark.parametrize("names", [UP_TO_HOPPER, BLACKWELL])
def test_counters_that_are_cut_at_any_place_are_refused_or_incomplete(names: tuple[str, ...]) -> None:
    whole = counters(names, 2)
    complete = (node_facts(whole) or {})["counted_links"]
    for end in range(whole.index(" Errors"), len(whole.rstrip()), len(whole) // 250 + 1):
        try:
            facts = node_facts(whole[:end]) or {}
        except ForeignFormatError as error:
            assert "cut off" in str(error)  # noqa: PT017
        else:
            assert facts.get("unread") or facts.get("counted_links") != complete, whole[:end][-100:]


@pytest.mark.parametrize(
    ("num_links", "words"), [(5, "counters of 5 of 18 active links of GPU-"), (18, "counters of links of 1 of 8 GPUs")]
)
def test_counters_of_a_part_of_the_first_gpu_are_named(num_links: int, words: str, tmp_path: Path) -> None:
    head, _, rest = counters().partition("\n")
    text = head + "\n" + rest.partition(f"\t Link {num_links}:" if num_links < 18 else "GPU")[0]
    found = accept(tmp_path, {"node-0": {**GOOD, **ALL, "errors.txt": text}})
    told = next((line for line in found.output.splitlines() if "a file of which a part is not read" in line), "")
    assert words in told, found.output
    assert "node-0/errors.txt" in told


def test_files_of_which_a_part_is_not_read_are_counted_as_files(tmp_path: Path) -> None:
    log = "[  1.0] NVRM: Xid (): 79\n[  2.0] NVRM: Xid (): 79\n"
    text = within(links(), "Link 3: ", "Lnk 3: ", 1)
    found = accept(tmp_path, {"node-0": {**GOOD, "dmesg.txt": log, "nvlink.txt": text}})
    assert "2 files of which a part is not read: node-0/dmesg.txt:1 (an error" in found.output
    assert "), :2 (an error without its device or code), node-0/nvlink.txt (a line of links" in found.output
