"""What is offered in place of an unknown word."""

import pytest

from trainspec_validate.model.suggest import did_you_mean, hint

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
