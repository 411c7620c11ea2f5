"""Whatever a script calls, in whatever order and with whatever values: nothing is raised, and each line is a record."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

import trainspec_record
from tests.examples import examples
from trainspec_record.catalog import EVENTS, METRICS
from trainspec_record.progress import COUNTED, GAUGES
from trainspec_record.rank import COUNTED as OF_RANK
from trainspec_record.rank import PHASES
from trainspec_record.recording import Run

from .recorded import records


class Tensor:
    """A value that can only be read by waiting for a device."""

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken

    def item(self) -> float:
        if self.broken:
            raise RuntimeError("device lost")
        return 1.5

    def __float__(self) -> float:
        raise AssertionError("the recorder read a tensor")


ANYTHING = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=5)),
    *(st.builds(Tensor, st.booleans()), st.builds(object), st.just(10**400), st.just(1j)),
    st.lists(st.one_of(st.floats(), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = st.one_of(st.sampled_from(list(EVENTS)), st.sampled_from(["train.loss.spike", "train.no_event"]), ANYTHING)
KEYS = st.one_of(
    st.sampled_from(list(METRICS)), st.just("train.token.count{train.token.kind=all}"), st.text(max_size=20)
)
WORDS = st.dictionaries(
    st.sampled_from([*GAUGES, *COUNTED, *OF_RANK, "skipped", "active_ranks", "no_word", "synchronise"]),
    ANYTHING,
    max_size=4,
)
SPANS = ("step", "phase", "evaluation", "checkpoint", "restore", "fault")
ARGUMENTS = st.one_of(
    st.just(()), st.tuples(ANYTHING), st.tuples(st.sampled_from(PHASES)), st.tuples(ANYTHING, st.integers(-5, 50))
)
CALLS = st.one_of(
    st.tuples(st.just("log"), st.tuples(st.dictionaries(KEYS, ANYTHING, max_size=3)), WORDS),
    st.tuples(st.just("log"), st.just(()), WORDS),
    st.tuples(st.just("event"), st.tuples(NAMES, st.dictionaries(KEYS, ANYTHING, max_size=3)), st.just({})),
    st.tuples(
        st.just("event"),
        st.tuples(NAMES),
        st.fixed_dictionaries({"values": st.dictionaries(KEYS, ANYTHING, max_size=3)}),
    ),
    st.tuples(st.just("event"), st.tuples(NAMES), st.fixed_dictionaries({"identifier": ANYTHING})),
    st.tuples(st.just("warm_up_again"), st.tuples(ANYTHING), st.just({})),
    st.tuples(st.just("flush"), st.tuples(st.sampled_from([0, -1, 0.01])), st.just({})),
    st.tuples(st.sampled_from(SPANS), ARGUMENTS, st.just({})),
    st.tuples(st.just("checkpoint"), st.just(()), st.fixed_dictionaries({"asynchronous": st.booleans()})),
    st.tuples(st.sampled_from(["enter", "exit", "fail_exit", "commit", "fail", "losses"]), st.just(()), st.just({})),
    st.tuples(st.just("end"), st.tuples(st.sampled_from(["completed", "preempted", "fault", 7])), st.just({})),
    st.tuples(st.just("no_such"), st.just(()), st.just({})),
)
SETTINGS = st.dictionaries(st.sampled_from(["report_interval_steps", "world_size", "no_setting"]), st.integers(1, 8))


def play(run: Any, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> None:
    """Make the calls; blocks are entered, left and used in any order."""
    spans: list[Any] = []
    for name, positional, named in calls:
        if name == "no_such":
            continue
        if name in {"enter", "exit", "fail_exit", "commit", "fail", "losses"}:
            if spans:
                use(spans[-1], name)
        else:
            found = getattr(run, name)(*positional, **named)
            spans += [found, found] if name in SPANS else []
            if name in SPANS:
                found.__enter__()


def use(span: Any, how: str) -> None:
    if how == "enter":
        span.__enter__()
    elif how == "exit":
        span.__exit__(None, None, None)
    elif how == "fail_exit":
        span.__exit__(ValueError, ValueError("secret"), None)
    elif how == "losses" and hasattr(span, "log"):
        span.log(math.nan, other="x")
    elif how in {"commit", "fail"} and hasattr(span, how):
        getattr(span, how)()


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=25), told=SETTINGS)
@example(calls=[("event", ("train.run.start",), {"values": {"train.step.count": {}}})], told={})
def test_no_call_raises_and_every_line_is_a_record(
    calls: list[Any], told: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setenv("TRAINSPEC_RUN", f"{place}/r-1")
        run = trainspec_record.run(**told)
        assert isinstance(run, Run)
        play(run, calls)
        run.end()
        assert not run.is_active
        files = list((Path(place) / "r-1").iterdir())
        assert {path.name for path in files} == {"job.0.jsonl", "rank-000000.0.jsonl"}
        for path in files:
            assert b"secret" not in path.read_bytes()
            records(path)


@examples(100)
@given(calls=st.lists(CALLS, max_size=25))
def test_the_silent_run_takes_the_same_calls(calls: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRAINSPEC_RUN", raising=False)
        silent = trainspec_record.run()
        play(silent, calls)
        assert not silent.is_active


def test_a_tensor_is_read_only_where_the_script_asks(folder: Path) -> None:
    with trainspec_record.run() as run:
        with run.step(0):
            run.log(loss=Tensor(), gradient_norm=Tensor(broken=True))
        with run.step(1):
            run.log(loss=Tensor(), synchronise=True)
    losses = [
        r["m"].get("train.loss.mean{train.loss.name=total}") for r in records(folder / "job.0.jsonl")[1:] if "m" in r
    ]
    assert [loss for loss in losses if loss is not None] == [1.5]


def test_errors_of_the_script_pass_through(folder: Path) -> None:
    with trainspec_record.run() as run:
        for block in (run.step(0), run.evaluation(), run.checkpoint(), run.phase("optimizer"), run.fault()):
            with pytest.raises(ZeroDivisionError), block:
                raise ZeroDivisionError
    names = [record.get("name") for record in records(folder / "job.0.jsonl")]
    assert "train.checkpoint.fail" in names


@pytest.mark.parametrize("number", [10**12, 10**12 - 1, 2**63, 10**400, -(10**400)], ids=range(5))
def test_no_number_of_an_update_is_beyond_what_a_record_holds(number: int, folder: Path) -> None:
    with trainspec_record.run() as run:
        with run.restore("far", number):
            pass
        for each in (number, number + 1):
            with run.step(each):
                run.log(loss=1.0)
        with run.checkpoint():
            pass
    assert [records(path) for path in folder.iterdir()]
