"""`trainspec accept` with outputs that state no verdict, or one that is no word of the tool: they are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.node_reports import diagnostic
from tests.test_toolbox_accept import ALL, GOOD, accept, short_run
from trainspec_validate.interop.gpu_diagnostics import is_table, read


def result(root: Path, files: dict[str, str]) -> tuple[str, str, int]:
    """The result in the statement, what is printed, and the exit code where what is not judged fails."""
    (root / "nodes").mkdir(exist_ok=True)
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
    assert read(table) == {"failed_checks": failed, "unread": [f"PCIe: {one}" for one in unread]}


def test_what_the_table_says_of_itself_is_no_result() -> None:
    about = "".join(f"| {name:<26}| {'4.4.2':<47}|\n" for name in ("DCGM Version", "GPU Device IDs Detected"))
    section = "|-----  Metadata  ----------+------------------------------------------------|\n| Odd | 3 |\n"
    after = "|-----  Deployment  --------+------------------------------------------------|\n"
    start = diagnostic().index("| Denylist")
    table = diagnostic()[:start] + about + section + after + diagnostic()[start:]
    assert read(table) == {"failed_checks": [], "unread": []}


def test_a_table_without_a_check_is_named() -> None:
    head, _, rest = diagnostic().partition("| Denylist")
    assert read(head + rest[rest.rindex("\n+-") + 1 :])["unread"] == ["dcgmi diag: no check has a result"]


def test_an_error_of_another_program_is_no_diagnostic() -> None:
    assert not is_table("Error: could not open the device\n")
