"""What is offered in place of an unknown word."""

from difflib import SequenceMatcher
from pathlib import Path

import pytest

from trainspec_validate.model import suggest
from trainspec_validate.model.suggest import did_you_mean, hint, one_run
from trainspec_validate.pipeline.validation import validate

KEYS = ["num_nodes", "num_accelerators", "interconnect", "kind"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("num_node", "num_nodes"),
        ("numNodes", "num_nodes"),
        ("NUM-NODES", "num_nodes"),
        ("interconect", "interconnect"),
        ("Kind", "kind"),
        ("", None),
        ("zebra", None),
        ("n" * 1_000_000, None),
    ],
)
def test_nearest_word(word: str, meant: str | None) -> None:
    assert did_you_mean(word, KEYS) == meant


def test_same_letters_win_over_similar_ones() -> None:
    assert did_you_mean("num-nodes", ["num_nodes_x", "num_nodez", "num_nodes"]) == "num_nodes"


def test_hint_lists_few_candidates_and_is_silent_about_many() -> None:
    assert hint("knd", KEYS) == "did you mean 'kind'?"
    assert hint("zebra", KEYS) == "one of: num_nodes, num_accelerators, interconnect, kind"
    assert hint("zebra", [f"key{i}" for i in range(13)]) == ""
    assert hint("zebra", []) == ""
    assert hint("kond", iter(KEYS)) == "did you mean 'kind'?"


def test_guesses_of_a_run_end_at_an_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suggest, "_MAX_LETTERS", 100_000)
    known = [f"cluster-of-team-{i}" for i in range(300)]
    with one_run():
        found = [did_you_mean(f"cluster-of-teax-{i}", known) for i in range(300)]
        assert found[:10] == known[:10]
        assert found[-1] is None
        assert did_you_mean("Cluster-Of-Team-7", known) == "cluster-of-team-7"
    assert did_you_mean("cluster-of-teax-299", known) == "cluster-of-team-299"


def test_unknown_ids_of_a_comment_cost_a_bounded_number_of_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_compared = 0
    ratio = SequenceMatcher.quick_ratio

    def counted(matcher: SequenceMatcher[str]) -> float:
        nonlocal num_compared
        num_compared += 1
        return ratio(matcher)

    monkeypatch.setattr(SequenceMatcher, "quick_ratio", counted)
    monkeypatch.setattr(suggest, "_MAX_LETTERS", 100_000)
    compared = []
    for num_ids in (100, 200):
        words = ",".join(f"TS-CLU-{9000 + i}" for i in range(num_ids))
        text = f"# trainspec: ignore-file[{words}] reason\napiVersion: trainspec/v1\nkind: ClusterProfile\n"
        (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
        num_compared = 0
        report = validate(str(tmp_path))
        told = [finding.help for finding in report.findings if finding.requirement == "TS-DOC-015"]
        assert (told[0] or "").startswith("did you mean 'TS-CLU-")
        assert len(told) == num_ids
        compared.append(num_compared)
    assert compared[0] == compared[1]
