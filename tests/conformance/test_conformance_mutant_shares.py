"""Shares of the mutants leave none out, own scenarios come first, and a run that was interrupted goes on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from trainspec_conformance.reading import all_scenarios

from tests.every import every

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "conformance" / "mutants"))

import outcomes  # noqa: E402
import score  # noqa: E402
from outcomes import Outcome, Results  # noqa: E402
from registry import all_mutants  # noqa: E402
from shares import CALM, Share, ordered  # noqa: E402

from trainspec_validate.documents.types.scenario import Scenario  # noqa: E402

NAMES = sorted(all_mutants())


@pytest.mark.parametrize("count", [1, 2, 7, 8, len(NAMES), len(NAMES) + 3])
def test_every_mutant_is_in_exactly_one_share(count: int) -> None:
    shares = [[one.name for one in Share(number, count).of(all_mutants().values())] for number in range(1, count + 1)]
    assert sorted(name for share in shares for name in share) == NAMES
    sizes = {len(share) for share in shares}
    assert max(sizes) - min(sizes) <= 1


def test_a_share_does_not_depend_on_the_order_in_which_mutants_are_registered() -> None:
    mutants = list(all_mutants().values())
    assert Share(2, 5).of(mutants) == Share(2, 5).of(reversed(mutants))


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="I/N"):
        Share.parse(text)


def test_a_share_is_read_from_its_text() -> None:
    assert Share.parse("2/8") == Share(2, 8)


@every("name", NAMES)
def test_a_mutant_meets_its_own_scenario_first_and_all_of_them_once(name: str) -> None:
    one = all_mutants()[name]
    found = ordered(one, all_scenarios().values())
    assert found[0].requirement == one.requirement
    assert CALM in {scenario.metadata.name for scenario in found[:2]}
    assert sorted(scenario.metadata.name for scenario in found) == sorted(all_scenarios())


def test_those_of_its_chapter_come_before_all_others() -> None:
    found = ordered(all_mutants()["predicts-state-alone"], all_scenarios().values())
    names = [scenario.metadata.name for scenario in found]
    assert names[:2] == ["memory-by-factor", CALM]
    assert set(names[2:5]) == {"kernel-floors", "steady-memory", "energy-counted"}


def test_a_run_that_was_interrupted_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, met = all_mutants()["false-alarm"], list[str]()
    scenarios = score.chosen_for(one, None, everything=True)

    def interrupted(_: object, scenario: Scenario) -> Outcome:
        name = scenario.metadata.name
        if len(met) == 3:
            raise KeyboardInterrupt
        met.append(name)
        return (
            Outcome("fail", "quiet: no") if name == CALM else Outcome("unsupported" if len(met) == 2 else "pass", "why")
        )

    monkeypatch.setattr(score.Runs, "outcome", interrupted)
    with pytest.raises(KeyboardInterrupt):
        score.score(one, tmp_path, scenarios)
    before = list(met)
    met.clear()
    with pytest.raises(KeyboardInterrupt):
        score.score(one, tmp_path, scenarios)
    assert len(before) == len(met) == 3
    assert not set(before) & set(met)
    monkeypatch.setattr(score.Runs, "outcome", lambda *_: Outcome("pass"))
    found = score.score(one, tmp_path, scenarios)
    assert found.is_caught
    assert found.failed == {one.requirement: "quiet: no"}
    assert list(found.not_run.values()) == ["why", "why"]


def test_results_count_while_no_source_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Results("one", outcomes.sources_digest(), {"kill-rank": Outcome("pass")})
    kept.write(tmp_path)
    assert outcomes.read(tmp_path, "one") == kept
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]
    assert not outcomes.read(tmp_path, "other").outcomes
    monkeypatch.setattr(outcomes, "sources_digest", lambda: "0" * 64)
    assert not outcomes.read(tmp_path, "one").outcomes


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"mutant": "one"}', b'{"mutant": "one", "sources": "", "outcomes": 3}']
)
def test_a_file_that_holds_no_results_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "one.json").write_bytes(content)
    assert outcomes.read(tmp_path, "one") == Results("one", outcomes.sources_digest())


def test_the_digest_is_that_of_names_and_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text("1")
    first = outcomes.digest_of(tmp_path.iterdir())
    (tmp_path / "notes.txt").write_text("1")
    assert outcomes.digest_of(tmp_path.iterdir()) == first
    (tmp_path / "a.py").write_text("2")
    assert outcomes.digest_of(tmp_path.iterdir()) != first
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    (tmp_path / "b.py").write_text("1")
    assert outcomes.digest_of(tmp_path.iterdir()) != first
