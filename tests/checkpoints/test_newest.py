"""The newest whole checkpoint is found in every format, and what is damaged is refused with its reason."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate.checkpoints.newest import SeveralSeriesError, judged_newest_first
from trainspec_validate.checkpoints.zips import Stretch
from trainspec_validate.cli import terminal
from trainspec_validate.cli.toolbox import command as toolbox

STEPS = (10, 20, 30)


def invoke(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", "newest-good", str(directory), *options])


def newest(directory: Path) -> str | None:
    """Path of the newest whole checkpoint, relative to the directory."""
    for one in judged_newest_first(directory):
        if not one.faults:
            return Path(one.path).relative_to(directory).as_posix()
    return None


def seal(root: Path) -> None:
    assert CliRunner().invoke(toolbox, ["checkpoint", "seal", str(root)]).exit_code == 0


def dcp(root: Path, step: int) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as saves

    saves.save({"w": torch.rand(500), "step": step}, checkpoint_id=root / f"step-{step}")


def huggingface(root: Path, step: int) -> None:
    state = f'trainer_state.json  json {{"global_step": {step}}}'
    parts = "optimizer.pt  torch m=F32[8]\nscheduler.pt  torch s=F32[1]\nrng_state.pth  torch r=F32[4]"
    build(root / f"checkpoint-{step}", f"model.safetensors  safetensors w=F32[8]\n{parts}\n{state}\n")


def torch_files(root: Path, step: int) -> None:
    build(root, f"ckpt_{step}.pt  torch w=F32[64]\n")


def torch_folders(root: Path, step: int) -> None:
    build(root / f"step_{step}", "model.pt  torch w=F32[64]\noptim.pt  torch m=F32[64]\n")


MAKERS = {"dcp": dcp, "huggingface": huggingface, "torch-files": torch_files, "torch-folders": torch_folders}
PATHS = {
    "dcp": ("step-{}", "step-30/__0_0.distcp"),
    "huggingface": ("checkpoint-{}", "checkpoint-30/model.safetensors"),
    "torch-files": ("ckpt_{}.pt", "ckpt_30.pt"),
    "torch-folders": ("step_{}", "step_30/optim.pt"),
}


@pytest.fixture(params=sorted(MAKERS))
def series(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, Path]:
    """A directory of three checkpoints, how they are named, and a file of the newest."""
    for step in STEPS:
        MAKERS[request.param](tmp_path, step)
    form, payload = PATHS[request.param]
    return tmp_path, form, tmp_path / payload


def test_the_newest_is_chosen(series: tuple[Path, str, Path]) -> None:
    directory, form, _ = series
    result = invoke(directory)
    assert (result.exit_code, result.stdout) == (0, f"{directory / form.format(30)}\n")


@pytest.mark.parametrize("damage", ["cut", "emptied", "start", "removed"])
def test_a_damaged_one_is_passed_over(series: tuple[Path, str, Path], damage: str) -> None:
    directory, form, payload = series
    size = payload.stat().st_size
    if damage == "removed":
        payload.unlink()
    elif damage == "start":
        payload.write_bytes(b"\xff" * 64 + payload.read_bytes()[64:])
    else:
        os.truncate(payload, size - 1 if damage == "cut" else 0)
    assert newest(directory) == form.format(20)


def test_content_that_contradicts_its_checksum_is_passed_over(series: tuple[Path, str, Path]) -> None:
    directory, form, payload = series
    if payload.suffix == ".safetensors":  # has no checksum
        seal(directory / form.format(30))
    content = bytearray(payload.read_bytes())
    content[len(content) // 2] ^= 1
    payload.write_bytes(content)
    result = invoke(directory)
    assert (result.exit_code, result.stdout) == (0, f"{directory / form.format(20)}\n")
    assert "not whole" in result.stderr
    assert "TS-CKP-0" in result.stderr or "TS-SEC-001" in result.stderr


def test_content_is_read_once_and_of_older_ones_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    num_bytes: Counter[int] = Counter()
    read = Stretch.readinto

    def counted(self: Stretch, buffer: memoryview) -> int:
        num = read(self, buffer)
        num_bytes[os.fstat(self._file.fileno()).st_ino] += num
        return num

    files = [tmp_path / f"ckpt_{step}.pt" for step in STEPS]
    for path in files:
        build(tmp_path, f"{path.name}  torch w=F32[2000000]\n")
    monkeypatch.setattr(Stretch, "readinto", counted)
    assert newest(tmp_path) == files[-1].name
    *older, last = (num_bytes[path.stat().st_ino] / path.stat().st_size for path in files)
    assert 1 <= last < 1.4
    assert max(older) < 0.4


def test_structure_only_reads_no_content(tmp_path: Path) -> None:
    for step in STEPS:
        huggingface(tmp_path, step)
    seal(tmp_path / "checkpoint-30")
    payload = tmp_path / "checkpoint-30" / "model.safetensors"
    content = bytearray(payload.read_bytes())
    content[-1] ^= 1
    payload.write_bytes(content)
    assert invoke(tmp_path).stdout.endswith("checkpoint-20\n")
    assert invoke(tmp_path, "--structure-only").stdout.endswith("checkpoint-30\n")


def test_exit_codes(tmp_path: Path) -> None:
    assert invoke(tmp_path / "absent").exit_code == 2
    assert invoke(Path(os.devnull)).exit_code == 2
    result = invoke(tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no whole checkpoint" in result.stderr
    for run in ("a", "b"):
        torch_folders(tmp_path / run, 10)
    result = invoke(tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    with pytest.raises(SeveralSeriesError, match="2 directories"):
        newest(tmp_path)


def test_a_file_that_older_ones_have_is_missed(tmp_path: Path) -> None:
    for step in STEPS:
        torch_folders(tmp_path, step)
    (tmp_path / "step_30" / "model.pt").unlink()
    result = invoke(tmp_path)
    assert result.stdout.endswith("step_20\n")
    assert "model.pt is missing" in result.stderr


NOT_KNOWN = "whether files of ranks are missing is not known"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("checkpoint_{}/random_states_{}.pkl", "random_states_1.pkl is missing, which the 2 checkpoints before have"),
        ("step_{}/step_{}_rank_{}.pt", NOT_KNOWN),
        ("{}/rank{}.pt", NOT_KNOWN),
    ],
)
def test_the_rank_of_a_process_is_not_taken_for_the_step(tmp_path: Path, place: str, words: str) -> None:
    """Accelerate counts its directories from 0, so that steps are equal to ranks."""
    folder, _, name = place.partition("/")
    for step in range(4):
        build(tmp_path / folder.format(step), "model.pt  torch w=F32[64]\n")
        for rank in (0, 1):
            numbers = (step, rank) if name.count("{}") > 1 else (rank,)
            build(tmp_path / folder.format(step), f"{name.format(*numbers)}  torch w=F32[64]\n")
    assert newest(tmp_path) == folder.format(3)
    max((tmp_path / folder.format(3)).iterdir()).unlink()
    assert newest(tmp_path) == folder.format(2)
    assert words in invoke(tmp_path).stderr


def sharded(root: Path, step: int, *lines: str) -> None:
    parts = "".join(f"model-{k:05}-of-00002.safetensors  safetensors w{k}=F32[8]\n" for k in (1, 2))
    parts += "optimizer.pt  torch m=F32[8]\nscheduler.pt  torch s=F32[1]\nrng_state.pth  torch r=F32[4]\n"
    state = f'trainer_state.json  json {{"global_step": {step}}}'
    build(root / f"checkpoint-{step}", "\n".join([*lines, parts, state, ""]))


INDEX = 'model.safetensors.index.json  json {"weight_map": {'
INDEX += '"w1": "model-00001-of-00002.safetensors", "w2": "model-00002-of-00002.safetensors"}}'


def test_shards_without_an_index_are_not_whole(tmp_path: Path) -> None:
    sharded(tmp_path, 10, INDEX)
    sharded(tmp_path, 20)
    assert newest(tmp_path) == "checkpoint-10"
    assert "2 of 2 shards are there, and no model.safetensors.index.json" in invoke(tmp_path).stderr
    sealed = CliRunner().invoke(toolbox, ["checkpoint", "seal", str(tmp_path / "checkpoint-20")])
    assert (sealed.exit_code, "no model.safetensors.index.json" in sealed.stdout) == (1, True)
    assert newest(tmp_path) == "checkpoint-20", "a manifest says which files belong to it"


@pytest.mark.parametrize("name", ["step-3\n0", "step-30 \x1b[2J", "step-30##[error]"])
def test_a_name_that_a_log_obeys_is_not_printed(tmp_path: Path, name: str) -> None:
    for step in (10, 20):
        torch_folders(tmp_path, step)
    shutil.copytree(tmp_path / "step_20", tmp_path / name)
    assert invoke(tmp_path).stdout == f"{tmp_path / 'step_20'}\n"
    shutil.rmtree(tmp_path / "step_10")
    shutil.rmtree(tmp_path / "step_20")
    assert (invoke(tmp_path).exit_code, invoke(tmp_path).stdout) == (1, "")


def test_links_are_not_followed(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for step in STEPS:
        torch_folders(run, step)
    torch_folders(elsewhere, 40)
    (run / "step_40").symlink_to(elsewhere / "step_40")
    (run / "step_30" / "model.pt").unlink()
    (run / "step_30" / "model.pt").symlink_to(elsewhere / "step_40" / "model.pt")
    assert newest(run) == "step_20"


def test_links_that_may_be_newer_are_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    torch_folders(run, 10)
    torch_folders(tmp_path / "elsewhere", 40)
    for name, target in {
        "step_20": "gone",
        "step_30": "../elsewhere/step_40",
        "newest": "step_10",
        "10": "step_10",
    }.items():
        (run / name).symlink_to(target)
    told = invoke(run).stderr
    assert f"{run / 'step_20'}: a link that leads nowhere, which is not followed\n" in told
    assert f"{run / 'step_30'}: a link, which is not followed\n" in told
    assert told.count("a link") == 2


def test_a_link_in_a_checkpoint_that_leads_nowhere_refuses_it(tmp_path: Path) -> None:
    for step in STEPS:
        torch_folders(tmp_path, step)
    (tmp_path / "step_30" / "optimizer.pt").symlink_to("gone.pt")
    assert newest(tmp_path) == "step_20"


@pytest.mark.parametrize("name", ["step_40", "tmp-checkpoint-40", "step_40.tmp"])
def test_a_save_that_has_begun_is_not_chosen(tmp_path: Path, name: str) -> None:
    for step in STEPS:
        torch_folders(tmp_path, step)
    (tmp_path / name).mkdir()
    assert newest(tmp_path) == "step_30"
    build(tmp_path / name, "model.pt  torch w=F32[64]\n")
    assert newest(tmp_path) == "step_30"


def test_a_save_beyond_the_pointer_was_not_completed(tmp_path: Path) -> None:
    for step in STEPS:
        folder = tmp_path / f"global_step{step}"
        build(folder, "mp_rank_00_model_states.pt  torch w=F32[4]\n")
        build(folder, "zero_pp_rank_0_mp_rank_00_optim_states.pt  torch m=F32[4]\n")
    (tmp_path / "latest").write_text("global_step20\n")
    assert newest(tmp_path) == "global_step20"
    (tmp_path / "latest").write_text("global_step999")
    assert newest(tmp_path) == "global_step30"


def test_the_step_of_the_content_decides(tmp_path: Path) -> None:
    for step in STEPS:
        huggingface(tmp_path, step)
    build(tmp_path / "checkpoint-30", 'trainer_state.json  json {"global_step": 10}\n')
    result = invoke(tmp_path)
    assert result.stdout.endswith("checkpoint-20\n")
    assert "TS-CKP-088" in result.stderr
    (tmp_path / "checkpoint-20").rename(tmp_path / "best")
    assert newest(tmp_path) == "best"


@pytest.mark.parametrize("sealed", [False, True])
def test_a_model_for_use_among_checkpoints_is_refused(tmp_path: Path, *, sealed: bool) -> None:
    for step in STEPS:
        huggingface(tmp_path, step)
    state = 'trainer_state.json  json {"global_step": 40}'
    build(tmp_path / "final", f"model.safetensors  safetensors w=F32[8]\n{state}\n")
    if sealed:
        build(tmp_path / "final", "trainspec-manifest.json  sealed\n")
    assert newest(tmp_path) == "checkpoint-30"
    result = invoke(tmp_path)
    assert "final" not in result.stdout
    (tmp_path / "final").rename(tmp_path / "step-40")
    result = invoke(tmp_path)
    assert result.stdout.endswith("checkpoint-30\n")
    assert "without state to resume from, and checkpoint-30 next to it has optimizer.pt" in result.stderr


def test_a_temporary_file_next_to_a_whole_one_refuses_nothing(tmp_path: Path) -> None:
    torch_files(tmp_path, 10)
    (tmp_path / "ckpt_20.pt.tmp").write_bytes(b"PK\x03\x04")
    assert newest(tmp_path) == "ckpt_10.pt"


def test_one_checkpoint_that_is_named_itself(tmp_path: Path) -> None:
    torch_folders(tmp_path, 10)
    result = invoke(tmp_path / "step_10")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step_10'}\n")


@pytest.mark.parametrize("name", ["epoch_{}.pt", "model-{:02}.keras", "ckpt-{}.weights.h5", "step-{}.safetensors"])
def test_files_of_saves_are_checkpoints_of_their_own(tmp_path: Path, name: str) -> None:
    for number in (2, 9, 11):
        (tmp_path / name.format(number)).write_bytes(b"nothing that can be read")
    found = [Path(one.path).name for one in judged_newest_first(tmp_path)]
    assert found == [name.format(number) for number in (11, 9, 2)]


@pytest.mark.parametrize("names", [("rank_0.pt", "rank_1.pt"), ("model_1.safetensors", "model_2.safetensors")])
def test_parts_of_one_save_stay_together(tmp_path: Path, names: tuple[str, ...]) -> None:
    kinds = {".pt": "torch", ".safetensors": "safetensors"}
    for name in names:
        build(tmp_path, f"{name}  {kinds[Path(name).suffix]} w=F32[4]\n")
    assert [one.path for one in judged_newest_first(tmp_path)] == [tmp_path.as_posix()]


@pytest.mark.parametrize(
    "name",
    [
        *("step_$(id)", "step_`id`_30", "step_30;id", "step_'30'", 'step_"30"', "step_30 --x", "-step_30", "~step_30"),
        *("step_30|id", "step_30&", "step_*_30", "step_30>x", "step_\\30", "step_{30,31}"),
    ],
)
def test_a_name_that_a_shell_obeys_is_not_printed(tmp_path: Path, name: str) -> None:
    root = tmp_path / "a $(run)"  # what the user names is the user's
    torch_folders(root, 20)
    shutil.copytree(root / "step_20", root / name)
    torch_folders(root / "x", 1)
    shutil.rmtree(root / "x")
    result = invoke(root)
    assert (result.exit_code, result.stdout) == (0, f"{root / 'step_20'}\n")
    shutil.rmtree(root / "step_20")
    result = invoke(root)
    assert (result.exit_code, result.stdout) == (1, ""), result.stderr
    assert "a shell could misread it" in result.stderr


@pytest.mark.parametrize("name", ["epoch=1-step=30,loss=0.25.ckpt", "step_30@a+b%c:d.pt", "schritt_ä_30.pt"])
def test_a_name_that_no_shell_obeys_is_printed(tmp_path: Path, name: str) -> None:
    torch_files(tmp_path, 30)
    (tmp_path / "ckpt_30.pt").rename(tmp_path / name)
    assert invoke(tmp_path).stdout == f"{tmp_path / name}\n"


@pytest.mark.parametrize(
    ("name", "kind"), [("model.onnx", "an ONNX"), ("model.Q4.gguf", "a GGUF"), ("model.pt2", "a torch.export")]
)
@pytest.mark.parametrize("folder", ["", "checkpoint-10/"])
def test_a_container_that_is_not_read_is_named(tmp_path: Path, name: str, kind: str, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_bytes(b"\x08\x07\x12\x07" * 9)
    result = invoke(tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{folder}{name}: is {kind} container, which is not read" in result.stderr


def test_a_newer_checkpoint_in_a_container_that_is_not_read(tmp_path: Path) -> None:
    build(tmp_path, "checkpoint-10/model.safetensors  safetensors w=F32[4]\n")
    (tmp_path / "checkpoint-20").mkdir()
    (tmp_path / "checkpoint-20" / "model.gguf").write_bytes(b"GGUF" * 9)
    result = invoke(tmp_path)
    assert "checkpoint-20/model.gguf: the file is a GGUF container, which is not read" in result.stderr


def test_a_container_next_to_state_that_is_whole_is_noted(tmp_path: Path) -> None:
    build(tmp_path, "model.safetensors  safetensors w=F32[4]\n")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" * 9)
    result = invoke(tmp_path)
    assert result.exit_code == 0
    assert "model.gguf: is a GGUF container, which is not read" in result.stderr


def test_threads_that_cannot_be_started_refuse_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is of the machine: nothing is concluded about the files."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    build(tmp_path, "step-10/model.safetensors  safetensors w=F32[4]\n")
    seal(tmp_path / "step-10")
    monkeypatch.setattr("threading._start_new_thread", refuse)
    assert terminal.run(toolbox, "trainspec", ["checkpoint", "newest-good", str(tmp_path)]) == 2


def test_a_whole_copy_of_an_older_save_is_passed_over(tmp_path: Path) -> None:
    for step in STEPS:
        dcp(tmp_path, step)
    shutil.rmtree(tmp_path / "step-30")
    shutil.copytree(tmp_path / "step-10", tmp_path / "step-30")
    result = invoke(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-20'}\n")
    assert "is also that of" in result.stderr
    assert "TS-CKP-074" in result.stderr


def test_a_copy_of_a_sealed_older_save_is_passed_over(tmp_path: Path) -> None:
    for step in STEPS:
        huggingface(tmp_path, step)
    seal(tmp_path / "checkpoint-10")
    shutil.rmtree(tmp_path / "checkpoint-30")
    shutil.copytree(tmp_path / "checkpoint-10", tmp_path / "checkpoint-30")
    assert newest(tmp_path) == "checkpoint-20"


# --- whole files that are not the ones to resume from


def reason(directory: Path) -> str:
    """Why the first checkpoint of a directory that is looked at is refused; empty where it is not."""
    return "".join(next(judged_newest_first(directory)).faults[:1])


STALE = [
    ("step-{}/model.pt", "step:200"),
    ("step_{}/model.pt", "global_step:200"),
    ("checkpoint-{}/model.pt", "step:200"),
    ("iter-{}/ckpt.pt", "iter_num:200"),
]


@pytest.mark.parametrize(("place", "step"), STALE)
def test_a_state_that_is_older_than_its_name_is_refused(place: str, step: str, tmp_path: Path) -> None:
    build(tmp_path, f"{place.format(100)}  torch model=F32[8] {step.split(':', maxsplit=1)[0]}:100\n")
    build(tmp_path, f"{place.format(300)}  torch model=F32[8] {step}\n")
    assert reason(tmp_path).endswith(f"({step.split(':', maxsplit=1)[0]}) is 200, older than 300 of the name")
    assert newest(tmp_path) == place.format(100).split("/")[0]


@pytest.mark.parametrize(
    ("place", "word"),
    [
        ("step-300/model.pt", "step:300"),
        ("step-300/model.pt", "step:299"),
        ("step-300/model.pt", "step:301"),
        ("iter-300/model.pt", "step:75"),
        ("step-300/model.pt", "iteration:75"),
        ("epoch-3/model.pt", "step:1"),
        ("300/model.pt", "step:75"),
    ],
)
def test_steps_that_agree_or_count_something_else_are_not_refused(place: str, word: str, tmp_path: Path) -> None:
    build(tmp_path, f"{place}  torch model=F32[8] {word}\n")
    assert reason(tmp_path) == ""


def test_a_count_next_to_no_model_is_not_the_step(tmp_path: Path) -> None:
    build(tmp_path, "step-300/model.pt  torch w=F32[8]\nstep-300/random_states_0.pt  torch seed:1 step:20\n")
    assert reason(tmp_path) == ""


def test_names_that_count_something_else_in_all_checkpoints_are_not_refused(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        build(tmp_path, f"step-{step}/model.pt  torch model=F32[8] step:{step // 4}\n")
    assert reason(tmp_path) == ""


def test_a_file_of_lightning_without_a_model_is_refused(tmp_path: Path) -> None:
    state = "global_step:{} pytorch-lightning_version:2"
    build(tmp_path, f"step=20.ckpt  torch state_dict=F32[8] {state.format(20)}\n")
    build(tmp_path, f"step=30.ckpt  torch {state.format(30)}\n")
    assert "the state of Lightning has no state_dict, so no model" in reason(tmp_path)
    assert newest(tmp_path) == "step=20.ckpt"


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "adapter_config.json"])
@pytest.mark.parametrize("text", ["", "{", '{"a": 1}}', "<html>"])
def test_settings_that_are_no_json_are_refused(name: str, text: str, tmp_path: Path) -> None:
    for step in (20, 30):
        huggingface(tmp_path, step)
        (tmp_path / f"checkpoint-{step}" / name).write_text('{"model_type": "llama"}')
    assert reason(tmp_path) == ""
    (tmp_path / "checkpoint-30" / name).write_text(text)
    assert f"checkpoint-30/{name}: the file is {'no JSON' if text else 'empty'}" in reason(tmp_path)
    assert newest(tmp_path) == "checkpoint-20"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("step-400-loss-900", "step-500-loss-0.1"),
        ("step400_seed2", "step500_seed1"),
        ("ckpt-400-v2", "ckpt-500-v1"),
        ("step-400-lr-1e-5", "step-500-lr-1e-4"),
    ],
)
@pytest.mark.parametrize("is_changed_last", [False, True])
def test_a_step_in_a_name_comes_before_what_else_it_counts(
    tmp_path: Path, older: str, newer: str, is_changed_last: bool
) -> None:
    for number, name in enumerate((older, newer)):
        build(tmp_path / name, "model.safetensors  safetensors w=F32[8]\n")
        seconds = 1_700_000_000 + (number if is_changed_last else -number) * 1_000
        os.utime(tmp_path / name / "model.safetensors", (seconds, seconds))
        os.utime(tmp_path / name, (seconds, seconds))
    assert newest(tmp_path) == newer


def test_two_counts_in_names_that_contradict_each_other_choose_nothing(tmp_path: Path) -> None:
    for name in ("epoch=9-step=10", "epoch=1-step=20"):
        build(tmp_path / name, "model.safetensors  safetensors w=F32[8]\n")
    with pytest.raises(
        SeveralSeriesError, match="epoch in their names is 1 and 9, and step in their names is 20 and 10"
    ):
        newest(tmp_path)


def test_a_checkpoint_without_a_step_is_named(tmp_path: Path) -> None:
    build(tmp_path, "step-500/model.safetensors  safetensors w=F32[8]\nother/model.safetensors  safetensors w=F32[9]\n")
    os.utime(tmp_path / "other", (1_000_000_000, 1_000_000_000))
    result = invoke(tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'step-500'}\n")
    assert "other: says no step, so it is not compared with those that do" in result.stderr


def test_state_that_all_checkpoints_of_torchtune_share_is_whole(tmp_path: Path) -> None:
    for epoch in (0, 1):
        build(
            tmp_path / f"epoch_{epoch}", f"model.safetensors  safetensors w=F32[{epoch + 1}]\nconfig.json  json {{}}\n"
        )
    build(tmp_path, "recipe_state/recipe_state.pt  torch w=F32[4]\n")
    assert Path(next(one.path for one in judged_newest_first(tmp_path) if not one.faults)).name == "epoch_1"
    path = tmp_path / "recipe_state/recipe_state.pt"
    path.write_bytes(path.read_bytes()[:-40])
    faults = [fault for one in judged_newest_first(tmp_path) for fault in one.faults]
    assert len(faults) == 2
    assert all("recipe_state.pt: " in fault for fault in faults)


def test_a_manifest_beside_its_checkpoint_makes_no_pointers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huggingface(tmp_path, 60)
    seal(tmp_path / "checkpoint-60")
    (tmp_path / "checkpoint-60" / "trainspec-manifest.json").rename(tmp_path / "trainspec-manifest.json")
    monkeypatch.chdir(tmp_path)
    result = invoke(Path())
    assert "checkpoint-60" in result.stdout, result.stderr
    assert "from which its program resumes" not in result.stderr


@pytest.mark.parametrize("random", ["random_states_0.pkl  torch\n", ""])
def test_a_save_of_accelerate_under_the_name_of_the_trainer_is_whole(random: str, tmp_path: Path) -> None:
    for step in (10, 20):
        lines = "model.safetensors  safetensors w=F32[4]\noptimizer.bin  torch m=F32[4]\nscheduler.bin  torch\n"
        build(tmp_path / f"checkpoint-{step}", lines + random)
    assert newest(tmp_path) == "checkpoint-20"
    (tmp_path / "checkpoint-20/optimizer.bin").unlink()
    assert newest(tmp_path) == "checkpoint-10"


@pytest.mark.parametrize("name", ["._model.safetensors", "._optimizer.pt"])
@pytest.mark.parametrize("is_real", [True, False])
def test_attributes_of_macos_are_no_state(name: str, is_real: bool, tmp_path: Path) -> None:
    huggingface(tmp_path / "checkpoint-10", 10)
    content = bytes.fromhex("0005160700020000") if is_real else bytes.fromhex("1105160700020000")
    (tmp_path / "checkpoint-10" / name).write_bytes(content + b"Mac OS X        " + bytes(4_072))
    assert newest(tmp_path) == ("checkpoint-10" if is_real else None)
    if is_real:
        assert f"{name}: is an AppleDouble file" in invoke(tmp_path).stderr
        seal(tmp_path / "checkpoint-10")
        assert newest(tmp_path) == "checkpoint-10"
        (tmp_path / "checkpoint-10" / name).write_bytes(content + b"Other          " + bytes(4_073))
        assert newest(tmp_path) is None
