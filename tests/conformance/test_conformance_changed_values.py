"""The suite changes values in each format that it reads; what did not arrive is an error and no failure."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conformance_stacks import HERE, fake, run, scenario
from trainspec_conformance import resealing, trial
from trainspec_conformance.criteria.dependence import relative_resolution
from trainspec_conformance.damage import damage
from trainspec_conformance.records import SOUND_KINDS
from trainspec_conformance.resealing import LEAST_CHANGE, MOST_CHANGE, factor
from trainspec_conformance.store import CheckpointStore
from trainspec_conformance.stored_values import NoValuesError, scale, tensor_values_of, values_of
from trainspec_conformance.suite import Order, run_suite

from trainspec_validate.checkpoints.compare import changed_files
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.documents.types.conformance import Store, TestJob

FACTOR = 1.5
"""Exact in every format of numbers."""
ARRAY = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
COUNTS = np.arange(5)


def npz(root: Path) -> Callable[[], Any]:
    np.savez(root / "state-0.npz", weight=ARRAY, half=ARRAY.astype(np.float16), count=COUNTS)

    def read() -> Any:
        with np.load(root / "state-0.npz") as found:
            np.testing.assert_array_equal(found["count"], COUNTS)
            np.testing.assert_allclose(found["half"], found["weight"], rtol=2e-3)
            return found["weight"]

    return read


def npy(root: Path) -> Callable[[], Any]:
    np.save(root / "weight.npy", ARRAY)
    np.save(root / "count.npy", COUNTS)
    return lambda: np.load(root / "weight.npy")


def safetensors(root: Path) -> Callable[[], Any]:
    path, size = root / "model.safetensors", ARRAY.nbytes
    tensors = {
        "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, size]},
        "count": {"dtype": "I64", "shape": [len(COUNTS)], "data_offsets": [size, size + COUNTS.nbytes]},
    }
    header = json.dumps(tensors).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + ARRAY.tobytes() + COUNTS.tobytes())

    def read() -> Any:
        content = path.read_bytes()[8 + len(header) :]
        assert content[size:] == COUNTS.tobytes()
        return np.frombuffer(content[:size], np.float32).reshape(ARRAY.shape)

    return read


def torch_zip(root: Path) -> Callable[[], Any]:
    torch = pytest.importorskip("torch")
    narrow = torch.tensor(ARRAY).to(torch.bfloat16)
    torch.save({"model": {"weight": torch.tensor(ARRAY)}, "narrow": narrow, "step": 7}, root / "state.pt")

    def read() -> Any:
        found = torch.load(root / "state.pt", weights_only=True)
        assert found["step"] == 7
        assert torch.equal(found["narrow"].float(), found["model"]["weight"])
        return found["model"]["weight"].numpy()

    return read


def distributed(root: Path) -> Callable[[], Any]:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    dcp.save({"weight": torch.tensor(ARRAY), "count": torch.tensor(COUNTS)}, checkpoint_id=root, no_dist=True)

    def read() -> Any:
        found = {"weight": torch.zeros(ARRAY.shape), "count": torch.zeros(len(COUNTS), dtype=torch.int64)}
        dcp.load(found, checkpoint_id=root, no_dist=True)
        np.testing.assert_array_equal(found["count"].numpy(), COUNTS)
        return found["weight"].numpy()

    return read


def text(root: Path) -> Callable[[], Any]:
    (root / "state.json").write_text(json.dumps({"step": 30, "weights": [[*map(float, row)] for row in ARRAY]}))

    def read() -> Any:
        found = json.loads((root / "state.json").read_text())
        assert found["step"] == 30
        return np.array(found["weights"])

    return read


@pytest.mark.parametrize("write", [npz, npy, safetensors, torch_zip, distributed, text])
def test_values_change_as_the_format_stores_them(write: Callable[[Path], Callable[[], Any]], tmp_path: Path) -> None:
    read = write(tmp_path)
    before = values_of(tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert scale(tmp_path, 1.0)
    if write is not text:
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert values_of(tmp_path) == before
    scale(tmp_path, FACTOR)
    np.testing.assert_array_equal(read(), ARRAY * FACTOR)
    assert values_of(tmp_path) != before
    assert not [one for one in read_checkpoint(tmp_path).troubles if one.aspect in {"container", "checksum"}]
    for path in tmp_path.glob("*.npz"):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None


def test_a_checkpoint_of_one_file_is_changed_where_it_is(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for step in (10, 20):
        torch.save({"state_dict": {"weight": torch.tensor(ARRAY)}, "global_step": step}, tmp_path / f"step-{step}.ckpt")
    kept = (tmp_path / "step-10.ckpt").read_bytes()
    assert scale(tmp_path / "step-20.ckpt", FACTOR) == [tmp_path / "step-20.ckpt"]
    assert (tmp_path / "step-10.ckpt").read_bytes() == kept
    found = torch.load(tmp_path / "step-20.ckpt", weights_only=True)["state_dict"]["weight"]
    np.testing.assert_array_equal(found.numpy(), ARRAY * FACTOR)


def test_a_format_without_readable_values_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.msgpack").write_bytes(b"\x81\xa1w\xcb")
    for deed in (values_of, lambda path: scale(path, FACTOR)):
        with pytest.raises(NoValuesError, match="holds no values that the suite can change"):
            deed(tmp_path)


@pytest.mark.parametrize("kind", sorted(SOUND_KINDS))
def test_a_changed_checkpoint_fits_its_new_manifest(kind: str, tmp_path: Path) -> None:
    from trainspec_validate.checkpoints.seal import Facts, seal, write

    store = CheckpointStore(tmp_path, Store())
    root = store.directory / "step-30"
    root.mkdir(parents=True)
    read = npz(root)
    write(root, seal(read_checkpoint(root), Facts(tool=("test", "1"), save_id="first-save", step=30)))
    manifest = json.loads((root / "trainspec-manifest.json").read_text())
    manifest["extensions"] = {"org.example": {"digest": "of the state before"}}
    (root / "trainspec-manifest.json").write_text(json.dumps(manifest))
    (done,) = damage(kind, "newest", store, random.Random(5), 10)
    checkpoint = read_checkpoint(root)
    assert done.is_sound
    assert not list(changed_files(checkpoint))
    assert checkpoint.manifest is not None
    assert (checkpoint.manifest.step, checkpoint.manifest.extensions) == (30, {})
    assert checkpoint.manifest.save_id != "first-save"
    if kind != "scaled-tensor":
        np.testing.assert_allclose(read(), ARRAY * done.factor, rtol=1e-6)
    assert (done.factor == 1.0) == (kind == "resealed")


def test_of_the_tensors_of_a_checkpoint_one_is_changed_with_its_copies(tmp_path: Path) -> None:
    weight, moment, copy = tmp_path / "weight.npy", tmp_path / "moment.npy", tmp_path / "copy.npy"
    changed = set()
    for seed in range(20):
        for path, array in ((weight, ARRAY), (moment, ARRAY + 1), (copy, ARRAY)):
            np.save(path, array)
        np.save(tmp_path / "zeros.npy", np.zeros(4, np.float32))
        before = values_of(tmp_path)
        names = frozenset(path.name for path in scale(tmp_path, FACTOR, random.Random(seed)))
        for path, array in ((weight, ARRAY), (moment, ARRAY + 1), (copy, ARRAY)):
            np.testing.assert_array_equal(np.load(path), array * (FACTOR if path.name in names else 1))
        assert values_of(tmp_path) != before
        changed.add(names)
    assert changed == {frozenset({"weight.npy", "copy.npy"}), frozenset({"moment.npy"})}


def test_values_of_a_checkpoint_that_holds_mostly_something_else_are_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "statistics.npy", ARRAY)
    (tmp_path / "state.bin").write_bytes(bytes(5000))
    with pytest.raises(NoValuesError, match="24 of 5,152 bytes"):
        tensor_values_of(tmp_path)
    (tmp_path / "state.bin").unlink()
    np.save(tmp_path / "weight.npy", np.ones(1000, np.float32))
    assert tensor_values_of(tmp_path) == values_of(tmp_path)


def test_factors_are_drawn_for_each_trial() -> None:
    found = [factor(random.Random(seed)) for seed in range(50)]
    assert len(set(found)) == 50
    assert all(1 + LEAST_CHANGE <= one <= 1 + MOST_CHANGE for one in found)


@pytest.mark.slow
def test_a_stack_whose_values_cannot_be_changed_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Any:
        raise NoValuesError(f"{path.name} holds no values that the suite can change; it is of Orbax")

    monkeypatch.setattr(trial, "values_of", refuse)
    (result,) = run(fake(), tmp_path, scenario("changed-values"))
    assert (result.state, "it is of Orbax" in result.reason) == ("unsupported", True)


# --- what does not arrive is an error of the suite ---------------------------------------------------------------


@pytest.mark.slow
def test_a_change_of_values_that_does_not_arrive_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "scale", lambda *_: [])
    (result,) = run(fake(), tmp_path, scenario("changed-values"))
    assert (result.state, "has not arrived" in result.reason) == ("error", True)


@pytest.mark.slow
def test_a_seed_that_does_not_change_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "changed_job", lambda job, *_: job)
    (result,) = run(fake(), tmp_path, scenario("changed-seed"))
    assert (result.state, "both runs had the same seed" in result.reason) == ("error", True)


@pytest.mark.slow
def test_a_part_of_the_learning_rate_that_is_not_asked_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "changed_job", lambda job, *_: job)
    stack = fake()
    stack = msgspec.structs.replace(stack, capabilities=(*stack.capabilities, "learning-rate-factor"))
    (result,) = run_suite(Order(stack, HERE, tmp_path, [scenario("changed-learning-rate")], num_trials=1))
    assert (result.state, "both runs had the same learning rate" in result.reason) == ("error", True)


@pytest.mark.slow
def test_values_that_the_suite_does_not_read_are_not_judged_and_that_is_said(tmp_path: Path) -> None:
    (result,) = run(fake(), tmp_path, scenario("changed-seed"))
    assert result.state == "pass"
    (judged,) = [one for one in result.trials[0].judged if one.check == "values-follow-seed"]
    assert (judged.passed, len(judged.messages)) == (True, 2)
    assert "of the baseline run were not judged: 0 of" in judged.messages[0]


@pytest.mark.parametrize(
    ("rounded", "wanted"),
    [(float, 2.0**-53), (np.float32, 2.0**-24), (np.float16, 2.0**-11), (lambda one: round(one, 4), 1e-4 / 2.0672)],
)
def test_the_resolution_of_losses_is_that_of_their_digits(rounded: Callable[[float], Any], wanted: float) -> None:
    losses = [float(rounded(5 * 0.97**step)) for step in range(30)]
    assert relative_resolution(losses) == pytest.approx(wanted, rel=1e-3)
    assert relative_resolution([float("nan"), 0.0]) == 0


def test_a_learning_rate_that_is_not_asked_for_is_an_error(tmp_path: Path) -> None:
    stack = fake()
    stack = msgspec.structs.replace(stack, capabilities=(*stack.capabilities, "learning-rate-factor"))
    one = scenario("zero-learning-rate", learning_rate_factor=TestJob().learning_rate_factor)
    (result,) = run_suite(Order(stack, Path(__file__).parent, tmp_path, [one], num_trials=1))
    assert (result.state, "another learning rate" in result.reason) == ("error", True)
