"""Reads the lines of nccl-tests and rccl-tests: ranks with hosts, and tables of sizes and times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainspec_validate.system.digits import is_digits

MAX_ROWS = 2_000
_MAX_LINE = 2_000
_HEAD = re.compile(r"^#?[ \t]{0,80}size[ \t]+count[ \t]+type\b.{0,400}\btime[ \t]+algbw[ \t]+busbw", re.MULTILINE)
_RANK = re.compile(
    r"#\s*Rank\s+(?P<rank>[0-9]{1,8})\s.{0,200}?\bon\s+(?P<host>\S{1,200})\s+device\s+[0-9]{1,4}\s+\[[^\]]{1,40}\]\s*(?P<model>.{0,100})"
)
_PROGRAM = re.compile(
    r"\b(?P<name>all_reduce|all_gather|reduce_scatter|alltoall|alltoallv|broadcast|reduce|sendrecv|gather|scatter|hypercube)"
    r"_perf(?:_mpi)?\b"
)
_LIBRARY = re.compile(r"^#.*\b(?P<name>nccl|rccl)-library=(?P<code>[0-9]{5,7})\b")
_OPERATIONS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send-receive",
}
_WRONG = "#wrong"
_UNCHECKED = frozenset({"N/A", "-"})
_ALL_UNCHECKED = ({"N/A"}, {"-"}, {"N/A", "-"})
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,6})?(?:e\+[0-9]{1,2})?")
_MEASURED = frozenset({"time", "algbw", "busbw"})
_TYPE = re.compile(r"(?:u?int(?:8|32|64)|half|float|double|bfloat16|bf16|fp?8\w{0,8}|float8\w{0,8})")
"""Names of data types. Source: NVIDIA/nccl-tests, src/common.cu; ROCm/rccl-tests, src/common.cu."""
_LOG = re.compile(r"(?:\[?[A-Za-z][\w.\-]{0,200}:[0-9]{1,9}:[0-9]{1,9} \[[0-9]{1,4}\] )NCCL [A-Z]{4,7} .*")
"""What the library writes with NCCL_DEBUG=INFO, also into the middle of a row, whose parts are flushed one by one."""
_CELL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,6})?(?:e\+[0-9]{1,2})?|N/A|-")
_MAX_SHOWN = 40
_FACTOR_TOLERANCE = 0.005
_LEAST_PRINTED = 4.0
"""GB/s from which two printed decimals keep the ratio of two figures within 0.25 %."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, its out-of-place columns; wrong values are of both halves."""

    line: int
    size_bytes: int
    redop: str
    root: int | None
    time_seconds: float
    algorithm_bytes_per_second: float | None
    bus_bytes_per_second: float | None
    num_wrong: int
    is_exact: bool
    """True when both rates have digits enough for their ratio to be judged."""
    is_unchecked: bool
    """True when the program says that it did not check the data."""
    is_wrong: bool
    """True when values out of place are wrong, whose time is then no measurement."""


@dataclass(slots=True)
class Table:
    """One run of one program."""

    program: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    library: tuple[str, str] | None = None
    unread: list[str] = field(default_factory=list)
    """Rows with a value that cannot be, each with its line: nothing is read of them, or not this value."""


def has_table(text: str) -> bool:
    """Whether a text has the head of a table of sizes, times and bandwidths.

    >>> has_table("#       size         count      type   redop    root     time   algbw   busbw #wrong")
    True
    """
    return bool(_HEAD.search(text))


@dataclass(slots=True)
class _Cut:
    """A row whose parts have lines of the library between them."""

    line: int = 0
    cells: list[str] = field(default_factory=list)

    def take(self, number: int, line: str, columns: Sequence[str]) -> tuple[int, list[str]]:
        """The first line and the cells of a row that is whole by this line, or the line itself where it is no part."""
        rest = _LOG.sub("", line)
        cells = rest.split()
        if not self.cells and rest != line and len(cells) > columns.index("type") and is_digits(cells[0]):
            self.line = number
        elif not self.cells or not all(map(_CELL.fullmatch, cells)):
            return number, line.split()
        self.cells += cells
        if len(self.cells) < len(columns):
            return number, []
        whole, self.cells = self.cells, []
        return self.line, whole

    def end(self) -> Iterator[str]:
        """That a row was never whole."""
        if self.cells:
            yield f"line {self.line}: cut by other lines"
        self.cells = []


