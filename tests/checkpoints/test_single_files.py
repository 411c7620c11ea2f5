"""A checkpoint of one file is judged where it is named; files of Lightning side by side are a series."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles_made import bundle, training
from tests.trees import build, call, object_of, pickled, short_text
from tests.trees import name as code_name
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.read import read_group
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

STATE = "torch weight=F32[4] pytorch-lightning_version:2"


def requirements(*paths: Path | str) -> set[tuple[str, str]]:
    found = validate(paths).findings
    return {(one.requirement, Path(one.path).name) for one in found if one.requirement != "TS-CKP-070"}


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("model.pt", "torch weight=F32[4]", "TS-CKP-083"),
        ("model.bin", "torch weight=F32[4]", "TS-CKP-083"),
        ("model.safetensors", "safetensors weight=F32[4]", "TS-CKP-082"),
    ],
)
def test_a_file_that_is_named_is_a_checkpoint(tmp_path: Path, name: str, content: str, fault: str) -> None:
    build(tmp_path, f"{name}  {content}\nlatest  text elsewhere\n")
    report = validate([tmp_path / name])
    assert [document.path for document in report.documents] == [(tmp_path / name).as_posix()]
    assert requirements(tmp_path / name) == set()
    build(tmp_path, f"{name}  cut 8\n")
    assert requirements(tmp_path / name) == {(fault, name)}


@pytest.mark.parametrize(
    "name",
    ["epoch=1-step=10.ckpt", "last.ckpt", "model.pth.tar", "rng.pkl", "pytorch_model.bin", "a.npz"],
)
@pytest.mark.parametrize("size", [1, 511, 3_000_000])
def test_a_file_of_zero_bytes_is_damaged(tmp_path: Path, name: str, size: int) -> None:
    """A crash of a file system, or a full disk, leaves such files."""
    (tmp_path / name).write_bytes(bytes(size))
    is_found = not name.startswith(("rng", "a."))  # by its name alone
    for place in (tmp_path / name, tmp_path)[: 1 + is_found]:
        assert requirements(place) == {("TS-CKP-083", name)}
    build(tmp_path / "run", "step-10/model.pt  torch weight=F32[4]\n")
    (tmp_path / "run" / "step-10" / name).write_bytes(bytes(size))
    assert ("TS-CKP-083", name) in requirements(tmp_path / "run")
    (tmp_path / "run" / "step-10" / name).write_bytes(bytes(size) + b"1")
    assert ("TS-CKP-083", name) not in requirements(tmp_path / "run")


def test_values_that_are_all_zero_are_no_damage(tmp_path: Path) -> None:
    """Raw values carry no mark of their own: `layers.0.bias.bin` of FasterTransformer."""
    build(tmp_path, "step-10/model.pt  torch weight=F32[4]\n")
    (tmp_path / "step-10" / "layers.0.bias.bin").write_bytes(bytes(4096))
    assert requirements(tmp_path) == set()


def test_code_in_a_named_file_is_told_and_not_run(tmp_path: Path) -> None:
    build(tmp_path, "model.ckpt  torch weight=F32[4] call=os.system\n")
    assert requirements(tmp_path / "model.ckpt") == {("TS-SEC-001", "model.ckpt")}


def test_a_prefix_and_each_of_its_files_name_a_bundle(tmp_path: Path) -> None:
    bundle(tmp_path, "ckpt-10", training(10))
    bundle(tmp_path, "ckpt-20", training(20))
    for name in ("ckpt-10", "ckpt-10.index", "ckpt-10.data-00000-of-00001"):
        report = validate([tmp_path / name])
        assert [document.path for document in report.documents] == [(tmp_path / "ckpt-10").as_posix()], name


def test_files_of_lightning_are_a_series(tmp_path: Path) -> None:
    build(tmp_path, f"epoch=0-step=4.ckpt  {STATE} global_step:4\nepoch=0-step=8-v1.ckpt  {STATE} global_step:8\n")
    build(tmp_path, f"last.ckpt  {STATE} global_step:8\nhparams.yaml  text a\n")
    (group,) = find(tmp_path)
    found = read_group(group).checkpoints
    assert sorted((one.label, one.step) for one in found) == [
        ("epoch=0-step=4.ckpt", 4),
        ("epoch=0-step=8-v1.ckpt", 8),
        ("last.ckpt", 8),
    ]


def test_a_file_of_lightning_holds_the_step_that_it_is_named_after(tmp_path: Path) -> None:
    build(tmp_path, f"epoch=0-step=4.ckpt  {STATE} global_step:5 state_dict:1\n")
    assert requirements(tmp_path) == {("TS-CKP-088", "epoch=0-step=4.ckpt")}


LAYOUTS = [
    {"best.ckpt": 20, "last.ckpt": 30},
    {"best.ckpt": 20, "best-v1.ckpt": 30, "last.ckpt": 40},
    {"epoch=3.ckpt": 20, "epoch=10.ckpt": 70},
    {"epoch=3.ckpt": 20, "epoch=10.ckpt": 70, "last.ckpt": 80},
    {"mnist-epoch=01-val_loss=0.32.ckpt": 20, "mnist-epoch=02-val_loss=0.30.ckpt": 30},
    {"mnist-epoch=01-val_loss=0.32.ckpt": 20, "last.ckpt": 30},
]


@pytest.mark.parametrize("folder", ["checkpoints", "20240115"])
@pytest.mark.parametrize("steps", LAYOUTS, ids=" ".join)
def test_each_file_of_lightning_is_a_state_of_its_own(tmp_path: Path, steps: dict[str, int], folder: str) -> None:
    """`save_top_k` and `save_last` of ModelCheckpoint keep states of several steps in one directory."""
    for name, step in steps.items():
        build(tmp_path / folder, f"{name}  {STATE} state_dict:1 global_step:{step}\n")
    (group,) = find(tmp_path / folder)
    assert sorted((one.label, one.step) for one in read_group(group).checkpoints) == sorted(steps.items())
    assert requirements(tmp_path / folder) == set()
    newest = [Path(one.path).name for one in judged_newest_first(tmp_path / folder) if not one.faults]
    assert newest == sorted(steps, key=lambda name: steps[name], reverse=True)


def test_a_model_next_to_states_of_lightning_is_judged_too(tmp_path: Path) -> None:
    for name, step in LAYOUTS[0].items():
        build(tmp_path, f"{name}  {STATE} state_dict:1 global_step:{step}\n")
    build(tmp_path, "model.safetensors  safetensors w=F32[4]\nmodel.safetensors  cut 8\n")
    assert requirements(tmp_path) == {("TS-CKP-082", "model.safetensors")}
    build(tmp_path, 'model.safetensors.index.json  json {"weight_map": {"w": "model.safetensors"}}\n')
    assert "TS-CKP-088" not in {requirement for requirement, _ in requirements(tmp_path)}


def test_files_of_several_kinds_are_compared_by_size_with_their_own(tmp_path: Path) -> None:
    """`save_weights_only` of one callback leaves `best.ckpt` without the optimizer that `last.ckpt` has."""
    state = "pytorch-lightning_version:2 state_dict:1"
    for name, step, size in (("best.ckpt", 10, 40), ("epoch=1-step=20.ckpt", 20, 4_000), ("last.ckpt", 20, 400)):
        build(tmp_path, f"{name}  torch weight=F32[{size}] {state} global_step:{step}\n")
    assert requirements(tmp_path) == set()
    build(tmp_path, f"epoch=2-step=30.ckpt  torch weight=F32[40] {state} global_step:30\n")
    build(tmp_path, f"epoch=3-step=40.ckpt  torch weight=F32[4000] {state} global_step:40\n")
    assert requirements(tmp_path) == {("TS-CKP-096", "epoch=3-step=40.ckpt")}


def test_a_file_of_joblib_is_not_followed_past_its_first_array(tmp_path: Path) -> None:
    """joblib writes the bytes of an array behind the operation that makes it, in the middle of the pickle."""
    wrapped = object_of("joblib.numpy_pickle", "NumpyArrayWrapper", order=short_text("C"))
    called = call(code_name("os", "system"), short_text("canary"))
    (tmp_path / "model.pkl").write_bytes(
        pickled(b"](" + called + wrapped)[:-1] + b"\x06\xff\xff\xff\xff\xff\xff\x0e" * 9
    )
    report = validate([tmp_path / "model.pkl"])
    assert {one.requirement for one in report.findings} - {"TS-CKP-070"} == {"TS-SEC-001"}
    (message,) = [one.message for one in report.findings if one.requirement == "TS-SEC-001"]
    assert message.startswith("loading it would run os.system, joblib.numpy_pickle.NumpyArrayWrapper, which are not")
    assert any("nothing after the first is read" in one.reason for one in report.unjudged)


def test_other_files_are_none(tmp_path: Path) -> None:
    build(tmp_path, "notes.bin  text hello\n")
    with pytest.raises(InputError, match="no such file"):
        validate([tmp_path / "missing.pt"])
    assert {requirement for requirement, _ in requirements(tmp_path / "notes.bin")} == {"TS-DOC-004"}


def test_a_link_that_is_named_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    build(tmp_path, "model.pt  torch weight=F32[4]\nmodel.pt  cut 8\nlinked.ckpt  link model.pt\n")
    assert requirements(tmp_path / "linked.ckpt") == {("TS-CKP-083", "model.pt")}


def test_findings_and_documents_name_a_file_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, "model.pt  torch weight=F32[4]\nmodel.pt  cut 8\n")
    monkeypatch.chdir(tmp_path)
    report = validate(["model.pt"])
    assert {finding.path for finding in report.findings} == {document.path for document in report.documents}
