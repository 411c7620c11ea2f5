"""The JAX backend computes the same step however it is spread: over ranks, shards, tensor ranks and algorithms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax_tasks as tasks
from jax_crew import CREW, JaxCrew
from jax_tasks import FAMILIES, SINGLE, Setup
from trainspec_conformance.testbed.plain.model import loss_and_gradients

EXACT = 1e-11
"""Relative, in fp64: XLA's own exponentials differ by more than a rounding with the shape of what they are fused to."""


def parallel(**degrees: Any) -> dict[str, Any]:
    return {"parallelism": {"num_accelerators": 1, **degrees}}


def reduced_by(algorithm: str) -> dict[str, Any]:
    choice = {"operation": "all-reduce", "axis": "data", "algorithm": algorithm}
    return {"communication": {"collectives": [choice]}}


def sent_by(method: str, **settings: Any) -> dict[str, Any]:
    compression = {"method": method, "error_feedback": True, "residual_checkpointed": True, **settings}
    return {"communication": {"compression": compression}}


def assert_equal(found: dict[str, Any], wanted: dict[str, Any], relative: float = EXACT) -> None:
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=relative * scale + 1e-300, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_uneven_ranks_have_the_gradient_of_one(family: str) -> None:
    alone = CREW.run(tasks.gradient, 1, Setup(shape=FAMILIES[family]))[0]
    for found in CREW.run(tasks.gradient, 2, Setup(shape=FAMILIES[family], shares=(5, 3))):
        assert_equal(found, alone)


def test_the_state_space_gradient_is_that_of_numpy() -> None:
    setup = Setup(shape=tasks.STATE_SPACE)
    found = CREW.run(tasks.gradient, 1, setup)[0]
    weights = {name: array.astype(np.float64) for name, array in setup.weights().items()}
    batches, num_targets = setup.batches(tasks.Formation(0, 0, ("host",), "", 1.0), 0)
    parts = [loss_and_gradients(weights, batch, 1 / num_targets)[1] for batch in batches]
    assert_equal(found, {name: np.sum([part[name] for part in parts], axis=0) for name in weights}, 1e-9)


@pytest.mark.long
def test_all_reduce_algorithms_agree() -> None:
    hosts = ["a", "a", "b", "b"]
    setups = {name: Setup(reduced_by(name)) for name in ("automatic", "hierarchical")}
    ranks = CREW.run(tasks.train_of_many, hosts, setups, 2)
    wanted = [told.norm for told in CREW.run(tasks.train, 1, Setup(), 2)[0][0]]
    for name in setups:
        assert len({told[name][1] for told in ranks}) == 1, f"{name}: ranks differ"
        assert [told.norm for told in ranks[0][name][0]] == pytest.approx(wanted, rel=1e-9), name


@pytest.mark.long
def test_shards_and_tensor_ranks_train_alike() -> None:
    setups = {
        "optimizer": Setup(parallel(sharding="optimizer")),
        "parameters": Setup(parallel(sharding="parameters"), shares=(5, 3)),
        "tensor": Setup(parallel(tensor=2)),
        "sequence": Setup(parallel(tensor=2, sequence=True)),
        "sequence that does not divide": Setup(
            parallel(tensor=2, sequence=True), shape=replace(tasks.STATE_SPACE, sequence_length=15)
        ),
        "tensor of the state-space family": Setup(parallel(tensor=2), shape=tasks.STATE_SPACE),
    }
    ranks = CREW.run(tasks.train_of_many, 2, setups, 3)
    for name, setup in setups.items():
        alone = CREW.run(tasks.train, 1, Setup(shape=setup.shape), 3)[0][0]
        assert ranks[0][name][1] == ranks[1][name][1], f"{name}: ranks differ"
        for key in ("loss", "norm"):
            found = [getattr(told, key) for told in ranks[1][name][0]]
            assert found == pytest.approx([getattr(told, key) for told in alone], rel=1e-7), (name, key)


@pytest.mark.long
def test_groups_of_noise_are_those_of_one_rank() -> None:
    wanted = CREW.run(tasks.train, 1, Setup(), 1, True)[0][0][0]
    plain = CREW.run(tasks.train, 1, Setup(), 1)[0][0][0]
    assert plain.group_sizes == ()
    assert len(wanted.group_sizes) == 4
    for sharding in ("none", "parameters"):
        for told, _ in CREW.run(tasks.train, 2, Setup(parallel(sharding=sharding), shares=(6, 2)), 1, True):
            assert told[0].group_sizes == wanted.group_sizes, sharding
            assert told[0].group_squared_norms == pytest.approx(wanted.group_squared_norms, rel=1e-9)
            assert told[0].norm == pytest.approx(plain.norm, rel=1e-9)