def tables(text: str) -> list[Table]:
    """Every run of a text that has rows; the list of ranks starts a new one."""
    found, cut = [Table()], _Cut()
    columns: Sequence[str] = ()
    for number, whole_line in enumerate(text.split("\n"), start=1):
        line = whole_line[:_MAX_LINE]
        current = found[-1]
        program = _PROGRAM.search(line)
        starts = program or "Using devices" in line
        if starts and (current.rows or current.unread):
            current = Table(library=current.library)
            found.append(current)
        if program:
            current.program = program["name"]
        _take_head(current, line)
        if _HEAD.match(line):
            columns = line.lstrip("# ").split()
        elif columns and not line.lstrip().startswith("#") and sum(len(t.rows) for t in found) < MAX_ROWS:
            place, cells = cut.take(number, line, columns)
            current.rows.extend(_row(place, cells, columns))
            current.unread.extend(_odd(place, cells, columns))
        elif line.lstrip().startswith("#"):
            current.unread.extend(cut.end())
    found[-1].unread.extend(cut.end())
    return [table for table in found if table.rows or table.unread]


def _take_head(table: Table, line: str) -> None:
    if not line.lstrip().startswith("#"):
        return
    rank, library = _RANK.search(line), _LIBRARY.search(line)
    if rank:
        table.hosts[int(rank["rank"])] = rank["host"]
        table.models.add(rank["model"].strip())
    if library:
        code = int(library["code"])
        table.library = (library["name"], f"{code // 10_000}.{code // 100 % 100}.{code % 100}")


def _row(number: int, cells: Sequence[str], columns: Sequence[str]) -> Iterator[Row]:
    """The row of a line; nothing for a line that is no row of the table."""
    if len(cells) != len(columns) or not is_digits(cells[0]) or len(cells[0]) > 18:
        return
    first = columns.index("time")
    time = _decimal(cells[first])
    if time is None:
        return
    algorithm, bus = _decimal(cells[first + 1]), _decimal(cells[first + 2])
    root = cells[columns.index("root")] if "root" in columns[:first] else ""
    wrong = [cell for cell, column in zip(cells, columns, strict=True) if column == _WRONG]
    yield Row(
        number,
        int(cells[0]),
        cells[columns.index("redop")] if "redop" in columns[:first] else "",
        int(root) if re.fullmatch(r"-?[0-9]{1,8}", root) else None,
        time * 1e-6,
        float(round(algorithm * 1e9)) if algorithm is not None else None,
        float(round(bus * 1e9)) if bus is not None else None,
        max(map(_count, wrong), default=0),
        min(algorithm or 0, bus or 0) >= _LEAST_PRINTED,
        {*wrong} in _ALL_UNCHECKED,
        any(map(_count, wrong[:1])),
    )


def _odd(number: int, cells: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """The values of a row that are no number and should be: of its size, and of what was measured."""
    kind = columns.index("type")
    if len(cells) <= kind or not _TYPE.fullmatch(cells[kind]):
        return
    if len(cells) != len(columns):
        yield f"line {number}: {len(cells)} values for {len(columns)} columns"
        return
    for cell, column in zip(cells, columns, strict=True):
        is_odd = (
            (column in _MEASURED and _decimal(cell) is None)
            or (column == "size" and not re.fullmatch(r"[0-9]{1,18}", cell))
            or (column == _WRONG and cell not in _UNCHECKED and not _NUMBER.fullmatch(cell))
        )
        if is_odd:
            yield f"line {number}: {column} {cell[:_MAX_SHOWN]}"


def _decimal(cell: str) -> float | None:
    return float(cell) if re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", cell) else None


def _count(cell: str) -> int:
    """A number as `%g` prints it: `5`, or `1.34218e+08`."""
    return int(float(cell)) if _NUMBER.fullmatch(cell) else 0


def operation(table: Table) -> str | None:
    """The collective of a table: by the name of the program, else by redop, root and the ratio of its bandwidths.

    All-gather and all-to-all cannot be distinguished without the name.
    Source of the factors: NVIDIA/nccl-tests@a0b82b22:doc/PERFORMANCE.md.
    """
    if table.program:
        return _OPERATIONS.get(table.program)
    number = len(table.hosts)
    exact = [row for row in table.rows if row.is_exact]
    if not exact or number < 2:
        return None
    row = exact[-1]
    ratio = (row.bus_bytes_per_second or 0) / (row.algorithm_bytes_per_second or 1)
    reduces, rooted = row.redop not in {"", "none"}, row.root is not None and row.root >= 0
    share = (number - 1) / number
    candidates = {
        (True, False): (("all-reduce", 2 * share), ("reduce-scatter", share)),
        (True, True): (("reduce", 1.0),),
    }
    candidates[False, True] = (("broadcast", 1.0),)
    fitting = [
        name for name, factor in candidates.get((reduces, rooted), ()) if abs(ratio / factor - 1) < _FACTOR_TOLERANCE
    ]
    return fitting[0] if len(fitting) == 1 else None
