"""Reads what nccl-tests and rccl-tests print."""

from __future__ import annotations

from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._collective_library import is_log, put_observation, watch
from trainspec_validate.interop.readers._collective_table import Row, Table, has_table, operation, tables
from trainspec_validate.interop.readers._sheet import Sheet, plain_text
from trainspec_validate.model.units import counted
from trainspec_validate.performance.costs.bandwidth import bus_bandwidth_factor

NAME = "collective-benchmark"
_RATIO_TOLERANCE = 0.005
_LEAST_SECONDS = 1e-6
_SHOWN = 5
"""Rows of a table that are named where they cannot be read."""
_NO_ROW = "a table without a row: the run ended before it measured"
_DOMAINS = "hosts of the ranks counted; fewer where one scale-up domain spans hosts"


def looks_like(text: ForeignText) -> bool:
    """Whether the text has the head of a table of these programs."""
    return has_table(text.text)


def read(text: ForeignText) -> Fragment:
    """Measured collectives, out of place. Format: NVIDIA/nccl-tests@a0b82b22:doc/PERFORMANCE.md.

    Sizes are in bytes of the benchmark's convention, times in microseconds, bandwidths in 10^9 bytes per second.

    Raises:
        ForeignFormatError: the text has no row.
    """
    found = tables(text.text)
    if not any(table.rows for table in found):
        unread = [told for table in found for told in table.unread]
        why = f"a table of which no row can be read: {unread[0]}" if unread else _NO_ROW
        raise ForeignFormatError(why, None, "keep the whole output, and no other lines in it")
    if all(row.is_wrong for table in found for row in table.rows):
        row = next(row for table in found for row in table.rows)
        why = f"every row has wrong values, the first {row.num_wrong} at {row.size_bytes} bytes: nothing is measured"
        raise ForeignFormatError(why, row.line, "find out why the collective is wrong, and measure again")
    sheet = Sheet()
    for table in found:
        for told in table.unread[:_SHOWN]:
            sheet.remark(f"left out: {told}")
        if table.rows:
            _put_table(sheet, table, text.name)
    libraries = {table.library for table in found if table.library}
    if len(libraries) == 1:
        name, version = libraries.pop()
        sheet.put(
            ("software", "collective_library"), {"name": name, "version": version}, f"{name}-library of the header"
        )
    sheet.remark("the columns in place are left out; a measurement has one time")
    if is_log(text.text):
        put_observation(sheet, watch(text.text), text.name)
    return sheet.fragment(NAME, text)


def _put_table(sheet: Sheet, table: Table, name: str) -> None:
    line = table.rows[0].line
    kind, number = operation(table), len(table.hosts)
    if number < 2:
        sheet.remark(
            f"{counted(len(table.rows), 'row', 'are')} left out: the list of ranks is missing, or has one", line
        )
        return
    if set(table.hosts) != set(range(number)):
        sheet.remark(f"the list of ranks has gaps: {counted(number, 'rank')} up to {max(table.hosts)}", line)
        return
    if kind is None:
        told = f"{table.program}_perf is no collective of a profile" if table.program else "no line names the program"
        sheet.remark(f"{counted(len(table.rows), 'row', 'are')} left out: {told}", line)
        return
    num_hosts = len(set(table.hosts.values()))
    models = ", ".join(sorted(plain_text(model) for model in table.models if model)) or "accelerators without a name"
    sheet.remark(f"{kind} over {counted(number, 'rank')} on {counted(num_hosts, 'host')}, {models}", line)
    if not table.program:
        sheet.remark(f"no line names the program; {kind} follows from its columns and bandwidths", line)
    for row in table.rows:
        _put_row(sheet, row, kind, (number, num_hosts), name)


def _put_row(sheet: Sheet, row: Row, kind: str, spread: tuple[int, int], name: str) -> None:
    if row.num_wrong:
        left_out = "left out: " if row.is_wrong else ""
        sheet.remark(f"{left_out}{row.num_wrong} wrong values at {row.size_bytes} bytes", row.line)
    if row.is_wrong or not row.size_bytes:
        return
    number, num_hosts = spread
    own: dict[str, Any] = {
        "operation": kind,
        "num_ranks": number,
        "num_domains": num_hosts,
        "message_bytes": row.size_bytes,
    }
    if row.is_exact:
        own["algorithm_bandwidth_bytes_per_second"] = row.algorithm_bytes_per_second
        own["bus_bandwidth_bytes_per_second"] = row.bus_bytes_per_second
        _judge_ratio(sheet, row, kind, number)
    if row.time_seconds >= _LEAST_SECONDS:
        own["time_seconds"] = float(f"{row.time_seconds:.9g}")
    own["source"] = {
        "title": "Output of a collective benchmark",
        "reference": f"{plain_text(name) or 'output'}:{row.line}",
    }
    position = len(sheet.facts.get("measurements", ()))
    sheet.put(("measurements", position), own)
    if position == 0:
        sheet.put(("measurements", 0, "num_domains"), num_hosts, _DOMAINS)
    if not row.is_exact:
        reason = "bandwidths below 4 GB/s are printed with too few digits to be compared"
        sheet.unknown(("measurements", position, "bus_bandwidth_bytes_per_second"), reason)


def _judge_ratio(sheet: Sheet, row: Row, kind: str, number: int) -> None:
    wanted = bus_bandwidth_factor(kind, number)
    ratio = (row.bus_bytes_per_second or 0) / (row.algorithm_bytes_per_second or 1)
    if abs(ratio / wanted - 1) > _RATIO_TOLERANCE:
        told = f"busbw over algbw is {ratio:.4g}, but {kind} over {counted(number, 'rank')} has the factor {wanted:.4g}"
        sheet.remark(f"{told}: the list of ranks is not of this run", row.line)


FORMATS = (Format(NAME, "output of nccl-tests or rccl-tests", "ClusterProfile", looks_like, read),)
