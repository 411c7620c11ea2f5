"""Seals and verifies checkpoints at the command line, and reports the rate next to a plain read's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from trainspec_validate._version import __version__
from trainspec_validate.checkpoints import compare, hashing, signature
from trainspec_validate.checkpoints.envelope import SignatureError
from trainspec_validate.checkpoints.formats import manifest as manifests
from trainspec_validate.checkpoints.inventory import inventory
from trainspec_validate.checkpoints.leftovers import forgiven, leftovers
from trainspec_validate.checkpoints.newest import (
    Code,
    Judgement,
    SeveralSeriesError,
    judged_newest_first,
    unjudged_state,
)
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.read_rates import Reads
from trainspec_validate.checkpoints.seal import Facts, SealError, check_damage, seal, unsealed_matches, write
from trainspec_validate.checkpoints.view import MANIFEST_NAME, SIGNATURE_NAME, Checkpoint
from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.documents.types.checkpoint import StateItem
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.system.neutral import printable

Result = TypeVar("Result")
_SHOWN = 5


class _Directory(click.Path):
    """A directory that is there; a device or a pipe, which click lets pass, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as it was given."""
        if Path(os.fsdecode(value)).is_file():
            place = f"{os.fsdecode(value)!r} is a file"
            if ctx is not None and ctx.command.name == "newest-good":
                self.fail(f"{place}: name the directory that holds the checkpoints", param, ctx)
            words = "a manifest covers all files of a directory, so move it into one of its own, and name that"
            self.fail(f"{place}: {words}", param, ctx)
        found = super().convert(value, param, ctx)
        if not Path(os.fsdecode(found)).is_dir():
            self.fail(f"Directory {os.fsdecode(found)!r} is not a directory.", param, ctx)
        return found


_directory = _Directory(exists=True, file_okay=False)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)
_progress = click.option("--no-progress", is_flag=True, help="Never show a progress bar.")


@click.group(
    epilog="""\b
Examples:
  trainspec checkpoint seal run/step-1000 --state model,optimizer,rng,step
  trainspec checkpoint verify run/step-1000
  trainspec checkpoint seal run/step-1000 --signing-key key.pem
  trainspec checkpoint verify run/step-1000 --public-key key.pub.pem
  trainspec checkpoint newest-good run

