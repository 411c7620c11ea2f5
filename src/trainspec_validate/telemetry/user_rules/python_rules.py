"""Runs a Python file of rules, and only one that the command line names."""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from trainspec_validate.checking.registry import NotApplicable
from trainspec_validate.documents.types import part
from trainspec_validate.documents.types.user_rules import DEFAULT_LIMIT, UserRule
from trainspec_validate.system.process import Terminated
from trainspec_validate.telemetry.user_rules.messages import STRAY_BRACE, stray_brace
from trainspec_validate.telemetry.user_rules.model import Query, Rule, RuleError, Tables

if TYPE_CHECKING:
    import narwhals as nw


@dataclass(frozen=True, slots=True)
class Written:
    """A function that is a rule; calling it calls the function."""

    rule: Rule
    function: Query

    def __call__(self, tables: Tables) -> nw.LazyFrame[Any]:
        """What the function returns."""
        return self.function(tables)


def rule(  # noqa: PLR0913
    *,
    id: str,  # noqa: A002
    level: Literal["MUST", "SHOULD", "MAY"],
    title: str,
    message: str,
    metrics: Iterable[str] = (),
    events: Iterable[str] = (),
    name: str | None = None,
    help: str = "",  # noqa: A002
    url: str = "",
    limit: int = DEFAULT_LIMIT,
) -> Callable[[Query], Written]:
    """Make a rule of a function that takes the tables of the runs and returns the rows that are wrong.

    `metrics` and `events` are what the rule is about: where none of them occurs it is not applicable. The other values
    are those of a rule in YAML.

    Raises:
        ValueError: a value is not of its form, or neither `metrics` nor `events` is given.
    """
    needed = _needed(id, metrics, events)
    form = {"id": id, "title": title, "level": level, "message": message, "limit": limit}
    form |= {key: value for key, value in (("name", name), ("help", help), ("url", url)) if value}
    part(UserRule, {**form, "table": "samples", "select": True, "report": True})
    if stray_brace(message):
        raise ValueError(f"{id}: {STRAY_BRACE}")

    def register(function: Query) -> Written:
        def query(tables: Tables) -> nw.LazyFrame[Any]:
            if not (needed[0] & tables.metrics or needed[1] & tables.event_names):
                raise NotApplicable(f"no record of {', '.join(sorted(needed[0] | needed[1]))}")
            return function(tables)

        line: int = function.__code__.co_firstlineno
        made = Rule(id, name or id.lower(), title, level, message, query, "", line, help, url, limit)
        return Written(made, function)

    return register


def _needed(rule_id: str, metrics: Iterable[str], events: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    found = frozenset(metrics), frozenset(events)
    if not any(found):
        raise ValueError(
            f"{rule_id}: name the metrics or the events that the rule is about; missing input never yields a pass"
        )
    return found


def read_python(path: Path) -> Iterator[Rule]:
    """Run a file, and give the rules that it makes.

    Raises:
        RuleError: it cannot be read or run, or makes no rule.
    """
    module = _run(path)
    found = [each for each in vars(module).values() if isinstance(each, Written)]
    own = [each.rule for each in found if getattr(each.function, "__module__", "") == module.__name__]
    if not own:
        raise RuleError(path.as_posix(), 1, "", "the file makes no rule; mark a function with @rule(...)")
    return (replace(each, path=path.as_posix()) for each in own)


def _run(path: Path) -> ModuleType:
    name = path.as_posix()
    spec = importlib.util.spec_from_file_location(f"rules_of_{abs(hash(name)):x}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise RuleError(name, 1, "", "the file cannot be read; check the path and its permissions")
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with foreign_code(lambda error: RuleError(name, line_in(error, path) or 1, "", in_words(error))):
            spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


@contextmanager
def foreign_code(told: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Run code of a user: whatever it raises becomes `told(error)`, also what would end the process.

    A signal that ends the process still does.
    """
    try:
        with _interrupts_apart():
            yield
    except (NotApplicable, RuleError, Terminated):
        raise
    except BaseException as error:
        raise told(error) from error


@contextmanager
def _interrupts_apart() -> Iterator[None]:
    """Inside, an interrupt from the keyboard is a `Terminated`, and a `KeyboardInterrupt` is raised by code alone."""
    is_usual = threading.current_thread() is threading.main_thread()
    is_usual = is_usual and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def end(number: int, _: FrameType | None) -> None:
        raise Terminated(number)

    if is_usual:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def line_in(error: BaseException, path: Path | str) -> int | None:
    """Line of a file that an exception came through last; None where it did not."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    here = Path(path).resolve()
    return next((frame.lineno for frame in reversed(frames) if Path(frame.filename).resolve() == here), None)


def in_words(error: BaseException) -> str:
    """Text of an exception, in one line."""
    try:
        text = " ".join(str(error).split())[:300]
    except BaseException:  # the class of the error may be of the user, too
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
