"""`trainspec accept` with outputs of nvbandwidth and HPL: rates, failed tests, and outputs that are cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.node_reports import profile, smi
from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.node_tools import node_facts

Edit = Callable[[dict[str, Any]], object]
PCIE = "technology: pcie, generation: 5, num_lanes: 16"
HEAD = "nvbandwidth Version: v0.10.0\nBuilt from Git version: v0.10.0\n\n"


def copies(test: str, rows: list[list[float]], absent: str = "N/A") -> str:
    """A table as the tool prints it."""
    arrows = {"host_to_device": "CPU(row) -> GPU", "device_to_host": "CPU(row) <- GPU"}
    title = f"memcpy CE {next((a for name, a in arrows.items() if test.startswith(name)), 'GPU(row) -> GPU')}(column)"
    cells = [
        [absent if test.startswith("device_to_device") and i == j else f"{v:.2f}" for j, v in enumerate(row)]
        for i, row in enumerate(rows)
    ]
    lines = [" " * 11 + "".join(f"{j:>10}" for j in range(len(rows[0])))]
    lines += [f"{i:>2}" + "".join(f"{cell:>10}" for cell in row) for i, row in enumerate(cells)]
    return f"Running {test}.\n{title} bandwidth (GB/s)\n" + "\n".join(lines) + f"\n\nSUM {test} 9\n\n"


def node(host: float = 55.3, slow: float | None = None, pair: float = 395.0, odd: float | None = None) -> str:
    hosts = [host] * 8
    pairs = [[pair] * 8 for _ in range(8)]
    if slow is not None:
        hosts[3] = slow
    if odd is not None:
        pairs[2][5] = odd
    own = copies("host_to_device_memcpy_ce", [hosts]) + copies("device_to_host_memcpy_ce", [[host] * 8])
    return HEAD + own + "Waived: \n" + copies("device_to_device_memcpy_read_ce", pairs)


def hpl(rate: str = "3.370e+05", result: str = "PASSED", residual: str = "5.5e-04", ranks: str = "2     4") -> str:
    return (
        "T/V                N    NB     P     Q         Time          Gflops (   per GPU)\n"
        f"{'-' * 80}\nWC0           299008  1024     {ranks}        52.88       {rate} ( 4.213e+04)\n\n"
        "HPL_pdgesv() start time Sun Jun  8 23:23:45 2025\n"
        f"||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   {residual} ...... {result}\n"
        "Finished      1 tests with the following results:\n"
        "              0 tests skipped because of illegal input values.\n"
    )


def accept(root: Path, text: str, *more: str) -> Result:
    (root / "cluster.yaml").write_text(profile(1), encoding="utf-8")
    (root / "nodes" / "node-0").mkdir(parents=True, exist_ok=True)
    for name, content in {"smi.txt": smi(), "bench.txt": text}.items():
        (root / "nodes" / "node-0" / name).write_text(content, encoding="utf-8")
    arguments = ["accept", f"{root}/cluster.yaml", "--from", f"{root}/nodes", *more]
    return CliRunner().invoke(command, arguments, prog_name="trainspec")


def found(result: Result) -> list[str]:
    return [line for line in result.output.splitlines() if "warning[" in line or "error[" in line]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (node(), ""),
        (node(slow=26.0), "a copy to device 3 runs at 26 GB/s, accepted are 48 GB/s of"),
        (node(host=26.0), "a copy from device 0 runs at 26 GB/s (8 of 8 devices), accepted are 48 GB/s of"),
        (node(odd=150.0), "a copy between devices 5 and 2 runs at 150 GB/s, accepted are 335 GB/s of 450 GB/s"),
        (node(odd=0.0), "a copy between devices 5 and 2 runs at 0 B/s"),
        (node(host=110.0), "a copy to device 7 runs at 110 GB/s (8 of 8 devices), the declared link has 63"),
        (
            node(pair=765.0),
            "a copy between devices 7 and 0 runs at 765 GB/s (8 of 8 devices), the declared link has 450",
        ),
        (hpl(), ""),
        (hpl("3.0e+07"), "Linpack on 8 ranks runs at 3750 TFLOP/s each, more than the"),
        (hpl(result="FAILED", residual="nan"), "HPL N=299008, NB=1024, P=2, Q=4: the residual nan FAILED"),
    ],
)
def test_rates_are_compared_with_what_is_declared(text: str, words: str, tmp_path: Path) -> None:
    result = accept(tmp_path, text)
    lines = found(result)
    assert (result.exit_code, any(words in line for line in lines)) == (int(bool(words)), bool(words)), result.output
    assert all("node-0" in line for line in lines)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (
            lambda text: text.replace(PCIE, "technology: coherent, bandwidth_bytes_per_second: 63e9"),
            "16 copies at 55.3",
        ),
        (lambda text: text.replace("topology: switched", "topology: hybrid-mesh"), "8 copies at 395 GB/s"),
        (lambda text: text, ""),
    ],
)
def test_rates_without_a_published_least_value_are_named(
    edit: Callable[[str], str], words: str, tmp_path: Path
) -> None:
    accept(tmp_path, node())
    (tmp_path / "cluster.yaml").write_text(edit(profile(1)), encoding="utf-8")
    arguments = ["accept", f"{tmp_path}/cluster.yaml", "--from", f"{tmp_path}/nodes"]
    result = CliRunner().invoke(command, arguments, prog_name="trainspec")
    told = [
        line for line in result.output.splitlines() if "no least value is published" in line and "not covered: " in line
    ]
    assert (result.exit_code, bool(told), words in "".join(told)) == (0, bool(words), True), result.output


def test_the_rate_of_linpack_is_reported_and_not_judged(tmp_path: Path) -> None:
    result = accept(tmp_path, hpl(), "--output", f"{tmp_path}/accepted.yaml")
    assert "Linpack on 8 ranks at 337 TFLOP/s" in result.output
    assert "linpack_runs:" in (tmp_path / "accepted.yaml").read_text(encoding="utf-8")


def as_json(edit: Edit = lambda _: None, before: str = "", after: str = "") -> str:
    cases: list[dict[str, Any]] = [
        {
            "name": "host_to_device_memcpy_ce",
            "status": "Passed",
            "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s) ",
            "bandwidth_matrix": [["55.5602", "55.5582"]],
        },
        {"name": "device_to_device_memcpy_read_ce", "status": "Waived"},
    ]
    body = {"version": "v0.10.0", "testcases": cases}
    edit(body)
    return f"{before}{json.dumps({'nvbandwidth': body}, indent=1)}\n{after}"


@pytest.mark.parametrize("noise", ["", "WARNING: garbage {\nWARNING: more {{{}}}}}\n"])
def test_json_may_have_messages_around_it(noise: str) -> None:
    facts = node_facts(as_json(before=noise, after=noise)) or {}
    assert [one["bandwidth_bytes_per_second"] for one in facts["copies"]] == [55.5602e9, 55.5582e9]
    assert facts["failed_checks"] == []


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda body: body["testcases"][1].update(status="ERROR"), "device_to_device_memcpy_read_ce: ERROR"),
        (lambda body: body.update(error="no device", testcases=[]), "as a whole: no device"),
    ],
)
def test_tests_that_failed_are_failed_checks(edit: Edit, words: str) -> None:
    assert [words in one for one in (node_facts(as_json(edit)) or {})["failed_checks"]] == [True]
    broken = HEAD + "Running host_to_device_memcpy_ce.\n[ERROR] CUDA_ERROR_NOT_READY in expression cuEventQuery\n"
    assert [
        "host_to_device_memcpy_ce: CUDA_ERROR_NOT_READY" in one for one in (node_facts(broken) or {})["failed_checks"]
    ] == [True]


def test_a_diagonal_is_no_pair() -> None:
    """Of versions before 0.2, which print zeros there."""
    table = copies("device_to_device_memcpy_read_ce", [[264.0, 264.5], [263.0, 264.0]], absent="0.00")
    facts = node_facts(table) or {}
    assert [(one["device"], one["peer"], one["bandwidth_bytes_per_second"] / 1e9) for one in facts["copies"]] == [
        (0, 1, 263.0),
        (1, 0, 264.5),
    ]


@pytest.mark.parametrize(
    "text", [node(), as_json(), hpl(), hpl(result="FAILED")], ids=["words", "json", "hpl", "failed"]
)
def test_what_is_left_of_an_output_has_no_other_value(text: str) -> None:
    """A part of an output is refused, or has values of the whole."""
    whole = node_facts(text) or {}
    for end in range(len(text)):
        try:
            part = node_facts(text[:end]) or {}
        except ForeignFormatError:
            continue
        for key in ("copies", "linpack_runs", "failed_checks"):
            assert all(one in whole.get(key, ()) for one in part.get(key, ())), text[max(0, end - 40) : end]


@pytest.mark.parametrize(
    "text",
    [
        hpl().partition("||Ax-b||")[0],
        hpl().replace("PASSED", ""),
        hpl(ranks="0     4"),
        HEAD + "Running host_to_device_memcpy_ce.\n",
        as_json(lambda body: body["testcases"][0].update(bandwidth_matrix=[["NaN", "1e300"]])),
        as_json(lambda body: body.update(testcases=[3])),
        '{"nvbandwidth": ' + "[" * 100_000,
    ],
)
def test_outputs_without_a_result_are_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        node_facts(text)