@pytest.mark.slow
def test_one_group_alone_has_the_norm_of_its_gradient() -> None:
    batch = {"batch": {"global_sequences": 8, "micro_sequences": 8, "accumulation_steps": 1}}
    told = CREW.run(tasks.train, 2, Setup(batch, shares=(2, 0)), 1, True)[0][0][0]
    share = told.group_sizes[0] / sum(told.group_sizes)
    assert share == 1.0
    assert len(told.group_squared_norms) == 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bf16", "fp16", "top-k", "power-sgd"])
def test_compression_loses_nothing(method: str) -> None:
    ranks = CREW.run(tasks.compressed, 2, method, 6)
    given = sum(own.sum(axis=0) for own, _, _ in ranks)
    kept = sum(residual for _, _, residual in ranks)
    sent = ranks[0][1]
    np.testing.assert_array_equal(sent, ranks[1][1])
    tolerance = {"bf16": 0.2, "fp16": 0.02}.get(method, 1e-9)  # the sum itself is made in the narrow format
    np.testing.assert_allclose(sent.sum(axis=0) + kept, given, rtol=0, atol=tolerance)
    assert np.abs(kept).max() > 0, "nothing was left out: the compressor did not compress"


def test_an_overflow_is_seen_by_all_and_changes_nothing() -> None:
    wanted = CREW.run(tasks.train, 1, Setup(), 1)[0][0][0]
    for told, is_unchanged, after in CREW.run(tasks.overflowed, 2):
        assert not told.is_finite
        assert is_unchanged
        assert after.is_finite
        assert after.norm == pytest.approx(wanted.norm, rel=EXACT)
        assert after.loss == pytest.approx(wanted.loss, rel=EXACT)


def test_a_flipped_bit_shows_and_is_healed() -> None:
    (first, healed_first), (second, healed_second) = CREW.run(tasks.flipped, 2)
    assert first != second
    assert healed_first == healed_second == first


@pytest.mark.parametrize(("compute", "tolerance"), [("fp32", 1e-5), ("bf16", 3e-2), ("fp16", 3e-3)])
def test_narrow_formats_stay_near(compute: str, tolerance: float) -> None:
    wanted = [told.loss for told in CREW.run(tasks.train, 1, Setup(), 3)[0][0]]
    told = CREW.run(tasks.train, 1, Setup({"precision": {**SINGLE, "compute": compute}}), 3)[0][0]
    assert [one.loss for one in told] == pytest.approx(wanted, rel=tolerance)


@pytest.mark.slow
def test_recomputation_changes_no_number() -> None:
    setups = {name: Setup({"memory": {"activation_policy": name}}) for name in ("none", "selective", "full")}
    found = CREW.run(tasks.train_of_many, 1, setups, 2)[0]
    for name, (told, _) in found.items():
        assert [one.loss for one in told] == pytest.approx([one.loss for one in found["none"][0]], rel=1e-9), name


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_a_lost_peer_is_told_in_time(is_stopped: bool) -> None:
    crew = JaxCrew()
    try:
        crew.send(tasks.lose_a_peer, 2, is_stopped, 4.0)
        error, seconds = crew.answer(2, 0)
    finally:
        crew.close()
    assert ("no answer" if is_stopped else "gone") in error
    assert seconds >= 4.0 or not is_stopped


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (reduced_by("torus"), "gradients are summed by automatic or hierarchical, not by torus"),
        ({**parallel(sharding="optimizer"), **sent_by("top-k")}, "compression by top-k needs whole replicas"),
        (sent_by("sign"), "compression by sign is not offered"),
    ],
)
def test_what_is_not_offered_is_said(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        CREW.run(tasks.train, 1, Setup(parts), 1)


def test_convolutions_are_not_split() -> None:
    with pytest.raises(RuntimeError, match="a convolutional network is not split over tensor or pipeline ranks"):
        CREW.run(tasks.train, 1, Setup(parallel(tensor=2), shape=tasks.CONVOLUTION), 1)
