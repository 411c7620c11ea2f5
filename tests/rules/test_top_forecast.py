"""The order of axes and of hosts by prediction, and NICs of single nodes."""

from __future__ import annotations

from typing import Any

import pytest
from predicted_documents import EXAMPLES, cluster, places, plan, violations

from trainspec_validate.rules import NotApplicable
from trainspec_validate.rules._forecast import prediction_of, rank_order_seconds

ORDER = ("parallelism", "order")
LLAMA = EXAMPLES / "plans" / "llama3-405b-16384.yaml"
META = EXAMPLES / "clusters" / "meta-llama3-24k.yaml"


def ordered(*axes: str, **keys: Any) -> dict[str, Any]:
    return {"parallelism": {"order": list(axes), "placements": [], **keys}}


@pytest.mark.parametrize(
    ("order", "slow"),
    [
        (("tensor", "data", "pipeline"), False),
        (("tensor", "pipeline", "data"), False),
        (("data", "tensor", "pipeline"), True),
        (("pipeline", "tensor", "data"), True),
        (("data", "pipeline", "tensor"), True),
    ],
)
def test_orders_of_the_base_plan(order: tuple[str, ...], slow: bool) -> None:
    assert places("TS-TOP-024", plan(ordered(*order)), cluster()) == ([ORDER] if slow else [])


def test_the_finding_shows_both_orders_with_seconds_and_bytes() -> None:
    (found,) = violations("TS-TOP-024", plan(ordered("data", "tensor", "pipeline")), cluster())
    assert "with the order data, tensor, pipeline a step is predicted to take" in found.message
    assert "with tensor, " in found.message
    assert found.message.count(" GB") + found.message.count(" TB") == 2
    assert found.help.startswith("use order: [tensor, ")


def test_an_axis_with_a_reason_keeps_its_place() -> None:
    documents = ordered("data", "tensor", "pipeline")
    documents["parallelism"]["placements"] = [{"axis": "tensor", "within": "fabric", "reason": "a test of the fabric"}]
    assert places("TS-TOP-024", plan(documents), cluster()) == []
    documents["parallelism"]["placements"] = [
        {"axis": axis, "within": "fabric", "reason": "a test of the fabric"} for axis in ("tensor", "data")
    ]
    with pytest.raises(NotApplicable, match="fewer than two axes"):
        violations("TS-TOP-024", plan(documents), cluster())


def test_data_ranks_between_experts_are_found() -> None:
    """An all-to-all of every layer that leaves nodes, though its groups would fit into them."""
    model = {
        "family": "moe-transformer",
        "experts": {"num_experts": 64, "num_active_experts": 8, "ffn_hidden_size": 2048},
    }
    degrees = {"data": 32, "tensor": 1, "pipeline": 4, "expert": 8, "sequence": False}
    batch = {"accumulation_steps": 16}
    far = {"model": model, "batch": batch, **ordered("tensor", "data", "expert", "pipeline", **degrees)}
    near = {"model": model, "batch": batch, **ordered("tensor", "expert", "data", "pipeline", **degrees)}
    assert places("TS-TOP-024", plan(far), cluster()) == [ORDER]
    assert places("TS-TOP-024", plan(near), cluster()) == []


@pytest.mark.parametrize("name", ["llama3-405b-16384", "llama3-405b-131k", "llama3-405b-8192"])
def test_published_orders_pass(name: str) -> None:
    published = plan(path=EXAMPLES / "plans" / f"{name}.yaml")
    assert places("TS-TOP-024", published, cluster(path=META)) == []


def test_all_orders_of_five_axes_are_looked_at() -> None:
    model = {
        "family": "moe-transformer",
        "experts": {"num_experts": 64, "num_active_experts": 8, "ffn_hidden_size": 2048},
    }
    degrees = {"data": 8, "tensor": 4, "pipeline": 2, "context": 2, "expert": 8}
    inside_out = ordered("pipeline", "data", "expert", "context", "tensor", **degrees)
    documents = {"model": model, "batch": {"accumulation_steps": 64}, **inside_out}
    (found,) = violations("TS-TOP-024", plan(documents), cluster())
    assert found.help.startswith("use order: [tensor, ")
    assert "data, pipeline]" in found.help or "pipeline, data]" in found.help


