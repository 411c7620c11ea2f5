"""`trainspec accept` with the states of links that `amd-smi xgmi --link-status` prints, and nodes of AMD as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.topology_facts import FIXTURES
from tests.node_reports import benchmark, ports
from tests.test_acceptance_amd_errors import metric
from tests.test_toolbox_accept import accept, short_run
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.node_tools import node_facts

NUM = 8
UP = ["U"] * 7
DRIVER = "6.14.4"


def address(number: int) -> str:
    return f"0000:{number * 16 + 5:02x}:00.0"


def listed(rows: list[list[str]]) -> str:
    """The form of ROCm 6.4, with a place for each link of which the last is disabled."""
    lines = "".join(f"GPU{i}   {address(i)}  {'  '.join([*row, 'X'])}\n" for i, row in enumerate(rows))
    return f"\nXGMI LINK STATUS:\n       bdf           link_status\n{lines}\n* U:Up D:Down X:Disabled\n"


def by_peer(rows: list[list[str]]) -> str:
    """The form of later versions, with a column for each GPU."""
    columns = "".join(f"GPU{i:<11}" for i in range(len(rows[0]) + 1)).rstrip()
    lines = ""
    for i, row in enumerate(rows):
        states = [*row[:i], "SELF", *row[i:]]
        lines += f"GPU{i}   {address(i)}  {''.join(f'{one:<14}' for one in states)}\n"
    return f"\nXGMI LINK STATUS:\n       bdf           {columns}\n{lines}\n"


FORMS = pytest.mark.parametrize("table", [listed, by_peer])


def static() -> str:
    """What `amd-smi static` prints of a node of eight."""
    gpu = (FIXTURES / "amd-static.txt").read_text(encoding="utf-8").partition("GPU: 0\n")[2].partition("GPU: 1\n")[0]
    driver = f"    DRIVER:\n        NAME: amdgpu\n        VERSION: {DRIVER}\n"
    return "".join(f"GPU: {i}\n{gpu.replace(address(0), address(i)).rstrip()}\n{driver}\n" for i in range(NUM))


def profile(text: str) -> str:
    found = text.replace("nvidia-h100-sxm-80gb", "amd-mi325x-256gb").replace("535.183.01", DRIVER)
    head, _, rest = found.partition("    scale_up:\n")
    links = "technology: xgmi, topology: full-mesh, domain_num_accelerators: 8, num_links: 7"
    _, _, tail = rest.partition("    nics:")
    return f"{head}    scale_up: {{{links}, link_bandwidth_bytes_per_second: 64e9}}\n    nics:{tail}".replace(
        "name: nccl", "name: rccl"
    )


def state(num: int = NUM, *, width: str = "16", status: str = "NOT ACTIVE") -> str:
    """What `amd-smi metric --pcie --throttle` prints; the third GPU is odd."""
    text = ""
    for i in range(num):
        odd = {"width": width, "status": status} if i == 2 else {"width": "16", "status": "NOT ACTIVE"}
        text += f"GPU: {i}\n    PCIE:\n        WIDTH: {odd['width']}\n        SPEED: 32 GT/s\n        REPLAY_COUNT: 0\n"
        text += "    THROTTLE:\n        ACCUMULATION_COUNTER: 3808991\n        PPT_VIOLATION_STATUS: ACTIVE\n"
        for name in ("PROCHOT", "SOCKET_THERMAL", "VR_THERMAL", "HBM_THERMAL"):
            is_odd = name == "HBM_THERMAL"
            text += f"        {name}_VIOLATION_STATUS: {odd['status'] if is_odd else 'NOT ACTIVE'}\n"
        text += "\n"
    return text


def node(table: str) -> dict[str, str]:
    return {
        "amd-smi.txt": static(),
        "ecc.txt": metric(NUM),
        "state.txt": state(),
        "xgmi.txt": table,
        "ibstat.txt": ports(),
        "rccl.txt": benchmark(320.0),
        "dmesg.txt": "[  1.0] Linux\n",
    }


@FORMS
def test_nodes_of_amd_as_declared_pass(table: object, tmp_path: Path) -> None:
    assert callable(table)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "ranks.jsonl").write_text(short_run(), encoding="utf-8")
    nodes = {f"node-{i}": node(table([UP] * NUM)) for i in range(3)}
    found = accept(tmp_path, nodes, "--statement", f"{tmp_path}/statement.json", change=profile)
    assert json.loads((tmp_path / "statement.json").read_text())["predicate"]["result"] == "PASSED", found.output
    assert found.exit_code == 0


@FORMS
def test_a_link_that_is_down_is_a_finding_of_its_gpu(table: object, tmp_path: Path) -> None:
    assert callable(table)
    rows = [UP] * NUM
    rows[2] = [*UP[:4], "D", *UP[5:]]
    found = accept(tmp_path, {f"node-{i}": node(table(rows)) for i in range(2)}, change=profile)
    assert (found.exit_code, "node-1/GPU 2: 6 of 7 scale-up links are up" in found.output) == (1, True)
    assert found.output.count("scale-up links are up") == 2, found.output


@FORMS
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (["N/A"] * 7, "the state N/A"),
        (["D"] * 7, "none is up, as virtual functions also show it"),
        (["?", *UP[1:]], "the state ?"),
    ],
)
def test_states_that_say_nothing_are_named(table: object, row: list[str], reason: str, tmp_path: Path) -> None:
    assert callable(table)
    rows = [UP] * NUM
    rows[3] = row
    facts = node_facts(table(rows)) or {}
    assert facts["unread"] == [f"links of GPU 3: {reason}"]
    assert [one["num_active_links"] for one in facts["devices"]] == [7] * 7
    found = accept(tmp_path, {"node-0": node(table(rows))}, "--fail-on", "unjudged", change=profile)
    assert (found.exit_code, reason in found.output) == (1, True), found.output


@FORMS
def test_a_node_of_four_is_left_open(table: object) -> None:
    """As many states as GPUs are printed, so that links of a GPU may be absent."""
    assert callable(table)
    facts = node_facts(table([["U"] * 3] * 4)) or {}
    assert (facts["devices"], len(facts["unread"])) == ([], 4)
    assert facts["unread"][0] == "links of GPU 0: 4 states, of 8"


@FORMS
@pytest.mark.parametrize("num_lost", [1, 3, 14, 40])
def test_a_table_that_is_cut_off_is_refused(table: object, num_lost: int) -> None:
    assert callable(table)
    rows = table([UP] * NUM).partition("* U")[0].rstrip()
    with pytest.raises(ForeignFormatError, match="is cut off"):
        node_facts(rows[:-num_lost])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (state(width="8"), "node-0/GPU 2: 8 of 16 lanes of the host link"),
        (state(status="ACTIVE"), "node-0/GPU 2: throttle:thermal of the memory"),
    ],
)
def test_lanes_that_are_not_in_use_and_slowdowns_are_findings(text: str, message: str, tmp_path: Path) -> None:
    found = accept(tmp_path, {"node-0": {**node(listed([UP] * NUM)), "state.txt": text}}, change=profile)
    assert (found.exit_code, message in found.output) == (1, True), found.output


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"state.txt": state(width="N/A")}, "host links of accelerators"),
        ({"state.txt": state(status="N/A")}, "slowdowns of accelerators"),
        ({"state.txt": ""}, "slowdowns of accelerators"),
        ({"ecc.txt": ""}, "memory errors of accelerators"),
        ({"state.txt": state(7)}, "the state of accelerators"),
        ({"ecc.txt": metric(7)}, "the state of accelerators"),
        ({"state.txt": "", "ecc.txt": ""}, "the state of accelerators"),
    ],
)
def test_state_that_no_file_has_of_each_gpu_is_named(change: dict[str, str], fact: str, tmp_path: Path) -> None:
    files = {name: text for name, text in {**node(listed([UP] * NUM)), **change}.items() if text}
    found = accept(tmp_path, {"node-0": files}, "--fail-on", "unjudged", change=profile)
    assert (found.exit_code, f"no file states {fact} of 1 of 1 nodes" in found.output) == (1, True), found.output


@pytest.mark.parametrize("lost", ["\n\n", "ACTIVE\n\n", state(1).partition("\n")[2]])
def test_a_state_that_is_cut_off_is_refused(lost: str) -> None:
    with pytest.raises(ForeignFormatError, match="is cut off"):
        node_facts(state().removesuffix(lost))
