"""What a planner can choose: everything that fits the model and the ranks, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.planner_makers import Make
from trainspec_validate.performance.costs.transformer import Shape
from trainspec_validate.planner.space import MAX_IDLE_RATIO, divisors, even_split, imbalance, layouts, shardings


@given(st.integers(1, 100_000))
def test_divisors_are_all_of_them(value: int) -> None:
    assert divisors(value) == tuple(d for d in range(1, value + 1) if value % d == 0) or value > 3000
    assert all(value % d == 0 for d in divisors(value))
    assert list(divisors(value)) == sorted(set(divisors(value)))


@given(layers=st.integers(1, 200), chunks=st.integers(1, 64))
def test_a_split_adds_up_and_is_lightest_at_the_ends(layers: int, chunks: int) -> None:
    if chunks > layers + 2:
        return
    split = even_split(layers, chunks)
    if layers % chunks == 0:
        assert split == ()
        return
    assert len(split) == chunks
    assert sum(split) == layers
    assert max(split) - min(split) == 1
    assert split[-1] == min(split)


def test_the_output_counts_towards_the_last_stage() -> None:
    shape = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
    assert imbalance(shape, (), 1) == 1
    assert imbalance(shape, (), 4) > imbalance(shape, (9, 9, 8, 6), 4)


def test_layouts_divide_what_they_split(asked: Make) -> None:
    goal = asked("dgx-superpod-h100", "llama3-70b", num_ranks=256, global_sequences=256).goal
    found = list(layouts(goal))
    assert len(found) == len(set(found)) > 100
    for layout in found:
        assert layout.num_ranks == 256
        assert layout.data * layout.micro_sequences * layout.num_micro_batches == 256
        assert goal.model.shape.num_heads % layout.tensor == 0
        assert layout.tensor <= 8
        assert not layout.stage_layers or sum(layout.stage_layers) == 80
        if layout.pipeline > 1:
            idle = (layout.pipeline - 1) / layout.num_micro_batches / layout.num_virtual_stages
            assert idle <= MAX_IDLE_RATIO
        else:
            assert layout.schedule == "none"


def test_experts_divide_over_the_ranks_of_a_stage(asked: Make) -> None:
    goal = asked("coreweave-gb200", "qwen3-30b-a3b", num_ranks=64, global_sequences=128).goal
    found = list(layouts(goal))
    assert {layout.expert for layout in found} >= {1, 2, 4, 8}
    for layout in found:
        assert 128 % layout.expert == 0
        assert layout.data * layout.context * layout.tensor % (layout.expert * layout.expert_tensor_degree) == 0


def test_weights_are_not_sharded_under_a_pipeline(asked: Make) -> None:
    goal = asked("dgx-superpod-h100", "llama3-8b", num_ranks=64, global_sequences=64).goal
    for layout in layouts(goal):
        stages = {sharded.sharding_stage for group in shardings(goal, layout) for sharded in group}
        assert (3 in stages) == (layout.pipeline == 1 and layout.data * layout.context > 1)