trainspec-validate DIRECTORY judges checkpoints by every requirement; seal and verify know the manifest only.
"""
)
def command() -> None:
    """Seal a checkpoint with a manifest of its files, verify one, or find the newest that is whole."""


def _state(_context: click.Context, _option: click.Parameter, words: str | None) -> tuple[str, ...]:
    items = tuple(word.strip() for word in (words or "").split(",") if word.strip())
    for item in items:
        if item not in get_args(StateItem):
            raise click.BadParameter(f"{item!r} is no item of state; one of: {', '.join(get_args(StateItem))}")
    return items


@command.command("seal")
@click.argument("directory", type=_directory)
@click.option("--step", type=click.IntRange(0), help="Step of the state. Default: the one that the checkpoint says.")
@click.option("--num-tokens", type=click.FloatRange(0), metavar="NUMBER", help="Tokens consumed up to that step.")
@click.option("--num-ranks", type=click.IntRange(1), metavar="NUMBER", help="Ranks that took part in the save.")
@click.option("--run", "run_name", metavar="NAME", help="Run that the checkpoint belongs to.")
@click.option("--save-id", metavar="ID", help="Identity of the save. Default: a new one.")
@click.option("--state", callback=_state, metavar="ITEMS", help="Items of state that the files hold, with commas.")
@click.option("--unsealed", multiple=True, metavar="PATTERN", help="Files to leave without a digest. Repeatable.")
@click.option("--signing-key", type=_file, metavar="FILE", help="Sign too: private key in PEM, on an elliptic curve.")
@click.option("--force", is_flag=True, help="Replace a manifest that is there.")
@_progress
@click.pass_context
def seal_(  # noqa: PLR0913, PLR0917
    context: click.Context,
    directory: str,
    step: int | None,
    num_tokens: float | None,
    num_ranks: int | None,
    run_name: str | None,
    save_id: str | None,
    state: tuple[str, ...],
    unsealed: tuple[str, ...],
    signing_key: Path | None,
    force: bool,
    no_progress: bool,
) -> None:
    """Write the manifest of the checkpoint in DIRECTORY: every file at any depth with its size and SHA-256.

    Fails, and names each, where there is something that the manifest cannot cover: a link, a pipe, a socket or a
    device, a name that is no UTF-8, a directory that cannot be listed, a file that changes meanwhile, a file that
    its own format shows to be damaged.

    Exits with 1, with the manifest written, where a file or mark is missing that the checkpoint by its own words has,
    or where a part was not examined, as it passes a limit.

    A signature goes into model.sig, in the format of OpenSSF Model Signing.
    """
    checkpoint = read_checkpoint(Path(directory))
    _tell_leftovers(checkpoint, leftovers(checkpoint))
    if MANIFEST_NAME in checkpoint.tree and not force:
        raise Failure(f"{checkpoint.place(MANIFEST_NAME)}: already there; --force replaces it")
    named = unsealed_matches(checkpoint, unsealed)
    sign = None if signing_key is None else _signer(signing_key)
    tool = ("trainspec", __version__)
    facts = Facts(tool, save_id, step, num_tokens, run_name, num_ranks, state, named)
    missing = _seal(checkpoint, facts, no_progress=no_progress)
    if sign is not None:
        _sign(checkpoint.root, sign)
        terminal.say(f"{checkpoint.place(SIGNATURE_NAME)}: signed with {signing_key}")
    context.exit(terminal.FINDINGS if missing else terminal.OK)


def _seal(checkpoint: Checkpoint, facts: Facts, *, no_progress: bool) -> list[str]:
    """Write the manifest; what the checkpoint lacks by its own indexes is named and returned."""
    start = time.monotonic()
    try:
        missing = check_damage(checkpoint, facts.unsealed)
        manifest = _with_bar("hashing", no_progress, lambda bar: seal(checkpoint, facts, bar))
        path = write(checkpoint.root, manifest)
    except (SealError, ValueError) as error:
        raise Failure.of(error) from error
    except OSError as error:
        raise Failure(f"{checkpoint.root}: cannot be written: {reason_of(error)}") from error
    num_bytes = sum(file["size_bytes"] for file in manifest["files"])
    rate = _rate(num_bytes, time.monotonic() - start)
    terminal.say(f"{path.as_posix()}: {_files(len(manifest['files']))}, {num_bytes:,} bytes, {rate}")
    _tell_unsealed(checkpoint, facts.unsealed)
    terminal.emit("".join(f"{printable(line)}\n" for line in missing))
    return missing


def _tell_unsealed(checkpoint: Checkpoint, paths: Sequence[str]) -> None:
    """Name the files that a manifest leaves without a digest."""
    if paths:
        terminal.say(f"{checkpoint.name}: {_files(len(paths))} left unsealed, which no digest protects:")
    for path in paths:
        terminal.say(f"  unsealed: {checkpoint.place(path)}")


def _tell_leftovers(checkpoint: Checkpoint, paths: list[str]) -> None:
    """Say which files no manifest covers, as an interrupted seal has left them."""
    for path in paths:
        words = "left by an interrupted seal, and covered by no manifest; remove it"
        terminal.say(f"{checkpoint.place(path)}: {words}")


def _signer(path: Path) -> Callable[[Checkpoint], Path]:
    try:
        return signature.signer(path)
    except SignatureError as error:
        raise Failure(str(error)) from error


def _sign(root: Path, sign: Callable[[Checkpoint], Path]) -> None:
    try:
        sign(_sealed(root))
    except SignatureError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{root}: cannot be written: {reason_of(error)}") from error


def _sealed(root: Path) -> Checkpoint:
    """The checkpoint with its manifest.

    Raises:
        Failure: there is none that can be read.
    """
    checkpoint = inventory(root)
    manifests.read(checkpoint)
    if checkpoint.manifest is None:
        words = checkpoint.manifest_problem or "there is none; write one with trainspec checkpoint seal"
        raise Failure(f"{checkpoint.place(MANIFEST_NAME)}: {words}")
    return checkpoint


def _with_bar(doing: str, no_progress: bool, work: Callable[[hashing.Progress], Result]) -> Result:
    bar = terminal.Bar(wanted=not no_progress, doing=doing)
    try:
        return work(bar)
    finally:
        bar.close()


def _files(number: int) -> str:
    return f"{number:,} file{'' if number == 1 else 's'}"


def _rate(num_bytes: int, seconds: float) -> str:
    return f"{num_bytes / max(seconds, 1e-9) / 1e9:.2f} GB/s"


@command.command("verify")
@click.argument("directory", type=_directory)
@click.option(
    "--compare-read",
    is_flag=True,
    help="Read the same files without hashing too, from the storage before and after, and show all rates.",
)
@click.option("--public-key", type=_file, metavar="FILE", help="Check the signature too: public key in PEM.")
@_progress
@click.pass_context
def verify(
    context: click.Context, directory: str, compare_read: bool, public_key: Path | None, no_progress: bool
) -> None:
    """Compare everything below DIRECTORY with the manifest of the checkpoint, at the speed of the storage.

    Many files are read at once and ahead of the hashing. One file alone is hashed by one processor.

    Exits with 1 when a file or directory at any depth is missing, changed or not listed, or when a signature covers
    something else or, with --public-key, was not made by that key. Files of an interrupted seal are named; they are
    wrong with --public-key, and where they do not repeat the manifest or the signature. After an interrupted seal run
    `trainspec checkpoint seal --force` again, and remove the files that it names.
    """
    checkpoint = _sealed(Path(directory))
    _tell_leftovers(checkpoint, forgiven(checkpoint))
    paths = list(compare.comparable(checkpoint))
    reads = Reads(checkpoint.root, paths) if compare_read else None
    start = time.monotonic()
    wrong = [
        *_wrong_signature(checkpoint, public_key),
        *_wrong(checkpoint, no_progress, is_strict=public_key is not None),
    ]
    seconds = time.monotonic() - start
    terminal.emit("".join(f"{printable(line)}\n" for line in wrong))
    num_bytes = sum(checkpoint.tree[path].size_bytes for path in paths)
    told = f"{checkpoint.name}: {_files(len(paths))}, {num_bytes:,} bytes hashed at {_rate(num_bytes, seconds)}"
    if reads is not None:
        told += "".join(
            f"{mark} {read_seconds / seconds:.0%} of {name} ({_rate(num_bytes, read_seconds)})"
            for mark, (name, read_seconds) in zip(":,", reads.again().items(), strict=True)
        )
    terminal.say(f"{told}; {len(wrong):,} wrong")
    _tell_unsealed(checkpoint, checkpoint.manifest.unsealed if checkpoint.manifest else ())
    context.exit(terminal.FINDINGS if wrong else terminal.OK)


def _wrong_signature(checkpoint: Checkpoint, key: Path | None) -> Iterator[str]:
    """What speaks against the signature; without a key nobody knows whose it is, which is said."""
    place = checkpoint.place(SIGNATURE_NAME)
    if SIGNATURE_NAME not in checkpoint.files:
        if key is not None:
            yield f"{place}: there is none, and --public-key asks for one"
        return
    try:
        found = signature.read(checkpoint)
        yield from (f"{place}: {words}" for words in signature.differences(checkpoint, found))
    except SignatureError as error:
        yield f"{place}: {error}"
        return
    if key is None:
        terminal.say(f"{place}: whose signature it is was not checked; --public-key does")
        return
    try:
        if not signature.is_made_by(found, key):
            yield f"{place}: the signature was not made by the key of {key}"
    except SignatureError as error:
        raise Failure(str(error)) from error


def _wrong(checkpoint: Checkpoint, no_progress: bool, *, is_strict: bool) -> list[str]:
    told = [(trouble.path, trouble.message) for trouble in checkpoint.troubles]
    told += compare.absent_files(checkpoint)
    told += _with_bar("hashing", no_progress, lambda bar: list(compare.changed_files(checkpoint, bar)))
    told += compare.unlisted_files(checkpoint, is_strict=is_strict)
    known = {path for path, _ in told}
    told += (one for one in compare.changed_meanwhile(checkpoint) if one[0] not in known)
    return [f"{checkpoint.place(path)}: {words}" for path, words in told]


@command.command("newest-good")
@click.argument("directory", type=_directory)
@click.option("--structure-only", is_flag=True, help="Compare no content with digests and checksums.")
@click.option(
    "--code",
    type=click.Choice(get_args(Code)),
    default="classes",
    show_default=True,
    help="Names that pickles may hold: plain state alone, classes too, or anything.",
)
@click.pass_context
def newest_good(context: click.Context, directory: str, structure_only: bool, code: Code) -> None:
    """Print the path of the newest whole checkpoint in DIRECTORY, for a launcher that resumes from it.

    Standard output is that one line, or nothing. Standard error says why newer checkpoints are not whole.

    A checkpoint is whole if its manifest, containers, indexes, shards and completion mark agree with its files, and
    content with every digest and checksum that there is. Each file is read at most once, from the newest checkpoint on
    until one is whole. Nothing is unpickled and no link is followed.

    A checkpoint is passed over if latest_checkpointed_iteration.txt names an older one, from which Megatron-LM resumes,
    if latest or dlrover_latest.txt does and it has no mark of its own, if its name holds a character that a shell could
    misread, or if unpickling it would run a function of Python, PyTorch or NumPy that makes no plain state. A class of
    a program is noted, and so is one of these pointers that is empty or names no checkpoint.

    Exits with 1 where no checkpoint is whole, and with 2 where checkpoints are in several directories below DIRECTORY,
    or names and contents contradict each other about which one is newer.
    """
    try:
        for one in judged_newest_first(Path(directory), reads_content=not structure_only, code=code):
            _tell_judgement(one)
            if not one.faults:
                terminal.emit_document(f"{one.path}\n")
                return
    except SeveralSeriesError as error:
        raise Failure(f"{directory}: {error}") from error
    terminal.tell(f"{directory}: no whole checkpoint")
    _tell_lines(list(unjudged_state(Path(directory))))
    context.exit(terminal.FINDINGS)


def _tell_judgement(one: Judgement) -> None:
    """Say on standard error why a checkpoint is not whole, or what was not judged of one that is."""
    state = "not whole" if one.faults else "whole"
    terminal.tell(f"{one.path}: {state}")
    _tell_lines(one.faults or one.notes)


def _tell_lines(lines: Sequence[str]) -> None:
    """The first few lines, and how many more there are."""
    for line in lines[:_SHOWN]:
        terminal.tell(f"  {line}")
    if len(lines) > _SHOWN:
        terminal.tell(f"  {len(lines) - _SHOWN:,} more")
