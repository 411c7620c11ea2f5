"""Reads what nvbandwidth and High-Performance Linpack (HPL) print on one node: rates, and tests that failed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.gpu_report import Facts

_MAX_LINE = 20_000
_MAX_DEVICES = 256
_MAX_TABLES = 1_024
_MAX_RUNS = 10_000
_WHOLE = "copy the whole output"
_KINDS = {
    "host_to_device_memcpy_ce": "host-to-device",
    "device_to_host_memcpy_ce": "device-to-host",
    "device_to_device_memcpy_read_ce": "device-to-device",
}
"""Tests that are read: copies of one pair at a time by its copy engines. Others share links, or depend on kernels."""
_RUNNING = re.compile(r"^\s*Running (?P<test>[a-z][a-z0-9_]{2,80})\.\s*$", re.MULTILINE)
_FAILED = re.compile(r"\[?ERROR\]?:? ?(?P<why>[^\n]{0,160})")
_ROW = re.compile(r"\s*(?P<row>[0-9]{1,3})(?P<values>(?:\s+(?:N/A|[0-9]{1,9}(?:\.[0-9]{1,9})?))+)\s*")
_HEAD = re.compile(r"\s*[0-9]{1,3}(?:\s+[0-9]{1,3})*\s*")
_BANDWIDTH = re.compile(r"bandwidth \(GB/s\)\s*$")
_NV_JSON = re.compile(r'^\s*\{?\s*"nvbandwidth"\s*:', re.MULTILINE)
_HPL_HEAD = re.compile(r"^\s*T/V\s+N\s+NB\s+P\s+Q\s+Time\s+Gflops", re.MULTILINE)
_HPL_RUN = re.compile(
    r"\s*W[RC][A-Z0-9]{1,12}\s+(?P<size>[0-9]{1,9})\s+(?P<block>[0-9]{1,6})\s+(?P<p>[0-9]{1,6})\s+(?P<q>[0-9]{1,6})"
    r"\s+[0-9]{1,9}\.[0-9]{1,6}\s+(?P<rate>[0-9]{1,9}(?:\.[0-9]{1,9})?(?:e[+-]?[0-9]{1,3})?)(?:\s|$)"
)
_HPL_ROW = re.compile(r"\s*W[RC][A-Z0-9]{1,12}(?:\s+\S+){6}")
"""As many words as a run has, whatever they are."""
_HPL_CHECK = re.compile(r"\s*\|\|Ax-b\|\|[^=\n]{1,100}=\s*(?P<residual>\S{1,40}) \.{6} (?P<result>PASSED|FAILED)")
_HPL_SKIPPED = re.compile(r"^\s*(?P<number>[0-9]{1,9}) tests skipped because of illegal input values", re.MULTILINE)

Table = list[list[float | None]]
Tables = list[tuple[str, Table]]
"""Bandwidths in GB/s, with the test that measured them."""


def is_nvbandwidth(text: str) -> bool:
    """Whether a text has the output of nvbandwidth, in words or JSON."""
    return bool(_NV_JSON.search(text) or ("memcpy" in text and _RUNNING.search(text)))


def read_nvbandwidth(text: str) -> Facts:
    """The slowest copy of each device, and tests that failed. Format: NVIDIA/nvbandwidth, output.cpp, json_output.cpp.

    Raises:
        ForeignFormatError: the output is cut off, or its JSON cannot be read.
    """
    tables, failed = _from_json(text) if _NV_JSON.search(text) else _from_words(text)
    copies: dict[tuple[str, int], Facts] = {}
    for test, table in tables:
        for own in _copies(_KINDS[test], table):
            before = copies.setdefault((own["kind"], own["device"]), own)
            if own["bandwidth_bytes_per_second"] < before["bandwidth_bytes_per_second"]:
                copies[own["kind"], own["device"]] = own
    ran = [f"copies: {kind}" for kind in _KINDS.values() if any(kind == own for own, _ in copies)]
    return {"copies": list(copies.values()), "failed_checks": failed[:_MAX_TABLES], "ran": ran}


def _copies(kind: str, table: Table) -> Iterator[Facts]:
    """Devices are columns; between devices each is a row too, and the pair of both is named."""
    is_pair = kind == "device-to-device"
    for device in range(max(map(len, table), default=0)):
        cells = [(row[device], peer) for peer, row in enumerate(table) if device < len(row)]
        values = [(rate, peer) for rate, peer in cells if rate is not None and not (is_pair and peer == device)]
        if values:
            rate, peer = min(values)
            own = {"kind": kind, "device": device, "bandwidth_bytes_per_second": rate * 1e9}
            yield {**own, "peer": peer} if is_pair else own


def _from_words(text: str) -> tuple[Tables, list[str]]:
    found: Tables = []
    failed: list[str] = []
    test, is_wanted, width, line, is_open = "", False, 0, "", False
    for line in text.split("\n"):
        words = line[:_MAX_LINE].rstrip()
        if running := _RUNNING.match(words):
            _refuse_open(test, is_open=is_open)
            test, is_wanted, is_open = running["test"], False, running["test"] in _KINDS
        elif words.lower().lstrip().startswith("waived"):
            is_wanted = is_open = False
        elif bad := _FAILED.match(words.lstrip()):
            failed.append(f"nvbandwidth {test or 'as a whole'}: {bad['why'].strip() or 'ERROR'}")
            is_wanted = is_open = False
        elif test in _KINDS and _BANDWIDTH.search(words):
            is_wanted, width, is_open = True, 0, False
            _check(found)
            found.append((test, []))
        elif is_wanted and not width and _HEAD.fullmatch(words):
            width = len(words.split())
        elif is_wanted and width and (row := _ROW.fullmatch(words)):
            found[-1][1].append(_values(test, row["values"].split(), width))
        elif words:
            is_wanted = False
    _check(found)
    _refuse_open(test, is_open=is_open)
    if is_wanted and line:  # no line break after the last value
        raise ForeignFormatError(f"is cut off: the last value of {test} may lack digits", help=_WHOLE)
    return found, failed


def _refuse_open(test: str, *, is_open: bool) -> None:
    if is_open:
        raise ForeignFormatError(f"is cut off: {test} has no table of bandwidths", help=_WHOLE)


def _from_json(text: str) -> tuple[Tables, list[str]]:
    """Messages of other libraries may precede and follow the JSON text."""
    start = _NV_JSON.search(text)
    try:
        data, _ = json.JSONDecoder().raw_decode(text, max(text.rfind("{", 0, start.end() if start else 0), 0))
        body = data["nvbandwidth"]
        found: Tables = []
        failed = [f"nvbandwidth as a whole: {str(body['error'])[:160]}"] if body.get("error") else []
        for one in body["testcases"]:
            name, status = str(one["name"])[:80], str(one["status"])[:40]
            if status not in {"Passed", "Waived"}:
                why = str(one.get("error", ""))[:160]
                failed.append(f"nvbandwidth {name}: {status} {why}".rstrip())
            elif name in _KINDS and one.get("bandwidth_matrix"):
                rows = [_values(name, [str(v) for v in row], len(row)) for row in one["bandwidth_matrix"]]
                found.append((name, rows))
                _check(found)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ForeignFormatError("JSON of nvbandwidth that cannot be read, or is cut off", help=_WHOLE) from error
    return found, failed


def _values(test: str, words: Sequence[str], width: int) -> list[float | None]:
    if len(words) != width or width > _MAX_DEVICES:
        raise ForeignFormatError(f"is cut off: a row of {test} has {len(words)} of {width} values", help=_WHOLE)
    try:
        values = [None if word == "N/A" else float(word) for word in words]
    except ValueError as error:
        raise ForeignFormatError(f"a value of {test} is no number", help=_WHOLE) from error
    if not all(value is None or 0 <= value < 1e5 for value in values):
        raise ForeignFormatError(f"a value of {test} is no bandwidth in GB/s", help=_WHOLE)
    return values


def _check(tables: Tables) -> None:
    """Refuse the last table where it is not whole."""
    if len(tables) > _MAX_TABLES:
        raise ForeignFormatError(f"has more than {_MAX_TABLES} tables of nvbandwidth", help="split the file")
    for test, table in tables[-1:]:
        width = max(map(len, table), default=0)
        wanted = width if test.startswith("device_to_device") else 1
        if not table or len(table) < wanted:
            raise ForeignFormatError(f"is cut off: {test} has {len(table)} of {wanted or 'its'} rows", help=_WHOLE)


def is_hpl(text: str) -> bool:
    """Whether a text has a table of results of HPL."""
    return bool(_HPL_HEAD.search(text))


def read_hpl(text: str) -> Facts:
    """The fastest run of each number of ranks, and runs whose residual is too large. Format: HPL 2.3, HPL_pdtest.c.

    HPL of NVIDIA has the rate for each GPU after the rate; that of AMD prints as the original does.

    Raises:
        ForeignFormatError: a run has no result of its check, so that the output is cut off or the check was disabled.
    """
    failed: list[str] = []
    best: dict[int, Facts] = {}
    for words, run, check in _hpl_runs(text):
        if check is None:
            raise ForeignFormatError(
                f"the run {words} has no PASSED or FAILED: it is cut off or not checked", help=_WHOLE
            )
        if check["result"] == "FAILED":
            failed.append(f"HPL {words}: the residual {check['residual']} FAILED")
        elif run["flops_per_second"] > best.get(run["num_ranks"], run | {"flops_per_second": 0.0})["flops_per_second"]:
            best[run["num_ranks"]] = run
    if not failed and not best:
        raise ForeignFormatError("is cut off: the table of HPL has no run", help=_WHOLE)
    skipped = _HPL_SKIPPED.search(text)
    if skipped and int(skipped["number"]):
        failed.append(f"HPL: {int(skipped['number'])} tests skipped because of illegal input values")
    return {
        "linpack_runs": list(best.values()),
        "failed_checks": list(dict.fromkeys(failed))[:_MAX_TABLES],
        "ran": ["Linpack"],
    }


def _hpl_runs(text: str) -> Iterator[tuple[str, Facts, re.Match[str] | None]]:
    """Each run in words and values, with the result of its check."""
    last: tuple[str, Facts] | None = None
    number = 0
    for line in text.split("\n"):
        row = _HPL_RUN.match(line[:_MAX_LINE])
        if row is None and _HPL_ROW.match(line[:_MAX_LINE]):
            raise ForeignFormatError(f"the run {line.strip()[:80]} has a value that is no number", help=_WHOLE)
        if row and last is not None:
            yield (*last, None)
        if row:
            number += 1
            if number > _MAX_RUNS:
                raise ForeignFormatError(f"has more than {_MAX_RUNS} runs of HPL", help="split the file")
            words = f"N={row['size']}, NB={row['block']}, P={row['p']}, Q={row['q']}"
            rate, num_ranks = float(row["rate"]) * 1e9, int(row["p"]) * int(row["q"])
            if not (math.isfinite(rate) and rate > 0 and 0 < num_ranks <= _MAX_RUNS**2):
                raise ForeignFormatError(f"the run {words} has no rate that can be", help=_WHOLE)
            last = words, {"matrix_size": int(row["size"]), "num_ranks": num_ranks, "flops_per_second": rate}
        elif last is not None and (check := _HPL_CHECK.match(line[:_MAX_LINE])):
            yield (*last, check)
            last = None
    if last is not None:
        yield (*last, None)
