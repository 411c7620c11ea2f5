"""`trainspec accept` with outputs that state no verdict, or one that is no word of the tool: they are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.node_reports import PORT, benchmark, diagnostic, smi
from tests.test_toolbox_accept import ALL, GOOD, accept, short_run
from trainspec_validate.interop.gpu_diagnostics import is_table, read
from trainspec_validate.interop.node_tools import node_facts


def result(root: Path, files: dict[str, str]) -> tuple[str, str, int]:
    """The result in the statement, what is printed, and the exit code where what is not judged fails."""
    (root / "nodes").mkdir(parents=True, exist_ok=True)
    (root / "nodes" / "ranks.jsonl").write_text(short_run(), encoding="utf-8")
    nodes = {f"node-{i}": {**GOOD, **ALL, **(files if i == 1 else {})} for i in range(3)}
    found = accept(root, nodes, "--statement", f"{root}/statement.json", "--fail-on", "unjudged")
    statement = json.loads((root / "statement.json").read_text(encoding="utf-8"))
    return statement["predicate"]["result"], " ".join(found.output.split()), found.exit_code


@pytest.mark.parametrize(
    ("text", "word", "told"),
    [
        (diagnostic(), "PASSED", ""),
        (diagnostic("FAIL - All"), "FAILED", "node-1: PCIe: FAIL - All"),
        (diagnostic("Failed"), "FAILED", "node-1: PCIe: Failed"),
        (diagnostic("Warn - GPU: 3"), "WARNED", "a part is not read: node-1/diag.txt (PCIe: Warn - GPU: 3)"),
        (diagnostic("Skip - All"), "WARNED", "node-1/diag.txt (PCIe: Skip - All)"),
        (diagnostic("Not Run"), "WARNED", "node-1/diag.txt (PCIe: Not Run)"),
        (diagnostic("Ok!!"), "WARNED", "node-1/diag.txt (PCIe: Ok!!)"),
        (diagnostic("Passable"), "WARNED", "node-1/diag.txt (PCIe: Passable)"),
        (
            diagnostic().replace("Successfully ran diagnostic for group.", "Error: diagnostic was aborted"),
            "WARNED",
            "node-1/diag.txt (Error: diagnostic was aborted)",
        ),
        (
            "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n",
            "FAILED",
            "node-1: dcgmi diag: Error: Unable to connect to host engine.",
        ),
    ],
)
def test_a_result_of_a_diagnostic_that_is_no_pass_is_named(tmp_path: Path, text: str, word: str, told: str) -> None:
    found, output, exit_code = result(tmp_path, {"diag.txt": text})
    assert (found, exit_code) == (word, 0 if word == "PASSED" else 1), output
    assert told in output


SECTION = "+-----  {:<18}+------------------------------------------------+\n| {:<26}| {:<47}|\n"


def not_run(root: Path, files: dict[str, str]) -> dict[str, list[str]]:
    """What the statement on three nodes lists, of which the second has these files too."""
    result(root, files)
    predicate = json.loads((root / "statement.json").read_text(encoding="utf-8"))["predicate"]
    return {one["test"]: one["nodes"] for one in predicate["notRun"]}


def test_a_statement_lists_by_node_the_tests_that_have_no_result(tmp_path: Path) -> None:
    """One that passed has no other word for a seller who ran the first level of the diagnostics alone."""
    others, all_of_them = ["node-0", "node-2"], ["node-0", "node-1", "node-2"]
    of_sections = [
        SECTION.format(*one) for one in (("Integration  ---", "PCIe", "Pass - All"), ("Stress  ---", "", ""))
    ]
    border = diagnostic().split("\n")[1] + "\n"
    assert not_run(tmp_path / "a", {"diag.txt": diagnostic().removesuffix(border) + of_sections[0] + border}) == {
        "diagnostics: Integration": others,
        "diagnostics: Hardware": all_of_them,
        "diagnostics: Stress": all_of_them,
        "copies": all_of_them,
        "Linpack": all_of_them,
    }
    skipped = SECTION.format("Stress  ---", "Targeted Power", "Skip - All")
    empty = SECTION.format("Hardware  ---", "Memory", "Fail - GPU: 3")
    found = not_run(tmp_path / "b", {"diag.txt": diagnostic().removesuffix(border) + skipped + empty + border})
    assert (found["diagnostics: Stress"], found["diagnostics: Hardware"]) == (all_of_them, others)
    failed = "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
    found = not_run(tmp_path / "c", {"diag.txt": failed})
    assert (found["diagnostics"], found["diagnostics: Stress"]) == (["node-1"], others)


@pytest.mark.parametrize(
    ("rows", "failed", "unread"),
    [
        (
            ["Pass - GPUs: 0, 1", ("", "Fail - GPU: 2"), ("Warning", "GPU 2 Detected")],
            ["PCIe: Fail - GPU: 2"],
            [],
        ),
        (["Pass - GPU: 0", ("", "Warn - GPU: 2"), ("", "Skip - GPU: 3")], [], ["Warn - GPU: 2", "Skip - GPU: 3"]),
        (["Pass", ("", "GPU0: Pass"), ("", "GPU1: Skip"), ("Info: GPU0", "Fail")], [], ["GPU1: Skip"]),
        (["Pass", ("", "CPU0: Fail")], ["PCIe: CPU0: Fail"], []),
        (
            ["Fail", ("Error", "GPU 0 has a replay,"), ("", "Fail rate 3")],
            ["PCIe: Fail, GPU 0 has a replay, Fail rate 3"],
            [],
        ),
    ],
)
def test_results_of_single_devices_count(
    rows: list[str | tuple[str, str]], failed: list[str], unread: list[str]
) -> None:
    """As DCGM 2 to 4 print them: below the name of the check, the name of the device in either column."""
    first, *below = rows
    table = diagnostic(str(first))
    end = table.index("| EUD Test")
    table = table[:end] + "".join(f"| {name:<26}| {text:<47}|\n" for name, text in below) + table[end:]
    open_ = [f"PCIe: {one}" for one in unread]
    assert read(table) == {"failed_checks": failed, "unread": open_, "ran": ["diagnostics"]}


def test_what_the_table_says_of_itself_is_no_result() -> None:
    about = "".join(f"| {name:<26}| {'4.4.2':<47}|\n" for name in ("DCGM Version", "GPU Device IDs Detected"))
    section = "|-----  Metadata  ----------+------------------------------------------------|\n| Odd | 3 |\n"
    after = "|-----  Deployment  --------+------------------------------------------------|\n"
    start = diagnostic().index("| Denylist")
    table = diagnostic()[:start] + about + section + after + diagnostic()[start:]
    assert read(table) == {"failed_checks": [], "unread": [], "ran": ["diagnostics", "diagnostics: Deployment"]}


def test_a_table_without_a_check_is_named() -> None:
    head, _, rest = diagnostic().partition("| Denylist")
    assert read(head + rest[rest.rindex("\n+-") + 1 :])["unread"] == ["dcgmi diag: no check has a result"]


def test_an_error_of_another_program_is_no_diagnostic() -> None:
    assert not is_table("Error: could not open the device\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (benchmark(365.0, num_wrong="N/A"), "#wrong is no number: the program did not check the data"),
        (
            benchmark(0.05, size=1024),
            "rates for which no least value is published: node-1 (all-reduce of 1.024 kB at 50 MB/s)",
        ),
    ],
)
def test_a_benchmark_that_nothing_bounds_is_named(tmp_path: Path, text: str, told: str) -> None:
    found, output, exit_code = result(tmp_path, {"nccl.txt": text})
    assert (found, exit_code) == ("WARNED", 1), output
    assert told in output


AER = "PCIe Bus Error: severity={}, type=Data Link Layer, (Receiver ID)"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"nvidia 0000:81:00.0: {AER.format('Uncorrected (Fatal)')}", "node-1/0000:81:00: pcie:fatal (a fatal"),
        (f"nvme 0000:81:00.0: AER: {AER.format('Uncorrectable (Fatal)')}", "node-1/0000:81:00: pcie:fatal"),
        ("pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error received: 0000:81:00.0", "0000:81:00: pcie:fatal"),
        (
            "pcieport 0000:80:01.1: AER: Multiple Uncorrectable (Fatal) error message received from 0000:81:00.0",
            "0000:81:00: pcie:fatal",
        ),
        (
            "mlx5_core 0000:ca:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
            "node-1/0000:ca:00: mlx5:health",
        ),
        ("mlx5_core 0000:ca:00.0: poll_health:800:(pid 0): Fatal error 1 detected", "0000:ca:00: mlx5:health"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0 (channel:0 slot:0)", "node-1/MC0: memory:uncorrected"),
        ("mce: [Hardware Error]: Uncorrected, software containable error.", "node-1/host: processor:uncorrected"),
        ("{1}[Hardware Error]: event severity: fatal", "node-1/host: firmware:fatal"),
        (f"nvidia 0000:81:00.0: {AER.format('Correctable')}", ""),
        (f"nvidia 0000:81:00.0: {AER.format('Uncorrected (Non-Fatal)')}", ""),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0 (channel:0 slot:0)", ""),
        ("{1}[Hardware Error]: event severity: corrected", ""),
        ("mce: [Hardware Error]: Corrected error, no action required.", ""),
        ("mlx5_core 0000:ca:00.0: firmware version: 28.39.1002", ""),
    ],
)
def test_what_the_kernel_calls_fatal_is_an_error(tmp_path: Path, line: str, told: str) -> None:
    found = accept(tmp_path, {"node-1": {"dmesg.txt": f"[  100.2] {line}\n"}}, "--format", "concise")
    errors = [one for one in found.output.splitlines() if "error[TS-CLU-073]" in one]
    assert len(errors) == bool(told), found.output
    assert told in "".join(errors)


def adapters(*ports: tuple[str, int, str]) -> str:
    """`ibstat` of ports with a link layer, a rate and a state."""
    return "".join(
        PORT.format(device=f"mlx5_{i}", firmware="20.1", guid=f"{i + 1:016x}", layer=layer, rate=rate, state=state)
        for i, (layer, rate, state) in enumerate(ports)
    )


IB, SLOW, ETHERNET = ("InfiniBand", 400, "Active"), ("InfiniBand", 56, "Active"), ("Ethernet", 400, "Active")


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ((IB, SLOW, IB, ETHERNET, IB, SLOW, IB), ""),
        ((ETHERNET, ETHERNET, IB, IB, IB, IB), ""),
        ((IB, SLOW, IB, ETHERNET, IB), "mlx5_3: the link layer is ethernet, declared is infiniband"),
        ((IB, IB, IB, SLOW), "mlx5_3: 7 GB/s, declared are 50 GB/s"),
        (
            (IB, IB, IB, ("InfiniBand", 400, "Initializing")),
            "mlx5_3: the cable is up, and no subnet manager has set up the port (start a subnet manager)",
        ),
        ((IB, IB, IB, ("InfiniBand", 10, "Down")), "mlx5_3: the link is down (check the cable)"),
    ],
)
def test_ports_are_the_declared_ones_by_link_layer_and_rate(
    tmp_path: Path, ports: tuple[tuple[str, int, str], ...], told: str
) -> None:
    def four(text: str) -> str:
        return text.replace("num_per_node: 8", "num_per_node: 4").partition(", devices:")[0] + "}\n"

    found = accept(tmp_path, {"node-0": {"ibstat.txt": adapters(*ports)}}, "--format", "concise", change=four)
    errors = [one for one in found.output.splitlines() if "error[" in one]
    assert len(errors) == bool(told), found.output
    assert told in "".join(errors)


@pytest.mark.parametrize(
    ("rate", "word", "told"),
    [
        ("0", "FAILED", "node-1: rate of active port 1 of mlx5_0 is 0"),
        ("-400", "FAILED", "node-1: rate of active port 1 of mlx5_0 is -400"),
        ("NaN", "WARNED", "a part is not read: node-1/ibstat.txt (rate of active port 1 of mlx5_0 is NaN)"),
        ("1e400", "WARNED", "node-1/ibstat.txt (rate of active port 1 of mlx5_0 is 1e400)"),
        ("40 (FDR10)", "FAILED", "node-1/mlx5_0: 5 GB/s, declared are 50 GB/s"),
    ],
)
def test_a_rate_that_no_active_port_has_is_named(tmp_path: Path, rate: str, word: str, told: str) -> None:
    text = {**GOOD, **ALL}["ibstat.txt"]
    first = next(line for line in text.split("\n") if "Rate:" in line)
    found = result(tmp_path, {"ibstat.txt": text.replace(first, f"\t\tRate: {rate}", 1)})
    assert (found[0], found[2]) == (word, 1)
    assert told in found[1]
    assert "no file states the rate" not in found[1]


def test_a_port_that_is_down_may_have_no_rate() -> None:
    facts = node_facts(adapters(("InfiniBand", 0, "Down")))
    assert facts is not None
    assert facts.keys() == {"ports"}


def test_more_accelerators_than_declared_are_not_missing(tmp_path: Path) -> None:
    found = accept(tmp_path, {"node-0": {"smi.txt": smi(9)}}, "--format", "concise")
    assert "node-0: 9 accelerators, declared are 8 (correct num_accelerators_per_node)" in found.output
    assert "left out by" not in found.output


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ("generation: 4, num_lanes: 16", "node-0: generation 5, declared is 4"),
        ("generation: 5, num_lanes: 8", "node-0: 16 lanes, declared are 8"),
        ("generation: 4, num_lanes: 8", "node-0: generation 5, declared is 4; 16 lanes, declared are 8"),
        ("generation: 5, num_lanes: 16", ""),
    ],
)
def test_a_host_link_that_is_better_than_declared_is_named(tmp_path: Path, declared: str, told: str) -> None:
    def other(text: str) -> str:
        return text.replace("generation: 5, num_lanes: 16", declared)

    found = accept(tmp_path, {"node-0": {"smi.txt": smi()}}, change=other)
    words = f"shows host links that are better than declared, on 1 of 1 nodes ({told})"
    assert (words in " ".join(found.output.split())) == bool(told), found.output
    assert found.exit_code == 0
