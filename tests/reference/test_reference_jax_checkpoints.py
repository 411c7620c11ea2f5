"""Checkpoints of the JAX backend: bitwise resume, other numbers of ranks, residuals, and damage that is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jax")

import jax_tasks as tasks
from jax_crew import CREW
from jax_tasks import SINGLE, Setup
from trainspec_reference.common.job import ModelShape
from trainspec_reference.common.weights import initial_weights
from trainspec_reference.jax.layout import Layout, Part, kept
from trainspec_reference.jax.models import splits_of

DROPOUT = Setup({"precision": SINGLE}, shape=replace(tasks.TRANSFORMER, dropout=0.1))


def sharded(sharding: str, **parts: Any) -> Setup:
    return Setup({"parallelism": {"num_accelerators": 1, "sharding": sharding}, "precision": SINGLE, **parts})


def top_k(on_resize: str = "redistribute") -> Setup:
    compression = {"method": "top-k", "density": 0.1, "error_feedback": True, "residual_on_resize": on_resize}
    return sharded("none", communication={"compression": compression})


RESUMED = {"dropout": DROPOUT, "residuals": top_k(), "parameters": sharded("parameters")}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(RESUMED))
def test_resume_is_bitwise(name: str, tmp_path: Path) -> None:
    setup = RESUMED[name]
    told, digest = CREW.run(tasks.train, 2, setup, 3)[0]
    saved = CREW.run(tasks.save, 2, setup, tmp_path, 1)
    for before, resumed, after in CREW.run(tasks.resume, 2, setup, tmp_path, 1, 3):
        assert before == saved[0][0]
        assert [(one.loss, one.norm) for one in resumed] == [(one.loss, one.norm) for one in told[1:]]
        assert after == digest


@pytest.mark.slow
def test_other_ranks_and_layouts_read_the_same_state(tmp_path: Path) -> None:
    layouts = {
        "shards": sharded("parameters"),
        "moments": sharded("optimizer"),
        "tensor": Setup({"parallelism": {"num_accelerators": 1, "tensor": 2}, "precision": SINGLE}),
        "replicas": sharded("none"),
    }
    for name, setup in layouts.items():
        home = tmp_path / name
        home.mkdir()
        saved = {digest for digest, _ in CREW.run(tasks.save, 2, setup, home, 1)}
        assert len(saved) == 1
        assert {CREW.run(tasks.resume, 1, layouts["replicas"], home, 1, 1)[0][0]} == saved, name
        assert {found[0] for found in CREW.run(tasks.resume, 2, layouts["shards"], home, 1, 1)} == saved, name


def test_each_entry_is_stored_once(tmp_path: Path) -> None:
    num_bytes = sum(told for _, told in CREW.run(tasks.save, 2, sharded("none"), tmp_path, 1))
    parameters = sum(array.nbytes for array in sharded("none").weights().values())
    assert 3 * parameters <= num_bytes < 3 * parameters + 100


@pytest.mark.slow
@pytest.mark.parametrize("on_resize", ["redistribute", "reset", "refuse"])
def test_residuals_follow_the_plan_when_ranks_change(on_resize: str, tmp_path: Path) -> None:
    setup = top_k(on_resize)
    CREW.run(tasks.save, 2, setup, tmp_path, 2)
    both = sum(CREW.run(tasks.residuals, 2, setup, tmp_path))
    assert np.abs(both).max() > 0
    if on_resize == "refuse":
        with pytest.raises(RuntimeError, match="residuals of 2 data ranks, here are 1: the plan refuses that"):
            CREW.run(tasks.residuals, 1, setup, tmp_path)
        return
    found = CREW.run(tasks.residuals, 1, setup, tmp_path)[0]
    np.testing.assert_allclose(found, both if on_resize == "redistribute" else 0 * both, rtol=1e-6)


def test_a_shared_state_leaves_each_rank_what_it_has_not_sent() -> None:
    ranks = CREW.run(tasks.shared_residual, 2, top_k())
    for before, after, digest in ranks:
        np.testing.assert_array_equal(after, before)
        assert digest == ranks[0][2]
    assert np.abs(ranks[0][0] - ranks[1][0]).max() > 0


DAMAGE = {
    "rank-00001/pieces.json": "pieces.json: .*No such file",
    "rank-00000/arrays/manifest.ocdbt": "rank-00000/arrays: ",
}


@pytest.mark.parametrize("file", sorted(DAMAGE))
def test_a_missing_file_is_named(file: str, tmp_path: Path) -> None:
    CREW.run(tasks.save, 2, sharded("none"), tmp_path, 1)
    (tmp_path / file).unlink()
    with pytest.raises(RuntimeError, match=f"CheckpointUnreadableError.*{DAMAGE[file]}"):
        CREW.run(tasks.resume, 1, sharded("none"), tmp_path, 1, 1)


def test_another_model_is_refused(tmp_path: Path) -> None:
    CREW.run(tasks.save, 1, sharded("none"), tmp_path, 1)
    other = replace(sharded("none"), shape=replace(tasks.TRANSFORMER, ffn_hidden_size=128))
    with pytest.raises(RuntimeError, match="is no tensor of this model's shape"):
        CREW.run(tasks.resume, 1, other, tmp_path, 1, 1)


SHAPE = ModelShape(num_layers=2, hidden_size=8, num_heads=4, ffn_hidden_size=12, vocabulary_size=7, sequence_length=5)


@given(st.integers(1, 5), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.integers(1, 4))
def test_pieces_cover_each_entry_once(num_shards: int, num_tensor: int, num_stages: int, num_writers: int) -> None:
    weights = initial_weights(SHAPE, 0)
    shapes = {name: array.shape for name, array in weights.items()}
    layout = Layout(shapes, splits_of(SHAPE, num_tensor), num_tensor, num_shards, num_stages)
    whole = {name: np.zeros_like(array) for name, array in weights.items()}
    count = {name: np.zeros(array.shape, np.int64) for name, array in weights.items()}
    for part in (Part(tensor, stage) for tensor in range(num_tensor) for stage in range(num_stages)):
        matrix_ws = layout.join(layout.local(weights, part), np)
        for shard in range(num_shards):
            for writer in range(num_writers):
                for columns, piece in kept(layout.pieces(shard, part), writer, num_writers, layout.width):
                    marks = np.zeros(count[piece.name].shape, np.bool_)
                    piece.put(matrix_ws[shard, columns], whole[piece.name], marks)
                    count[piece.name] += marks
    for name, array in weights.items():
        np.testing.assert_array_equal(whole[name], array)
        np.testing.assert_array_equal(count[name], 1)


def test_stages_have_equal_parts() -> None:
    shapes = {name: array.shape for name, array in initial_weights(SHAPE, 0).items()}
    with pytest.raises(ValueError, match="3 pipeline stages do not divide 2 layers evenly"):
        Layout(shapes, {}, 1, 1, 3)


def test_a_matrix_divides_into_what_it_was_joined_from() -> None:
    weights = initial_weights(SHAPE, 0)
    layout = Layout({name: array.shape for name, array in weights.items()}, {}, 1, 3)
    divided = layout.divide(layout.join(weights, np))
    assert divided.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(divided[name], array)
