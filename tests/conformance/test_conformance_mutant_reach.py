"""What a scenario cannot meet is left out, and nothing else: changes that are no functions are met everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conformance_stacks import scenario
from trainspec_conformance.reading import all_scenarios

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "conformance" / "mutants"))

from concurrent.futures import ThreadPoolExecutor  # noqa: E402

import honest  # noqa: E402
import reach  # noqa: E402
import runs  # noqa: E402
import score  # noqa: E402
from entries import Notes, entered, watch  # noqa: E402
from outcomes import Outcome, sources_digest  # noqa: E402
from reach import Reach  # noqa: E402
from registry import Mutant, all_mutants  # noqa: E402
from shares import CALM  # noqa: E402

STATED = "trainspec_reference.common.restart_state:StateSource.checkpoint"
STEPPED = "trainspec_reference.common.trainer:Trainer._between_steps"
SIZED = "trainspec_validate.performance.costs.elastic:data_degrees"
REGROUPED = "trainspec_reference.common.recovery:Recovery._after"
PROPERTY = "trainspec_reference.common.watch:Watch.timeout_seconds"
EXCHANGED = "trainspec_conformance.testbed.plain.exchange:Exchange.total"


@pytest.fixture(scope="module")
def replaced() -> dict[str, list[str] | None]:
    """What is seen of each trap, in a process that has loaded what a mutant's has and no more."""
    done = subprocess.run(
        [sys.executable, HERE / "mutant_traps.py"], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


SEEN = {
    "property_of_a_class": ["trainspec_reference.common.watch:Watch.is_stalled"],
    "imported_name": ["trainspec_reference.common.telemetry:shares"],
    "own_function": ["trainspec_reference.common.batch_schedule:fitted"],
    "several_functions": [
        "trainspec_conformance.testbed.plain.backend:PlainBackend.update",
        "trainspec_reference.common.channel:Link.say",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_a_function_that_is_replaced_is_told_at_its_attribute(name: str, replaced: dict[str, Any]) -> None:
    assert replaced[name] == SEEN[name]


@pytest.mark.slow
def test_any_other_change_is_met_by_every_scenario(replaced: dict[str, Any]) -> None:
    others = {name: found for name, found in replaced.items() if name not in SEEN}
    assert len(others) == 11
    assert others == dict.fromkeys(others)


def _known(**of: tuple[str, ...] | None) -> Reach:
    return Reach(sources_digest(), of)


def test_a_scenario_is_left_out_only_where_it_was_passed_without_entering_what_is_replaced() -> None:
    known = _known(one=("m:f", "m:g"), other=None)
    one, other = (Mutant(name, "", "") for name in ("one", "other"))
    known.add("near", Outcome("pass"), {"m:g"})
    known.add("far", Outcome("pass"), {"m:h"})
    known.add("failed", Outcome("fail", "no"), set())
    known.add("cannot", Outcome("unsupported", "no"), set())
    names = ["near", "far", "failed", "cannot", "unknown"]
    assert [name for name in names if not known.meets(one, name)] == ["far"]
    assert all(known.meets(other, name) for name in names)
    assert known.failed == {"failed": "no"}


def test_own_scenario_and_calm_run_are_never_left_out() -> None:
    one = all_mutants()["powers-of-two"]
    known = _known(**{one.name: ("m:f",)})
    for name in all_scenarios():
        known.add(name, Outcome("pass"), set())
    assert [found.metadata.name for found in score.chosen_for(one, known, everything=True)] == ["elastic-sizes", CALM]
    assert len(score.chosen_for(one, None, everything=True)) == len(all_scenarios())


def test_what_a_mutant_may_fail_with_a_reason_is_left_out() -> None:
    one = all_mutants()["false-alarm"]
    known = _known(**{one.name: ("m:f",)})
    for name in all_scenarios():
        known.add(name, Outcome("pass"), {"m:f"})
    asked = {found.requirement for found in score.chosen_for(one, known, everything=True)}
    assert one.also
    assert asked == {found.requirement for found in all_scenarios().values()} - one.also.keys()


def test_what_was_failed_is_not_kept_and_a_changed_source_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = _known(one=("m:f",))
    known.add("passed", Outcome("pass"), {"m:f"})
    known.add("failed", Outcome("fail", "no"), set())
    known.write(tmp_path)
    again = reach.read(tmp_path, [])
    assert again.outcomes == {"passed": Outcome("pass")}
    assert again.entered == {"passed": ("m:f",)}
    monkeypatch.setattr(reach, "sources_digest", lambda: "0" * 64)
    assert not reach.read(tmp_path, []).outcomes


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A module, and one that has imported a name from it."""
    one, other = ModuleType("watched_one"), ModuleType("watched_other")
    source = """
class Base:
    def __init__(self): self._size = 1
    @property
    def size(self):
        "How large."
        return self._size
    @size.setter
    def size(self, value): self._size = value
    @staticmethod
    def fixed(value=2): return value
    @classmethod
    def named(cls): return cls.__name__
    def parts(self):
        yield self.size
class Derived(Base): pass
def plain(*values, **more):
    "Its text."
    if not values: raise ValueError("none")
    return values, more
"""
    exec(source, vars(one))
    vars(other)["plain"] = vars(one)["plain"]
    monkeypatch.setitem(sys.modules, "watched_one", one)
    monkeypatch.setitem(sys.modules, "watched_other", other)
    return one, other


def test_what_is_watched_behaves_as_before(modules: tuple[Any, Any]) -> None:
    one, other = modules
    inner = ("size", "fixed", "named", "parts")
    noted: list[str] = []
    watch([*(f"watched_one:Base.{name}" for name in inner), "watched_one:plain"], noted.append)
    derived = one.Derived()
    assert other.plain(1) == ((1,), {})
    assert not noted, "the name in the other module is another attribute"
    derived.size = 5
    assert noted == ["watched_one:Base.size"]
    assert (derived.size, list(derived.parts()), one.Derived.named(), derived.fixed()) == (5, [5], "Derived", 2)
    assert one.plain(1, two=2) == ((1,), {"two": 2})
    with pytest.raises(ValueError, match="none"):
        one.plain()
    assert set(noted) == {*(f"watched_one:Base.{name}" for name in inner), "watched_one:plain"}
    assert (one.plain.__name__, one.plain.__doc__, one.Base.size.__doc__) == ("plain", "Its text.", "How large.")


def test_a_name_is_noted_once_for_each_process_and_before_the_function_runs(
    modules: tuple[Any, Any], tmp_path: Path
) -> None:
    path = tmp_path / "entered"
    assert entered(path) == set()
    for notes in (Notes(path), Notes(path)):
        notes("m:f")
        notes("m:f")
    assert path.read_text() == "m:f\n" * 2
    watch(["watched_one:plain"], Notes(path))
    with pytest.raises(ValueError, match="none"):
        modules[0].plain()
    assert entered(path) == {"m:f", "watched_one:plain"}


def _honest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> Reach:
    """What the stack without a lie enters in short forms of scenarios."""
    monkeypatch.setattr(honest, "LEAST_TRIALS", 1)
    results = tmp_path / "results"
    watched = (STATED, STEPPED, SIZED, REGROUPED, PROPERTY, EXCHANGED)
    _known(all=watched, stated=(STATED,), regrouped=(REGROUPED,)).write(results)
    with ThreadPoolExecutor(1) as pool:
        found = honest.honest_reach([], map(scenario, names), tmp_path / "runs", results, pool)
        again = honest.honest_reach([], map(scenario, names), tmp_path / "none", results, pool)
    assert not found.failed
    assert again.entered == found.entered
    assert not [path for path in (tmp_path / "runs" / "honest").iterdir() if path.is_dir()]
    return found


@pytest.mark.slow
def test_the_stack_without_a_lie_passes_and_tells_what_controller_workers_and_probes_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _honest(tmp_path, monkeypatch, CALM, "elastic-sizes")
    assert {STATED, STEPPED} <= set(found.entered[CALM])
    assert found.entered["elastic-sizes"] == (SIZED,)
    assert REGROUPED not in found.entered[CALM]
    assert found.meets(Mutant("stated", "", ""), CALM)
    assert not found.meets(Mutant("regrouped", "", ""), CALM)


def test_what_the_stack_without_a_lie_failed_beside_others_it_repeats_once_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ran(one: Any, *_: object) -> tuple[Outcome, set[str]]:
        asked.append(one.metadata.name)
        is_first = asked.count("kill-rank") < 2
        is_failed = one.metadata.name == "kill-host" or (one.metadata.name == "kill-rank" and is_first)
        return (Outcome("fail", "late"), set()) if is_failed else (Outcome("pass"), {"m:f"})

    monkeypatch.setattr(honest, "_run", ran)
    _known(one=("m:f",)).write(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        found = honest.honest_reach([], map(scenario, ["kill-rank", "kill-host", CALM]), tmp_path, tmp_path, pool)
    assert asked == ["kill-rank", "kill-host", CALM, "kill-rank", "kill-host"]
    assert found.failed == {"kill-host": "late"}
    assert found.entered["kill-rank"] == ("m:f",)


@pytest.mark.long
def test_ranks_that_a_probe_starts_tell_what_they_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXCHANGED in _honest(tmp_path, monkeypatch, "accumulation").entered["accumulation"]


@pytest.mark.parametrize(("state", "status"), [("pass", 0), ("fail", 1)])
def test_the_table_says_what_was_left_out_and_fails_where_the_stack_without_a_lie_did(
    state: Any, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = _known(**{"false-alarm": ("m:f",)})
    for name in all_scenarios():
        known.add(name, Outcome("pass"), set())
    known.add("reshard", Outcome(state, "why"), set())

    def outcome(_: object, met: Any) -> Outcome:
        return Outcome("fail" if met.metadata.name == CALM else "pass", "quiet: no")

    monkeypatch.setattr(sys, "argv", ["score.py", "--all", "false-alarm"])
    monkeypatch.setattr(score, "honest_reach", lambda *_: known)
    monkeypatch.setattr(score.Runs, "outcome", outcome)
    assert score.main() == status
    out = capsys.readouterr().out
    num_run = 1 + (state == "fail")
    assert f"{len(all_scenarios()) - num_run} of {len(all_scenarios())} runs left out" in out
    assert ("FAILED by the stack without a defect: reshard: why" in out) == bool(status)


@pytest.mark.parametrize(("jobs", "times", "status"), [(2, 1, 0), (2, 2, 1), (1, 1, 1)])
def test_what_was_wrong_beside_other_mutants_is_run_once_more(
    jobs: int, times: int, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def outcome(_: object, met: Any) -> Outcome:
        name = met.metadata.name
        asked.append(name)
        late = name == "data-stall" and asked.count(name) <= times
        return Outcome("fail" if late or name == CALM else "pass", "why")

    monkeypatch.setattr(sys, "argv", ["score.py", "--all", "--unreached", f"--jobs={jobs}", "false-alarm"])
    known = _known()
    for name in all_scenarios():
        known.add(name, Outcome("pass"), set())
    monkeypatch.setattr(score, "honest_reach", lambda *_: known)
    monkeypatch.setattr(score.Runs, "outcome", outcome)
    assert score.main() == status
    assert len(asked) == len(all_scenarios()) + (jobs > 1)
    assert ("in addition, without a reason: TS-CNF-221: why" in capsys.readouterr().out) == bool(status)


def test_a_mutant_that_survives_gets_no_second_chance(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def outcome(_: object, met: Any) -> Outcome:
        asked.append(met.metadata.name)
        return Outcome("pass" if asked.count(met.metadata.name) < 2 else "fail", "why")

    monkeypatch.setattr(sys, "argv", ["score.py", "--jobs=2", "false-alarm"])
    monkeypatch.setattr(score.Runs, "outcome", outcome)
    assert score.main() == 1
    assert asked == [CALM]
    assert "SURVIVED" in capsys.readouterr().out


@pytest.mark.parametrize(("requirement", "trials"), [("TS-CNF-108", 5), ("TS-CNF-101", 1)])
def test_only_a_stack_that_is_to_fail_runs_again_and_again(
    requirement: str, trials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def run(order: Any, _: object) -> list[Any]:
        asked.append(order.num_trials)
        return [SimpleNamespace(state="pass", trials=(), reason="")]

    monkeypatch.setattr(runs, "run_suite", run)
    runs.Runs(Mutant("false-alarm", "", requirement), tmp_path).outcome(scenario("kill-in-save"))
    assert asked == [trials]