def test_documents_that_contradict_themselves_are_not_predicted() -> None:
    with pytest.raises(NotApplicable, match="the batch is not"):
        prediction_of(plan({"batch": {"accumulation_steps": 1}}), cluster())
    with pytest.raises(NotApplicable, match="do not multiply"):
        prediction_of(plan({"parallelism": {"num_accelerators": 64}}), cluster())
    with pytest.raises(NotApplicable, match="of the family other"):
        prediction_of(plan({"model": {"family": "other"}}), cluster())


def test_several_rules_share_one_prediction_and_other_documents_have_their_own() -> None:
    first, second, where = plan(), plan({"batch": {"micro_sequences": 2, "accumulation_steps": 64}}), cluster()
    assert prediction_of(first, where) is prediction_of(first, where)
    assert prediction_of(first, where).outlook.step.seconds != prediction_of(second, where).outlook.step.seconds


def test_hosts_in_another_order_cost_seconds_where_tiers_are_narrow() -> None:
    published = plan({"parallelism": {"rank_order": "alphabetical"}}, LLAMA)
    times = rank_order_seconds(published, cluster(path=META))
    assert times is not None
    assert times[0] > 1.5 * times[1]
    (found,) = violations("TS-TOP-022", published, cluster(path=META))
    assert "a step is predicted to take" in found.message
    assert "in the order of the topology" in found.message


def test_hosts_in_another_order_are_found_where_nothing_is_predicted() -> None:
    published = plan({"parallelism": {"rank_order": "alphabetical"}, "model": {"family": "other"}}, LLAMA)
    (found,) = violations("TS-TOP-022", published, cluster(path=META))
    assert "predicted" not in found.message


def node(accelerators: list[int], nics: list[tuple[str, int, float | None]]) -> dict[str, Any]:
    return {
        "name": "n01",
        "group": "compute",
        "accelerators": [{"name": f"gpu{i}", "numa_node": numa} for i, numa in enumerate(accelerators)],
        "nics": [
            {"name": name, "numa_node": numa} | ({"rate_bytes_per_second": rate} if rate else {})
            for name, numa, rate in nics
        ],
    }


def rails(numa_nodes: list[int], rates: dict[int, float] | None = None) -> list[tuple[str, int, float | None]]:
    return [(f"mlx5_{i}", numa, (rates or {}).get(i)) for i, numa in enumerate(numa_nodes)]


EVEN = [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("nics", "words"),
    [
        (rails(EVEN), ""),
        (rails(EVEN, dict.fromkeys(range(8), 50e9)), ""),
        ([*rails(EVEN), ("mlx5_8", 0, 25e9)], ""),  # the NIC for storage is no part of it
        (rails([0]), ""),  # one NIC cannot be spread over two NUMA nodes
        (rails([0] * 8), "8 for 4 accelerators on NUMA node 0, 0 for 4 accelerators on NUMA node 1"),
        (rails([0] * 6 + [1] * 2), "6 for 4 accelerators on NUMA node 0, 2 for 4 accelerators on NUMA node 1"),
        (rails(EVEN, dict.fromkeys(range(7), 50e9) | {7: 25e9}), "carry 25 GB/s and 50 GB/s"),
    ],
)
def test_nics_of_a_node(nics: list[tuple[str, int, float | None]], words: str) -> None:
    found = violations("TS-TOP-025", cluster({"layout": {"nodes": [node(EVEN, nics)]}}))
    assert [one.place.pointer for one in found] == ([("layout", "nodes", 0, "nics")] if words else [])
    assert all(words in one.message for one in found)


def test_nodes_without_nics_are_not_judged() -> None:
    with pytest.raises(NotApplicable, match="no NICs"):
        violations("TS-TOP-025", cluster())
    with pytest.raises(NotApplicable, match="no NICs"):
        violations("TS-TOP-025", cluster({"layout": {"nodes": [node(EVEN, [])]}}))
