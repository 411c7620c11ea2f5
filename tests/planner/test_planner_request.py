"""What a planner is asked for: the assumptions that it makes, and what it refuses before a search."""

from __future__ import annotations

import msgspec
import pytest

from tests.planner_makers import make, model, profile
from trainspec_validate.documents.types import ClusterProfile, changed
from trainspec_validate.planner.request import Impossible, Request, Wishes, request
from trainspec_validate.planner.search import search
from trainspec_validate.planner.space import Goal, even_split, layouts

put = msgspec.structs.replace


def alone(num_domain: int | None = None) -> ClusterProfile:
    """A cluster whose nodes nothing joins, with domains of a size inside them."""
    cluster = profile("gcp-a3-ultra-h200")
    group = put(cluster.node_groups[0], nics=())
    if num_domain and group.scale_up:
        group = put(group, scale_up=put(group.scale_up, domain_num_accelerators=num_domain))
    return put(cluster, fabrics=(), node_groups=(group,))


def test_ranks_that_nothing_joins_are_refused() -> None:
    with pytest.raises(Impossible, match="ask for 8 ranks at most"):
        request(alone(), model("llama3-8b"), Wishes(num_ranks=16))
    assert search(request(alone(), model("llama3-8b"), Wishes(num_ranks=8)).goal, 1).best


@pytest.mark.slow
def test_domains_of_one_node_talk_over_its_host() -> None:
    asked = request(alone(2), model("llama3-8b"), Wishes(num_ranks=8))
    best = search(asked.goal, 1).best[0]
    whole = search(request(alone(), model("llama3-8b"), Wishes(num_ranks=8)).goal, 1).best[0]
    assert best.choice.layout.tensor <= 2
    assert best.seconds >= whole.seconds


def test_a_reserve_of_all_memory_is_refused() -> None:
    with pytest.raises(Impossible, match=r"a reserve of 200 GB leaves nothing of 150\.8 GB"):
        make("gcp-a3-ultra-h200", "llama3-8b", reserve_bytes=200e9)


@pytest.mark.parametrize(
    ("key", "value"), [("num_ranks", 0), ("global_sequences", 0), ("sequence_length", 0), ("reserve_bytes", -1.0)]
)
def test_a_goal_has_a_rank_and_a_token(key: str, value: float) -> None:
    goal = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=8).goal
    fields = {name: getattr(goal, name) for name in goal.__dataclass_fields__}
    with pytest.raises(ValueError, match=r"a job has a rank|a reserve of"):
        Goal(**{**fields, key: value})


@pytest.mark.parametrize("num_ranks", [1, 3, 6, 8, 24, 40, 56, 64])
def test_the_usual_batch_divides_over_the_ranks(num_ranks: int) -> None:
    asked = make("gcp-a3-ultra-h200", "llama2-7b", num_ranks=num_ranks)
    sequences = asked.goal.global_sequences
    odd = num_ranks // (num_ranks & -num_ranks)
    assert sequences % odd == 0
    rest = sequences // odd
    assert rest & (rest - 1) == 0
    assert next(layouts(asked.goal), None) is not None


def test_a_batch_is_near_four_million_tokens_where_steps_stay_short() -> None:
    asked = make("meta-llama3-24k", "llama3-8b", num_ranks=64)
    # 64 H100 do 64 x 989e12 x 0.25 x 15 s / (6 x 8.03e9) = 4.9e6 tokens: more than the customary 2**22.
    assert asked.goal.global_sequences * asked.goal.sequence_length == 2**22
    assert any("near what published runs of this size use" in words for words in asked.assumptions)
    few = make("meta-llama3-24k", "llama3-8b", num_ranks=8)
    # An eighth of that, 616e3 tokens, is nearest to 2**19.
    assert few.goal.global_sequences * few.goal.sequence_length == 2**19
    assert any("no more than about 15 s" in words for words in few.assumptions)


