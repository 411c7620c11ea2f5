"""Initial weights, sample order and samples: the same for every framework, at every position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainspec_reference.common.data import NOT_COUNTED, SampleOrder, Samples, mix
from trainspec_reference.common.job import Data, ModelShape
from trainspec_reference.common.weights import initial_weights

SMALL = ModelShape(num_layers=2, hidden_size=16, num_heads=2, ffn_hidden_size=32, sequence_length=8)


def test_splitmix_is_the_published_one() -> None:
    # First outputs of SplitMix64 seeded with 0 are the finaliser of 1, 2 and 3 times its increment.
    assert mix(0).tolist() == [0xE220A8397B1DCDAF]


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 5))
def test_each_epoch_is_a_permutation(num_samples: int, seed: int, epoch: int) -> None:
    order = SampleOrder(num_samples, seed)
    assert sorted(order.ids(epoch * num_samples, num_samples)) == list(range(num_samples))


@given(st.integers(1, 200), st.integers(0, 600), st.lists(st.integers(0, 90), max_size=6))
def test_any_cut_of_the_order_gives_the_same_ids(num_samples: int, position: int, counts: list[int]) -> None:
    order, cut = SampleOrder(num_samples, 3), []
    for count in counts:
        cut.extend(order.ids(position + len(cut), count))
    assert tuple(cut) == order.ids(position, sum(counts))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    order = SampleOrder(1000, 1)
    first, second = order.ids(0, 1000), order.ids(1000, 1000)
    assert first != second
    assert first != SampleOrder(1000, 2).ids(0, 1000)
    assert first != tuple(sorted(first))


def test_a_position_far_out_costs_nothing() -> None:
    order = SampleOrder(2**40, 0)
    assert len(set(order.ids(5 * 2**40 + 12345, 1000))) == 1000


@pytest.mark.parametrize("num_samples", [0, 2**62 + 1])
def test_refuses_orders_that_do_not_fit(num_samples: int) -> None:
    with pytest.raises(ValueError, match="wanted between 1 and 2"):
        SampleOrder(num_samples, 0)


@given(st.permutations(list(range(12))), st.booleans())
def test_a_sample_depends_on_its_id_alone(ids: list[int], variable_length: bool) -> None:
    samples = Samples(SMALL, Data(seed=7), variable_length)
    together = samples.batch(ids)
    for row, sample_id in enumerate(ids):
        alone = samples.batch([sample_id])
        assert (together.inputs[row] == alone.inputs[0]).all()
        assert (together.targets[row] == alone.targets[0]).all()
    assert together.num_targets == samples.num_targets(ids)
    assert together.sample_ids == tuple(ids)


def test_targets_are_the_next_tokens_up_to_the_end() -> None:
    batch = Samples(SMALL, Data(), variable_length=True).batch(range(64))
    follows = batch.targets[:, :-1] == batch.inputs[:, 1:]
    assert (follows | (batch.targets[:, :-1] == NOT_COUNTED)).all()
    lengths = (batch.targets != NOT_COUNTED).sum(1)
    assert set(lengths.tolist()) == set(range(2, 9))
    assert ((batch.targets != NOT_COUNTED) == (np.arange(8) < lengths[:, None])).all()
    assert ((batch.inputs >= 0) & (batch.inputs < SMALL.vocabulary_size)).all()


def test_a_stage_may_shorten_texts() -> None:
    samples = Samples(SMALL, Data())
    assert (samples.batch([5], 4).inputs == samples.batch([5]).inputs[:, :4]).all()
    assert samples.num_targets([5, 6], 4) == 8


def test_images_of_a_class_are_alike() -> None:
    shape = ModelShape(family="convolution", vocabulary_size=3, image_size=8)
    batch = Samples(shape, Data()).batch(range(60))
    assert batch.inputs.shape == (60, 3, 8, 8)
    assert batch.inputs.dtype == np.float32
    assert set(batch.targets.tolist()) == {0, 1, 2}
    mean = batch.inputs[batch.targets == 0].mean(0)
    same, other = (np.abs(batch.inputs[batch.targets == c].mean(0) - mean).mean() for c in (0, 1))
    assert same < other / 3
    assert Samples(shape, Data()).num_targets(range(60)) == batch.num_targets == 60


@pytest.mark.parametrize("family", ["transformer", "convolution", "state-space"])
def test_weights_depend_on_seed_name_and_shape_alone(family: str) -> None:
    shape = ModelShape(family=family, num_layers=2, hidden_size=16)  # type: ignore[arg-type]
    deeper = ModelShape(family=family, num_layers=3, hidden_size=16)  # type: ignore[arg-type]
    weights, again, other = initial_weights(shape, 1), initial_weights(deeper, 1), initial_weights(shape, 2)
    assert list(weights) == sorted(weights)
    for name, value in weights.items():
        assert value.dtype == np.float32
        assert (value == again[name]).all(), name
    assert any((weights[name] != other[name]).any() for name in weights)


def test_weights_have_the_names_and_spread_of_the_contract() -> None:
    weights = initial_weights(ModelShape(), 0)
    assert weights["layers/3/attention/qkv"].shape == (128, 384)
    assert weights["layers/0/ffn/down"].shape == (512, 128)
    assert len(weights) == 4 + 4 * 8
    assert sum(value.size for value in weights.values()) == 829_696  # the model of the feasibility measurements
    qkv = weights["layers/0/attention/qkv"].astype(np.float64)
    assert abs(qkv.std() / 0.02 - 1) < 0.02
    assert abs(qkv.mean()) < 4 * 0.02 / qkv.size**0.5
    assert (weights["final_norm/scale"] == 1).all()
    assert (weights["final_norm/bias"] == 0).all()


def test_refuses_heads_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="3 heads do not divide a hidden size of 16"):
        initial_weights(ModelShape(hidden_size=16, num_heads=3), 0)
