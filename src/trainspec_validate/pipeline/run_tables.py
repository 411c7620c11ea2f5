"""Says whether a text is a table of the metrics of a run, by its columns, for a search that names what is not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

_SEPARATORS: Final = (",", ";", "\t", "|")
_WIDE: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_ORDER_MARK: Final = "\ufeff"
_LONGEST_TITLE: Final = 20_000
_MOST_BEFORE: Final = 30
"""Lines of comments and blanks above the names of the columns."""
_MOST_ROWS: Final = 50
_MOST_COLUMNS: Final = 1_000
_BORDER: Final = re.compile(r"[\s:|+-]+")
"""The line below the names of columns in a table for a person."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD: Final = re.compile(r"[a-z]+|[0-9]+")
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?%?")
_NO_VALUE: Final = frozenset({"", "-", "nan", "-nan", "inf", "-inf", "none", "null", "na", "n/a"})
_OF_TENSORBOARD: Final = frozenset({"wall time", "step", "value"})
"""Columns of a scalar that TensorBoard exports, whose name is that of the file."""
_STEPS: Final = frozenset(
    {"step", "steps", "iter", "iters", "iteration", "iterations", "epoch", "epochs", "update", "updates"}
)
_COUNTS: Final = frozenset(
    {"batch", "batches", "token", "tokens", "sample", "samples", "sequences", "time", "timestamp"}
)
"""What else grows over a run; tables of other things have such columns too, in no order."""
_BEFORE_COUNT: Final = frozenset(
    {
        "global",
        "train",
        "training",
        "trainer",
        "optimizer",
        "opt",
        "num",
        "number",
        "total",
        "consumed",
        "current",
        "wall",
    }
)
_AFTER_COUNT: Final = frozenset({"seen", "processed", "consumed", "num", "number", "index", "idx", "id", "s", "ms"})
_LOSS: Final = frozenset({"loss", "losses", "nll", "xent"})
_METRICS: Final[Sequence[tuple[str, ...]]] = (
    *((word,) for word in sorted(_LOSS)),
    *(("cross", "entropy"), ("ppl",), ("perplexity",), ("lr",), ("learning", "rate"), ("learningrate",)),
    *(("grad", "norm"), ("gradient", "norm"), ("gnorm",), ("gradnorm",)),
    *(("mfu",), ("tokens", "per"), ("tok", "s"), ("accuracy",), ("acc",)),
)
"""Words in a row by which the name of a column is one of a metric of training."""
_NORMS: Final = frozenset({("grad", "norm"), ("gradient", "norm"), ("gnorm",), ("gradnorm",)})


def is_run_table(content: bytes) -> bool:
    r"""Whether a text is a table of the metrics of a run: a column of steps and one of a metric, with numbers in both.

    Without steps, a count that grows does next to two metrics, or a norm of the gradient next to another metric.

    >>> is_run_table(b"epoch;train_loss\n1;2,5\n"), is_run_table(b"epoch;notes on the loss\nnone;x\n")
    (True, False)
    >>> is_run_table(b"lr,grad_norm\n0.1,2.5\n"), is_run_table(b"params,tokens,loss\n7,9,2.1\n7,3,2.5\n")
    (True, False)
    """
    lines = _text(content).split("\n")
    first = next((n for n, line in enumerate(lines[:_MOST_BEFORE]) if _is_of_table(line)), None)
    if first is None or len(lines[first]) > _LONGEST_TITLE:
        return False
    separator = max(_SEPARATORS, key=lines[first].count)
    mark = separator if separator in lines[first] else None
    names = _cells(lines[first], mark)
    if len(names) < 2 or len(names) > _MOST_COLUMNS:
        return False
    rows = [_cells(line, mark) for line in lines[first + 1 :] if line.strip() and not _BORDER.fullmatch(line)]
    # Words between blanks alone are a sentence.
    return (mark is not None or bool(rows)) and _is_of_run(names, _Columns(rows[: _MOST_ROWS + 1]))


def _is_of_run(names: Sequence[str], columns: _Columns) -> bool:
    kinds = [words_of(name) for name in names]
    named = {n: found for n, words in enumerate(kinds) if (found := _metric(words))}
    if not named:
        return {name.lower() for name in names} == _OF_TENSORBOARD
    metrics = [found for n, found in named.items() if columns.are_numbers(n)]
    has_steps = any(_counts(words, _STEPS) and columns.are_numbers(n) for n, words in enumerate(kinds))
    if not metrics or has_steps:
        return bool(metrics)
    if len(set(metrics)) > 1:
        is_running = any(_counts(words, _COUNTS) and columns.grow(n) for n, words in enumerate(kinds))
        if is_running or not _NORMS.isdisjoint(metrics):
            return True
    is_history = not kinds[0] and len(metrics) > 1 and columns.grow(0)
    return is_history and all(map(columns.are_numbers, range(len(names))))


class _Columns:
    """The first rows of a table, by column."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._rows = rows

    def are_numbers(self, column: int) -> bool:
        """Whether a column has numbers and no other text; a table without rows has what its names say."""
        found = [row[column] for row in self._complete(column)]
        given = [cell for cell in found if cell.lower() not in _NO_VALUE]
        return not self._rows or (bool(found) and all(map(_NUMBER.fullmatch, given)) and bool(given or found))

    def grow(self, column: int) -> bool:
        """Whether a column has numbers that never fall, and are not all the same."""
        cells = [row[column] for row in self._complete(column)]
        if not all(map(_NUMBER.fullmatch, cells)):
            return False
        numbers = [float(cell.replace("_", "").replace(",", ".").rstrip("%")) for cell in cells]
        return sorted(numbers) == numbers and numbers[:1] < numbers[-1:]

    def _complete(self, column: int) -> Iterable[Sequence[str]]:
        """The rows that have the column; the last line of a start that was cut may lack it."""
        return islice((row for row in self._rows if len(row) > column), _MOST_ROWS)


def _text(content: bytes) -> str:
    code = next((code for mark, code in _WIDE.items() if content.startswith(mark)), "utf-8")
    return content.decode(code, "replace").removeprefix(_ORDER_MARK)


def _is_of_table(line: str) -> bool:
    bare = line.strip()
    return (
        bool(bare) and not bare.startswith("#") and not bare.lower().startswith("sep=") and not _BORDER.fullmatch(bare)
    )


def _cells(line: str, separator: str | None) -> list[str]:
    """The cells of a line; those between blanks where there is no separator."""
    bare = line.strip("\r\n")
    if separator == "|":
        bare = bare.strip().strip("|")
    return [cell.strip("'\" \r") for cell in bare.split(separator)]


def words_of(name: str) -> tuple[str, ...]:
    """The words that the name of a column or key is made of, in small letters."""
    return tuple(_WORD.findall(_HUMP.sub(" ", name).lower()))


def _metric(words: tuple[str, ...]) -> tuple[str, ...]:
    """The metric that a column is named after; empty for others. All losses are one."""
    for metric in _METRICS:
        if any(words[n : n + len(metric)] == metric for n in range(len(words))):
            return ("loss",) if metric[0] in _LOSS else metric
    return ()


def _counts(words: tuple[str, ...], counted: frozenset[str]) -> bool:
    """Whether a column is named after what is counted alone, such as `trainer/global_step`."""
    rest = [word for word in words if word not in _BEFORE_COUNT | _AFTER_COUNT]
    return len(rest) == 1 and rest[0] in counted