def test_the_usual_length_is_twenty_tokens_a_parameter_or_a_year() -> None:
    long = make("meta-llama3-24k", "llama3-8b", num_ranks=512)
    assert long.num_tokens == pytest.approx(20 * 8.03e9)
    short = make("meta-llama3-24k", "llama3-405b", num_ranks=512)
    year = 365 * 86400 * 0.25 * 512 * 989e12 / (6 * 405.9e9)
    assert short.num_tokens == pytest.approx(year, rel=0.01)
    assert any("what a year is enough for" in words for words in short.assumptions)
    routed = make("coreweave-gb200", "qwen3-30b-a3b", num_ranks=64)
    assert routed.num_tokens == pytest.approx(20 * 3.3e9, rel=0.05)


def test_what_is_asked_for_is_no_assumption() -> None:
    asked = make("gcp-a3-ultra-h200", "llama3-8b", num_tokens=1e12, global_sequences=64, sequence_length=2048)
    assert asked.assumptions == ()
    assert (asked.num_tokens, asked.goal.global_sequences, asked.goal.sequence_length) == (1e12, 64, 2048)
    assert asked.model.sequence_length == 2048
    assert asked.goal.num_ranks == 64


def test_one_of_several_groups_has_to_be_named() -> None:
    cluster = profile("gcp-a3-ultra-h200")
    group = cluster.node_groups[0]
    several = put(cluster, node_groups=(put(group, name="small", num_nodes=2), group, put(group, name="third")))
    with pytest.raises(Impossible, match=f"has several node groups; choose with --node-group: small, {group.name}, th"):
        request(several, model("llama3-8b"), Wishes())
    with pytest.raises(Impossible, match=f"no node group 'west'; choose with --node-group: small, {group.name}, third"):
        request(several, model("llama3-8b"), Wishes(node_group="west"))


def test_several_fabrics_are_not_guessed() -> None:
    cluster = profile("gcp-a3-ultra-h200")
    group, fabric = cluster.node_groups[0], cluster.fabrics[0]
    two = put(cluster, node_groups=(group, put(group, name="other")))
    assert request(two, model("llama3-8b"), Wishes(node_group="other")).nodes.index == 1
    nics = (*group.nics, put(group.nics[0], name="more", fabric="second"))
    forked = put(cluster, fabrics=(*cluster.fabrics, put(fabric, name="second")), node_groups=(put(group, nics=nics),))
    with pytest.raises(Impossible, match="on several fabrics"):
        request(forked, model("llama3-8b"), Wishes())
    with pytest.raises(Impossible, match="has no sequence length"):
        request(cluster, changed(model("llama3-8b"), sequence_length=None), Wishes())


def test_a_vocabulary_that_nobody_padded_is_told() -> None:
    cluster = profile("gcp-a3-ultra-h200")

    def told(vocabulary_size: int) -> tuple[set[int], list[str]]:
        asked = request(cluster, changed(model("llama3-8b"), vocabulary_size=vocabulary_size), Wishes(num_ranks=8))
        return {layout.tensor for layout in layouts(asked.goal)}, [x for x in asked.assumptions if "vocabulary" in x]

    degrees, words = told(50_257)
    assert degrees == {1}
    assert words == ["tensor: 1, since ranks cannot divide a vocabulary of 50,257; pad it to 50,304"]
    degrees, words = told(50_304)
    assert degrees == {1, 2, 4, 8}
    assert not words


def test_layers_beyond_any_model_are_refused() -> None:
    deep = changed(model("llama3-8b"), num_layers=10_001, num_parameters=10**12)
    with pytest.raises(Impossible, match="has 10,001 layers; at most 10,000 are planned for"):
        request(profile("gcp-a3-ultra-h200"), deep, Wishes(num_ranks=8))


def test_num_nodes_is_rounded_up() -> None:
    def nodes(num_ranks: int) -> int:
        asked: Request = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=num_ranks)
        return asked.num_nodes

    assert [nodes(count) for count in (1, 8, 16, 24)] == [1, 1, 2, 3]


def test_a_split_is_given_up_where_layers_are_too_few() -> None:
    assert even_split(6, 8) == (0, 1, 1, 1, 1, 1, 1, 0)
    with pytest.raises(ValueError, match="6 layers cannot fill 9 chunks"):
        even_split(6, 9)
