"""A manifest covers everything below its directory, and any change of the tree is found and named."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoints.test_signature import write_keys
from tests.examples import examples
from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.checkpoints import seal, tree
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.system import atomic
from trainspec_validate.system.budget import Limit

WEIGHTS = "safetensors weight=F32[4]"
DIFFUSERS = f"""model_index.json  json {{"_class_name": "StableDiffusionPipeline"}}
unet/config.json  json {{"sample_size": 64}}
unet/diffusion_pytorch_model.safetensors  {WEIGHTS} bias=F32[2]
vae/config.json  json {{"latent_channels": 4}}
vae/diffusion_pytorch_model.safetensors  {WEIGHTS}
text_encoder/model.safetensors  safetensors embedding=F32[8]
checkpoint-500/model.safetensors  safetensors embedding=F32[6]
checkpoint-500/.hidden/state.txt  text held
scheduler/empty  folder
"""
FILES = [line.split()[0] for line in DIFFUSERS.splitlines() if not line.endswith("folder")]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(toolbox, ["checkpoint", *map(str, arguments)])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    build(tmp_path / "pipeline", DIFFUSERS)
    return tmp_path / "pipeline"


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path, ec.generate_private_key(ec.SECP256R1()))


def wrong(root: Path, *options: object) -> list[str]:
    """Paths that are named, without those that only the seal is about."""
    result = invoke("verify", root, *options)
    lines = [line for line in result.stdout.splitlines() if line.startswith(f"{root.as_posix()}/")]
    assert result.exit_code == (1 if lines else 0), result.output
    return sorted(line.removeprefix(f"{root.as_posix()}/").split(": ")[0] for line in lines)


def test_nested_models_are_sealed_and_signed(root: Path, keys: tuple[Path, Path]) -> None:
    assert invoke("seal", root, "--signing-key", keys[0]).exit_code == 0
    manifest = json.loads((root / "trainspec-manifest.json").read_text())
    assert sorted(file["path"] for file in manifest["files"]) == sorted(FILES)
    assert manifest["empty_folders"] == ["scheduler/empty"]
    assert wrong(root, "--public-key", keys[1]) == []
    build(root, "unet/diffusion_pytorch_model.safetensors  flipped\nsub/x.safetensors  text x\nsub/evil.py  text x\n")
    found = ["sub/evil.py", "sub/x.safetensors", "unet/diffusion_pytorch_model.safetensors"]
    assert wrong(root, "--public-key", keys[1]) == found


def test_the_gate_compares_the_whole_tree_too(root: Path) -> None:
    assert invoke("seal", root).exit_code == 0
    (root / "unet" / "more.py").write_text("x")
    (root / "vae" / "config.json").unlink()
    found = {(f.requirement, f.path.split("pipeline/")[1]) for f in validate([root]).findings if f.path}
    assert {("TS-CKP-073", "unet/more.py"), ("TS-CKP-071", "vae/config.json")} <= found


def test_the_gate_asks_for_no_second_manifest_of_what_one_covers(root: Path) -> None:
    assert invoke("seal", root).exit_code == 0
    for named in (root, root.parent):
        assert "TS-CKP-070" not in {finding.requirement for finding in validate([named]).findings}
    (root / "unet" / "more.py").write_text("x")
    found = [finding.path for finding in validate([root]).findings if finding.requirement == "TS-CKP-070"]
    assert found == [(root / "unet").as_posix()]
    found = [finding.path for finding in validate([root / "vae"]).findings if finding.requirement == "TS-CKP-070"]
    assert found == [(root / "vae").as_posix()]


def add(root: Path, path: str) -> list[str]:
    (root / path).with_name("new").write_text("x")
    return [str(Path(path).with_name("new"))]


def add_hidden_folder(root: Path, path: str) -> list[str]:
    (root / path).with_name(".new").mkdir()
    return [str(Path(path).with_name(".new"))]


def add_nested(root: Path, path: str) -> list[str]:
    folder = Path(path).with_name("step-7")
    build(root / folder, f"model.safetensors  {WEIGHTS}\ntrainspec-manifest.json  sealed\n__init__.py  text x\n")
    return [f"{folder}/{name}" for name in ("__init__.py", "model.safetensors", "trainspec-manifest.json")]


def delete(root: Path, path: str) -> list[str]:
    (root / path).unlink()
    return [path]


def delete_folder(root: Path, path: str) -> list[str]:
    folder = path.rpartition("/")[0]
    inside = [file for file in FILES if file.startswith(f"{folder}/")] if folder else ["scheduler/empty"]
    shutil.rmtree(root / (folder or "scheduler"))
    return inside


def rename(root: Path, path: str) -> list[str]:
    (root / path).rename(root / f"{path}.old")
    return [path, f"{path}.old"]


def flip(root: Path, path: str) -> list[str]:
    content = bytearray((root / path).read_bytes())
    content[len(content) // 2] ^= 1
    (root / path).write_bytes(content)
    return [path]


def append(root: Path, path: str) -> list[str]:
    with (root / path).open("ab") as file:
        file.write(b" ")
    return [path]


def link_inside(root: Path, path: str) -> list[str]:
    (root / path).rename(root / "kept")
    (root / path).symlink_to(root / "kept")
    return ["kept", path]


def link_folder_outside(root: Path, path: str) -> list[str]:
    folder = path.split("/", maxsplit=1)[0] if "/" in path else "vae"
    (root / folder).rename(root.with_name("outside"))
    (root / folder).symlink_to(root.with_name("outside"))
    return [folder, *(file for file in FILES if file.startswith(f"{folder}/"))]


def link_new(root: Path, path: str) -> list[str]:
    (root / path).with_name("cycle").symlink_to("cycle")
    (root / path).with_name("dangling").symlink_to("nothing")
    return [str(Path(path).with_name(name)) for name in ("cycle", "dangling")]


def hard_link(root: Path, path: str) -> list[str]:
    os.link(root / path, root / f"{path}.2")
    return [f"{path}.2"]


def swap(root: Path, path: str) -> list[str]:
    other = FILES[FILES.index(path) - 1]
    first, second = (root / path).read_bytes(), (root / other).read_bytes()
    (root / path).write_bytes(second)
    (root / other).write_bytes(first)
    return sorted([path, other])


def pipe(root: Path, path: str) -> list[str]:
    (root / path).unlink()
    os.mkfifo(root / path)
    return [path]


def to_folder(root: Path, path: str) -> list[str]:
    (root / path).unlink()
    (root / path).mkdir()
    return [path]


MUTATIONS = [add, add_hidden_folder, add_nested, delete, delete_folder, rename, flip, append, link_inside]
MUTATIONS += [link_folder_outside, link_new, hard_link, swap, pipe, to_folder]


@examples(40)
@given(mutate=st.sampled_from(MUTATIONS), path=st.sampled_from(FILES), signed=st.booleans())
def test_any_change_of_a_sealed_tree_is_named(
    tmp_path_factory: pytest.TempPathFactory,
    mutate: Callable[[Path, str], list[str]],
    path: str,
    signed: bool,
) -> None:
    place = tmp_path_factory.mktemp("trees")
    root = place / "pipeline"
    build(root, DIFFUSERS)
    private, public = write_keys(place, ec.derive_private_key(7, ec.SECP256R1()))
    assert invoke("seal", root, *(["--signing-key", private] if signed else [])).exit_code == 0
    options = ["--public-key", public] if signed else []
    assert wrong(root, *options) == []
    expected = mutate(root, path)
    found = wrong(root, *options)
    assert set(expected) <= set(found), (mutate.__name__, expected, found)
    shutil.rmtree(place)


def socket_at(path: Path) -> None:
    previous = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(previous)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: (root / "unet/near").symlink_to("config.json"), "unet/near: a link to 'config.json'"),
        (lambda root: (root / "out").symlink_to("/etc"), "out: a link to '/etc'; only files can be sealed"),
        (lambda root: (root / "dangling").symlink_to("nothing"), "dangling: a link to 'nothing'"),
        (lambda root: (root / "cycle").symlink_to("cycle"), "cycle: a link to 'cycle'"),
        (lambda root: os.mkfifo(root / "vae/pipe.pt"), "vae/pipe.pt: a pipe, a socket or a device"),
        (lambda root: socket_at(root / "vae/socket"), "vae/socket: a pipe, a socket or a device"),
        (lambda root: (root / "a\\b").write_text("x"), "the path holds a backslash"),
        (lambda root: Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_text("x"), "the path is no UTF-8"),
        (lambda root: Path(os.fsdecode(os.fsencode(root) + b"/\xff")).mkdir(), "the path is no UTF-8"),
        (lambda root: (root / "UNET/config.json").parent.mkdir() or add_twin(root), "in case only"),
        (
            lambda root: [(root / n).write_text("x") for n in ("\u00e9", "e\u0301")],
            "'\\xe9' differs from 'e\\u0301'",
        ),
        (lambda root: (root / "Trainspec-Manifest.json").write_text("x"), "in case only"),
        (lambda root: [(root / n).mkdir() for n in ("\u00e9", "e\u0301")], "in the Unicode form (NFC, NFD)"),
        (
            lambda root: [(root / n).parent.mkdir() or (root / n).write_text("x") for n in ("a/b", "A/c")],
            "in case only",
        ),
    ],
)
def test_what_cannot_be_covered_is_named_and_nothing_is_sealed(
    root: Path, make: Callable[[Path], object], words: str
) -> None:
    make(root)
    result = invoke("seal", root)
    assert (result.exit_code, words in result.stderr) == (2, True), result.output
    assert not (root / "trainspec-manifest.json").exists()


def add_twin(root: Path) -> None:
    (root / "UNET" / "config.json").write_text("x")


def test_every_obstacle_is_named_in_lines_of_a_number_that_is_bounded(root: Path) -> None:
    for number in range(30):
        (root / f"link-{number:02}").symlink_to("x")
    lines = invoke("seal", root).stderr.splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("10 more")


def test_names_with_control_characters_are_covered_and_printed_escaped(root: Path) -> None:
    (root / "a\nb\x1b[2J").write_text("x")
    assert invoke("seal", root).exit_code == 0
    assert wrong(root) == []
    (root / "a\nb\x1b[2J").write_text("y")
    assert wrong(root) == ["a\\nb\\x1b[2J"]


def test_a_pipe_is_never_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(root / "model.pt")
    opened = []
    original = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: opened.append(str(path)) or original(path, *more, **named)
    )
    assert invoke("seal", root).exit_code == 2
    validate([root])
    assert opened
    assert not [path for path in opened if path.endswith("model.pt")]


def test_a_directory_that_cannot_be_listed_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("seal", root).exit_code == 0
    original = tree._entries

    def refuse(directory: Path, *, may_be_link: bool) -> list[tuple[str, bool]]:
        if directory.name == "vae":
            raise PermissionError(13, "Permission denied")
        return original(directory, may_be_link=may_be_link)

    monkeypatch.setattr(tree, "_entries", refuse)
    result = invoke("seal", root, "--force")
    assert (result.exit_code, "vae: the directory cannot be listed: permission denied" in result.stderr) == (2, True)
    assert "vae" in wrong(root)


def test_more_files_than_the_limit_are_never_sealed_in_part(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke("seal", root).exit_code == 0
    monkeypatch.setattr(tree, "ENTRIES", Limit("a checkpoint directory", 12, "entries"))
    result = invoke("seal", root, "--force")
    assert (result.exit_code, "at most 12 entries" in result.stderr) == (2, True)
    result = invoke("verify", root)
    assert (result.exit_code, "at most 12 entries" in result.stdout) == (1, True)


@pytest.mark.parametrize("name", ["vae/config.json", "vae/late.py", "late"])
def test_what_changes_while_it_is_sealed_or_verified_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    original = seal.digests

    def late(*arguments: object) -> object:
        found = original(*arguments)
        (root / name).mkdir() if name == "late" else (root / name).write_text('{"latent_channels": 5}')
        return found

    with monkeypatch.context() as patched:
        patched.setattr(seal, "digests", late)
        result = invoke("seal", root)
    assert (result.exit_code, f"{name}: the " in result.stderr, "changed while" in result.stderr) == (2, True, True)
    assert not (root / "trainspec-manifest.json").exists()
    (root / name).rmdir() if name == "late" else None
    assert invoke("seal", root).exit_code == 0
    monkeypatch.setattr("trainspec_validate.checkpoints.compare.digests", late)
    if name != "vae/late.py":
        os.utime(root / "vae/config.json", (1, 1))
        assert name in wrong(root)


def test_a_log_that_is_unsealed_may_change(root: Path) -> None:
    (root / "vae" / "log.txt").write_text("a")
    assert invoke("seal", root, "--unsealed", "*.txt").exit_code == 0
    (root / "vae" / "log.txt").write_text("ab")
    assert wrong(root) == []
    (root / "vae" / "log.txt").unlink()
    (root / "vae" / "log.txt").symlink_to("/etc/hostname")
    assert wrong(root) == ["vae/log.txt"]
    assert invoke("seal", root, "--force", "--unsealed", "vae/*.txt").exit_code == 2


def interrupted(root: Path, monkeypatch: pytest.MonkeyPatch, *options: object) -> str:
    """The name of what a seal leaves that is killed before it renames."""

    def kill(_self: Path, _target: object) -> None:
        raise KeyboardInterrupt

    before = {entry.name for entry in root.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", kill)
        patched.setattr(Path, "unlink", lambda *_arguments, **_named: None)
        invoke("seal", root, *options)
    (name,) = {entry.name for entry in root.iterdir()} - before
    return name


def test_an_interrupted_seal_harms_no_checkpoint(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = interrupted(root, monkeypatch)
    content = (root / name).read_bytes()
    result = invoke("seal", root)
    assert (result.exit_code, f"{name}: left by an interrupted seal" in result.stdout) == (0, True)
    for number in (0, 1, 60, 200, len(content)):
        (root / name).write_bytes(content[:number])
        result = invoke("verify", root)
        assert (result.exit_code, f"{name}: left by an interrupted seal" in result.stdout) == (0, True), result.output
    old = root / "trainspec-manifest.json.tmp"
    (root / name).rename(old)
    assert invoke("verify", root).exit_code == 0


@pytest.mark.parametrize("name", ["trainspec-manifest.json.tmp", ".trainspec-0123456789abcdef"])
@pytest.mark.parametrize("content", [b"import os", b"PK\x03\x04", b"{\n\0", b"{ ", struct.pack("<Q", 2) + b"{}"])
def test_the_name_of_a_leftover_hides_nothing(root: Path, name: str, content: bytes) -> None:
    assert invoke("seal", root).exit_code == 0
    (root / name).write_bytes(content)
    assert wrong(root) == [name]


@pytest.mark.parametrize(
    "name", ["vae/trainspec-manifest.json.tmp", ".trainspec-0123456789abcde", "trainspec-manifest.json.tmp.pt"]
)
def test_only_the_exact_name_in_the_directory_itself_is_a_leftover(root: Path, name: str) -> None:
    assert invoke("seal", root).exit_code == 0
    (root / name).write_bytes(b"")
    assert wrong(root) == [name]
    (root / name).unlink()
    (root / "trainspec-manifest.json.tmp").symlink_to("model_index.json")
    assert wrong(root) == ["trainspec-manifest.json.tmp"]


@pytest.mark.parametrize("name", ["trainspec-manifest.json", "model.sig"])
@pytest.mark.parametrize("target", ["victim", "nothing"])
def test_nothing_is_written_through_a_link(root: Path, keys: tuple[Path, Path], name: str, target: str) -> None:
    victim = root.with_name("victim")
    victim.write_text("mine")
    (root / name).symlink_to(root.with_name(target))
    result = invoke("seal", root, "--force", "--signing-key", keys[0])
    assert (result.exit_code, f"{name}: a link" in result.stderr) == (2, True)
    assert (victim.read_text(), root.with_name("nothing").exists()) == ("mine", False)
    assert not (root / "trainspec-manifest.json").is_file() or name == "trainspec-manifest.json"


@pytest.mark.parametrize("name", [".trainspec-0000000000000000", "trainspec-manifest.json.tmp", "model.sig.tmp"])
def test_no_link_in_place_of_what_is_written_first_is_followed(
    root: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    victim = root.with_name("victim")
    victim.write_text("mine")
    (root / name).symlink_to(victim)
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _number: "0" * 16)
    result = invoke("seal", root, "--signing-key", keys[0])
    assert (result.exit_code, f"{name}: a link to" in result.stderr) == (2, True)
    assert victim.read_text() == "mine"
    with pytest.raises(OSError, match="exists"):
        atomic.write_atomically(root / "model.sig", "x") if name.startswith(".") else (root / name).mkdir()
    assert victim.read_text() == "mine"


def test_manifests_without_the_key_for_empty_directories_hold(root: Path) -> None:
    (root / "scheduler" / "empty").rmdir()
    (root / "scheduler").rmdir()
    assert invoke("seal", root).exit_code == 0
    assert "empty_folders" not in json.loads((root / "trainspec-manifest.json").read_text())
    assert wrong(root) == []


def test_what_is_sealed_inside_of_another_checkpoint_is_judged_or_named(tmp_path: Path) -> None:
    inner = tmp_path / "step-5" / "step-10"
    build(inner, f"model.safetensors  {WEIGHTS}\nconfig.json  json {{}}\n")
    assert CliRunner().invoke(toolbox, ["checkpoint", "seal", str(inner)]).exit_code == 0
    told = [entry.path for entry in validate([tmp_path / "step-5"]).unjudged if "sealed by itself" in entry.reason]
    assert told == [inner.as_posix()]


def test_a_manifest_that_is_a_directory_is_an_error(tmp_path: Path) -> None:
    build(tmp_path / "step-5", f"model.safetensors  {WEIGHTS}\n")
    (tmp_path / "step-5" / "trainspec-manifest.json").mkdir()
    found = validate([tmp_path / "step-5"]).findings
    assert ["the manifest is a directory" in one.message for one in found if one.severity == "error"] == [True]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("Elsewhere.json")], ids=["pipe", "link"])
def test_the_path_of_a_manifest_that_is_no_file_keeps_its_letters(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    root = tmp_path / "Run-A"
    build(root, DIFFUSERS)
    make(root / "trainspec-manifest.json")
    result = CliRunner().invoke(toolbox, ["checkpoint", "verify", str(root)])
    assert result.exit_code != 0
    assert str(root / "trainspec-manifest.json") in result.output
    assert str(root).lower() not in result.output


def edited(root: Path, change: Callable[[dict[str, object]], object]) -> Result:
    """What `verify` says after a change of the manifest."""
    assert invoke("seal", root).exit_code == 0
    file = root / "trainspec-manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    return invoke("verify", root)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda manifest: manifest.pop("kind"), "lacks the key 'kind'"),
        (lambda manifest: manifest.update(kind="TrainingPlan"), "is not a value of 'kind'"),
        (lambda manifest: manifest.update(unsealed=["unet/config.json"]), "'unet/config.json' is among the files with"),
        (lambda manifest: manifest.update(empty_folders=["unet"]), "'unet' is among the empty directories"),
        (lambda manifest: manifest.update(empty_folders=["unet", "scheduler/empty"]), "'unet' is among the empty"),
    ],
)
def test_a_manifest_that_is_none_or_contradicts_itself_is_no_seal(
    change: Callable[[dict[str, object]], object], words: str, root: Path
) -> None:
    result = edited(root, change)
    assert result.exit_code in {1, 2}
    assert words in result.output


def test_a_manifest_that_is_written_anew_is_a_seal(root: Path) -> None:
    assert edited(root, len).exit_code == 0
