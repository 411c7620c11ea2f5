"""Chooses the newest whole checkpoint of a directory, for a launcher that resumes from it.

The step is what the content says: a name only says which checkpoint is read first, and one whose content says another
step is refused. Without a step, what the name counts decides, steps before epochs, and then the time of the last
change. Files of `torch.save` side by side are ordered by `saves`. None is chosen where names and contents, or two
counts in names, contradict each other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from trainspec_validate.checkpoints import bundles, commits
from trainspec_validate.checkpoints.boundary import AMBIGUOUS
from trainspec_validate.checkpoints.candidates import Candidate, candidates_of
from trainspec_validate.checkpoints.containers import is_of_arrays, unnamed_state, unread_container, unread_state
from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.formats.by_content import is_unloadable
from trainspec_validate.checkpoints.formats.manifest import take_from_above
from trainspec_validate.checkpoints.inventory import Group, find, inventory, without_sealed_runs
from trainspec_validate.checkpoints.judge import judge_series
from trainspec_validate.checkpoints.lacking import NUM_COMPARED, forms_of_state, lacking
from trainspec_validate.checkpoints.leftovers import broken_seals
from trainspec_validate.checkpoints.limits import DEPTH, ENTRIES
from trainspec_validate.checkpoints.lone_values import NOTHING
from trainspec_validate.checkpoints.lost_tensors import changed_tensors, lost_tensors
from trainspec_validate.checkpoints.progress import hold_the_same
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.rest import are_at_rest
from trainspec_validate.checkpoints.runs import several_runs
from trainspec_validate.checkpoints.save_names import STEP_NAME, is_set_aside
from trainspec_validate.checkpoints.saves import (
    Saved,
    are_equal,
    are_parts,
    are_unordered,
    contradiction,
    state_of,
    states_in,
    without_optimizer,
)
from trainspec_validate.checkpoints.several_saves import several_saves
from trainspec_validate.checkpoints.stated_steps import not_compared
from trainspec_validate.checkpoints.trainer_files import resume_state
from trainspec_validate.checkpoints.tree import changes, fact_of
from trainspec_validate.checkpoints.twins import (
    NUM_BESIDE,
    are_misplaced,
    borrowed,
    copied_from,
    is_same,
    stale_shards,
    stale_weights,
    weights_of,
)
from trainspec_validate.checkpoints.unwritten import unwritten_ends
from trainspec_validate.checkpoints.usable import counted_ahead, counted_behind, unusable
from trainspec_validate.checkpoints.view import Checkpoint, Pointer, Series
from trainspec_validate.model.finding import Finding
from trainspec_validate.model.requirements import load_index
from trainspec_validate.system.neutral import neutral

_STRUCTURE = (
    *("TS-SEC-002", "TS-SEC-003", "TS-CKP-071", "TS-CKP-073", "TS-CKP-076", "TS-CKP-080", "TS-CKP-082", "TS-CKP-083"),
    *("TS-CKP-085", "TS-CKP-086", "TS-CKP-087", "TS-CKP-088"),
)
"""Requirements that a checkpoint violates when it is not whole, without its content being read."""
_PARTS = (frozenset({"model", "models", "modeling", "weights"}), frozenset({"optim", "optimizer", "optimizers"}))
"""Names of directories for two parts of a checkpoint, as ColossalAI writes them."""
_CONTENT = ("TS-CKP-072", "TS-CKP-084")
"""Those that read every byte that a digest or a checksum covers, once."""
_CODE = "TS-SEC-001"
_NOTED = (_CODE, "TS-CKP-081", "TS-CKP-089", "TS-CKP-090")
"""Those whose violation is reported and refuses nothing: a copy violates them too."""
_RESIDUE = "TS-CKP-081"
_ARRAYS = "holds arrays of NumPy alone"
_SIGNS = "._=+,@%:-"
_MARKS = _SIGNS + "0123456789"
Code = Literal["listed", "classes", "any"]
"""Names that pickles may contain: plain state; also classes, which are noted; or anything, which is noted."""
_AGAIN = ", which unpickles a tensor once more; torch.save writes it without"
"""Of a tensor that `pickle.dump` wrote."""
_COMMON_STATE = "recipe_state"
"""Directory of the optimizer and the progress of torchtune, for the newest of the directories with weights next to it:
https://github.com/meta-pytorch/torchtune/blob/7844b669c6d3cd83e120f47bac28089dbcc1afb6/torchtune/training/checkpointing/_checkpointer.py"""
_BEST = re.compile(r"(?:^|[-_.])best(?=[-_.0-9]|$)", re.IGNORECASE)
"""A save that was the best so far is as old as another one, or older."""
_NUM_IDS = 16
"""Older checkpoints whose save ids a newer one may not have."""
_SAVE_ID = ("TS-CKP-074",)


class SeveralSeriesError(Exception):
    """Checkpoints are in several directories, or of several runs; the text names them."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """What was asked for."""

    directory: Path
    reads_content: bool
    code: Code
    beside: tuple[Path, ...]
    """Directories of all checkpoints."""
    is_alone: bool
    """Whether there is one checkpoint only."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings on one checkpoint."""

    path: str
    """The checkpoint, as its directory was named."""
    faults: tuple[str, ...]
    """Why it is not whole; empty where it is."""
    notes: tuple[str, ...]
    """Facts for a reader of a log, although the checkpoint is not refused for them."""


def judged_newest_first(directory: Path, *, reads_content: bool = True, code: Code = "classes") -> Iterator[Judgement]:
    """The checkpoints of a directory, judged one by one from the newest on; whoever iterates stops at a whole one.

    Args:
        directory: holds checkpoints, or is one.
        reads_content: compare content with digests and checksums too.
        code: what pickles may name, as far as a checkpoint is not refused for it.

    Raises:
        SeveralSeriesError: checkpoints are in several directories below it, or which one is newer is not known.
    """
    group = _series(directory)
    if group is None:
        return
    if words := several_runs(group.root):
        raise SeveralSeriesError(words)
    group = _apart(group)
    if words := several_saves(group):
        raise SeveralSeriesError(words)
    candidates, others = candidates_of(group)
    beside = tuple(one.root for one in candidates if one.files is None)
    terms = _Terms(directory, reads_content, code, beside, is_alone=len(group.members) == 1)
    committed = commits.committed(group, candidates)
    aside = (
        *_unfollowed(group),
        *_unread_beside(group),
        *_left_out(others),
        *_set_aside(candidates),
        *commits.dangling(group, candidates),
    )
    for place, one in enumerate(candidates):
        older = list(islice(candidates, place + 1, place + 1 + _NUM_IDS))
        found = _judge(one, older, committed, terms)
        found = replace(found, faults=(*found.faults, *_without_common_state(others, terms)))
        if not found.faults:
            _check_order(one, candidates[place + 1 :], terms)
            _check_left_out(one, others, terms)
        equals = (*_equals(one, candidates[place + 1 :]), *commits.tracked(group, one, candidates))
        yield replace(found, notes=(*aside, *equals, *found.notes))


def unjudged_state(directory: Path) -> Iterator[str]:
    """The files of state in a directory that are in no checkpoint, and why nothing judges them, in words."""
    members = [member for group in find(directory) for member in group.members]
    for path, why in unread_state(directory, members):
        yield f"{path.as_posix()}: {why}"


def _unfollowed(group: Group) -> Iterator[str]:
    """Links by the names of checkpoints next to those of a directory, which may be newer and are not looked at."""
    if group.members == [group.root]:
        return
    with os.scandir(group.root) as entries:
        links = sorted(entry.name for entry in islice(entries, int(ENTRIES.most)) if entry.is_symlink())
    ends = {os.path.realpath(member) for member in group.members}
    for name in links:
        is_one = STEP_NAME.match(name) or (bundles.step_of(name) is not None and name.endswith(STATE_SUFFIXES))
        link = group.root / name
        if is_one and os.path.realpath(link) not in ends:
            yield f"{link.as_posix()}: a link{'' if link.exists() else ' that leads nowhere'}, which is not followed"


def _unread_beside(group: Group) -> Iterator[str]:
    """Archives of state and arrays of NumPy next to the checkpoints of a directory, which nothing judges."""
    if group.members == [group.root]:
        return
    known = {name for names in group.files.values() for name in names}
    with os.scandir(group.root) as entries:
        names = sorted(
            entry.name for entry in islice(entries, int(ENTRIES.most)) if entry.is_file(follow_symlinks=False)
        )
    for name in names:
        if name not in known and (words := _ARRAYS if is_of_arrays(name) else unnamed_state(group.root / name)):
            yield f"{(group.root / name).as_posix()}: {words}, so it is not compared with the checkpoints"


def _left_out(others: Sequence[Candidate]) -> Iterator[str]:
    """Checkpoints without a step next to those that have one: which is newer is not known."""
    for one in sorted(others, key=lambda one: one.root):
        yield f"{one.root.as_posix()}: says no step, so it is not compared with those that do"


def _set_aside(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Checkpoints that are tried after all others for their names."""
    found = [one for one in candidates if is_set_aside(one.root.name)]
    for one in found if len(found) < len(candidates) else ():
        yield f"{one.root.as_posix()}: its name says that it was set aside, so it is tried last"


def _series(directory: Path) -> Group | None:
    """The checkpoints that belong together: those in the directory, or those of the one directory that holds some."""
    groups = without_sealed_runs(find(directory))
    here = [group for group in groups if group.root == directory] or groups
    if len(here) > 1:
        shown = ", ".join(group.root.as_posix() for group in here[:3]) + (", …" if len(here) > 3 else "")
        raise SeveralSeriesError(f"checkpoints are in {len(here):,} directories: {shown}; name one of them")
    cut = next((words for group in groups if (words := group.cut or _too_deep(group))), "")
    if cut:
        raise SeveralSeriesError(f"not all of it was searched: {cut}; name the directory of the checkpoints")
    if here and (parts := _parts(here[0])):
        shown = " and ".join(path.as_posix() for path in parts)
        raise SeveralSeriesError(
            f"{shown} are parts of one checkpoint in a layout that is not read; none is whole alone"
        )
    return here[0] if here else None


def _parts(group: Group) -> list[Path]:
    """Directories next to each other that hold a model and its optimizer, as their names say."""
    found = [[path for path in sorted(group.members) if path.name.lower() in names] for names in _PARTS]
    return [path for paths in found for path in paths] if all(found) else []


def _too_deep(group: Group) -> str:
    return f"{group.deep[0]}: more than {DEPTH.most} levels of directories are above it" if group.deep else ""


def _apart(group: Group) -> Group:
    """The files of a directory that are states of several steps, in place of the directory."""
    if len(group.members) != 1 or group.files:
        return group
    (root,) = group.members
    files = {root / name: [name] for name in states_in(root)}
    return Group(root, list(files), files) if files else group


def _check_order(one: Candidate, others: Sequence[Candidate], terms: _Terms) -> None:
    """Refuse to choose a state where another whole one may be newer."""
    for other, saved, beside in _pairs(one, others):
        words = contradiction(saved, beside) or are_parts(saved, beside) or are_unordered(saved, beside)
        if words and not _judge(other, (), None, terms).faults:
            raise SeveralSeriesError(f"{words}; name the file to resume from")


def _pairs(one: Candidate, others: Sequence[Candidate]) -> Iterator[tuple[Candidate, Saved, Saved]]:
    """Others with what orders them: all files side by side, and the few directories before one, of one file each."""
    others = [other for other in others if not is_set_aside(other.root.name) or is_set_aside(one.root.name)]
    if one.saved is not None:
        yield from ((other, one.saved, other.saved) for other in others if other.saved is not None)
    elif one.files is None and (saved := state_of(one.root)):
        for other in others[:NUM_COMPARED]:
            is_alike = other.files is None and bundles.form_of(other.root.name) == bundles.form_of(one.root.name)
            if is_alike and (beside := state_of(other.root)):
                yield other, saved, beside


def _check_left_out(one: Candidate, others: Sequence[Candidate], terms: _Terms) -> None:
    """Refuse to choose where a whole checkpoint without a step was changed later, and holds the same files."""
    for other in others:
        is_later = other.modified_ns > one.modified_ns and not _BEST.search(other.root.name)
        if is_later and _holds_the_same(one, other) and not _judge(other, (), None, terms).faults:
            words = f"{other.root.name} says no step, and was changed after {one.root.name}"
            raise SeveralSeriesError(f"{words}, so which is newer is not known; name one of them")


def _without_common_state(others: Sequence[Candidate], terms: _Terms) -> Iterator[str]:
    """Why the state that all checkpoints of a directory are resumed with is not whole."""
    for other in others:
        if other.root.name == _COMMON_STATE:
            yield from _judge(other, (), None, terms).faults


def _holds_the_same(one: Candidate, other: Candidate) -> bool:
    """Whether two directories hold files of the same names with other content, as two saves do."""
    held = [inventory(each.root, each.files) for each in (one, other)]
    state = [forms_of_state(each) for each in held]
    if state[0] != state[1]:
        return False
    paths = [path for path in held[0].files if path in held[1].files]
    return not all(is_same(one.root / path, other.root / path) for path in paths)


def _equals(one: Candidate, others: Sequence[Candidate]) -> Iterator[str]:
    """Other states of the same step, before which the time of the last change decides."""
    for other in others:
        words = are_equal(one.saved, other.saved) if one.saved and other.saved else ""
        if words and not is_same(one.root, other.root) and not hold_the_same(one.root, other.root):
            yield f"{words}; the one that was changed last is taken"


def _judge(
    one: Candidate, older: Sequence[Candidate], committed: tuple[Pointer, int] | None, terms: _Terms
) -> Judgement:
    checkpoint = read_checkpoint(one.root, one.files)
    take_from_above(checkpoint, terms.directory)
    path = _path(checkpoint, is_alone=terms.is_alone)
    faults = [*_unsafe(path, terms.directory), *_unknown(checkpoint), *commits.uncommitted(checkpoint, one, committed)]
    faults += _functions(checkpoint) if terms.code == "classes" else ()
    others = (read_checkpoint(root) for root in terms.beside if root != one.root)
    found = [*_findings(checkpoint, _STRUCTURE, beside=others), *_findings(checkpoint, _NOTED)]
    refused = [each for each in found if _refuses(each, checkpoint, terms.code)]
    faults += map(_words, refused)
    notes = [_words(each) for each in found if each not in refused] + [*commits.passed(one, committed)]
    if not faults:
        faults += _without_state(checkpoint, older)
        faults += _without_optimizer(checkpoint, one, older)
    faults += () if faults else _copied(checkpoint, older)
    if not faults:
        faults += unusable(checkpoint, _read(older))
        faults += (f"{checkpoint.place(place)}: {words}" for place, words in counted_ahead(checkpoint, _read(older)))
    if not faults:
        lacks = lacking(checkpoint, [(each.root, each.files) for each in older[:NUM_COMPARED]])
        faults += (f"{checkpoint.name}: {words}" for words in (*lacks, *lost_tensors(checkpoint, list(_read(older)))))
    if not faults:
        faults += (f"{checkpoint.place(path)}: {words}" for path, words in borrowed(checkpoint, terms.beside))
        faults += (f"{checkpoint.name}: {words}" for words in copied_from(checkpoint, [each.root for each in older]))
        faults += _with_other_weights(checkpoint, terms)
    if not faults and terms.reads_content:
        faults += [_words(each) for each in _findings(checkpoint, _CONTENT)]
        faults += (f"{checkpoint.place(place)}: {words}" for place, words in unwritten_ends(checkpoint))
    faults += () if faults else _changed(checkpoint)
    notes += _noted(checkpoint, path, older, terms, is_good=not faults)
    return Judgement(path, tuple(faults), tuple(notes))


def _noted(
    checkpoint: Checkpoint, path: str, older: Sequence[Candidate], terms: _Terms, *, is_good: bool
) -> Iterator[str]:
    """What is said of a checkpoint and does not refuse it."""
    for place, (words, _) in checkpoint.doubts.items():
        yield f"{checkpoint.place(place)}: {words}"
    if is_good:
        before = list(_read(older))
        for note in (counted_behind, not_compared, changed_tensors):
            for place, words in note(checkpoint, before):
                yield f"{checkpoint.place(place)}: {words}"
        for words in stale_weights(checkpoint, terms.beside):
            yield f"{path}: {words}"
    for place, why in (*checkpoint.uncovered, *broken_seals(checkpoint)):
        yield f"{checkpoint.place(place)}: {why}"
    if checkpoint.manifest is None:
        yield f"{path}: there is no {checkpoint.manifest_name}, so not every changed byte is noticed"


def _read(older: Sequence[Candidate]) -> Iterator[Checkpoint]:
    """Those next in step, each read when it is asked for."""
    return (read_checkpoint(one.root, one.files) for one in older[:NUM_COMPARED])


def _path(checkpoint: Checkpoint, *, is_alone: bool) -> str:
    """The directory; the file where one file is all that there is."""
    if checkpoint.is_bundle:
        return checkpoint.name
    own = checkpoint.state_files
    is_alone = is_alone and checkpoint.step is None and len(own) == 1 and "/" not in own[0]
    is_one_file = not {"Hugging Face Trainer", "PyTorch DCP", "DeepSpeed", "Orbax"}.intersection(checkpoint.formats)
    return f"{checkpoint.name}/{own[0]}" if is_alone and is_one_file and len(checkpoint.files) == 1 else checkpoint.name


def _unsafe(path: str, directory: Path) -> Iterator[str]:
    """A path that another program could misread is not printed; what the user named is the user's."""
    start = "" if directory == Path() else f"{directory.as_posix()}/"
    parts = path.removeprefix(start).split("/") if path != directory.as_posix() else []
    if not path.isprintable() or neutral(path) != path or path.startswith("-"):
        yield f"{path}: the name is not printed, as a shell or a log could misread it; rename it"
    elif not all(map(_is_plain, parts)):
        words = "the name is not printed, as a shell could misread it; rename it with letters, digits and"
        yield f"{path}: {words} {_SIGNS}"


def _is_plain(part: str) -> bool:
    """Whether no shell takes a name for more than a word of its own, in quotes or without."""
    return part[:1] not in {"-", "~"} and all(sign.isalpha() or sign in _MARKS for sign in part)


def _functions(checkpoint: Checkpoint) -> Iterator[str]:
    """Functions that a loader would run, which may do anything."""
    for path, name in checkpoint.functions:
        why = _AGAIN if name == "torch.storage._load_from_bytes" else ""
        yield f"{checkpoint.place(path)}: loading it would run {name}{why} ({_CODE}); --code any takes it all the same"


def _unknown(checkpoint: Checkpoint) -> Iterator[str]:
    """Files that no reader judges, and no digest covers, prove nothing."""
    if checkpoint.manifest is None:
        damaged = [path for path, why in checkpoint.unread.items() if is_unloadable(path, why)]
        yield from (f"{checkpoint.place(path)}: the file {checkpoint.unread[path]}" for path in damaged[:1])
    state = checkpoint.state_files
    if not checkpoint.formats:
        named = [f"{checkpoint.place(path)}: the file {why}" for path in state if (why := unread_container(path))]
        yield named[0] if named else f"{checkpoint.name}: it holds no file of a known format"
    elif checkpoint.manifest is None and state and all(path in checkpoint.unread for path in state):
        yield f"{checkpoint.place(state[0])}: the file {checkpoint.unread[state[0]]}, and no manifest covers it"
    elif checkpoint.is_bundle and state and all(map(is_of_arrays, state)):
        yield f"{checkpoint.place(state[0])}: the file {_ARRAYS}, and no state to resume from"
    elif checkpoint.formats == ["torch.save"] and _are_lone(checkpoint, state):
        held = checkpoint.lone[state[0]] if state else NOTHING
        yield f"{checkpoint.place(state[0]) if state else checkpoint.name}: the file holds {held}, so no state"
    elif checkpoint.manifest is None and not checkpoint.pieces and not checkpoint.value_bytes:
        archives = (path for path in checkpoint.unread if path.lower().endswith(".zip"))
        named = [f"{checkpoint.place(path)}: the file {checkpoint.unread[path]}" for path in archives]
        yield from (f"{words}, and no file with tensors is next to it" for words in named[:1])


def _are_lone(checkpoint: Checkpoint, state: Sequence[str]) -> bool:
    """Whether files hold no tensor and no mapping, or the one file there is holds one tensor or number."""
    held = {checkpoint.lone.get(path) for path in state}
    return held <= {NOTHING} or (len(state) == 1 and held != {None})


def _findings(
    checkpoint: Checkpoint, ids: Sequence[str], older: Sequence[Checkpoint] = (), beside: Iterable[Checkpoint] = ()
) -> tuple[Finding, ...]:
    index = load_index()
    wanted = [requirement for each in ids if (requirement := index.find(each)) is not None]
    series = Series(checkpoint.root, checkpoint.name, (*older, checkpoint), beside=beside)
    return judge_series(series, wanted, index, {}).findings


def _refuses(finding: Finding, checkpoint: Checkpoint, code: Code) -> bool:
    """A temporary name of the checkpoint itself and an ambiguous container refuse it; classes in a pickle seldom do."""
    if finding.requirement == _CODE and code == "listed":
        return True
    is_all = finding.requirement == _RESIDUE and finding.path == checkpoint.name
    return is_all or finding.help == AMBIGUOUS or finding.requirement not in _NOTED


def _words(finding: Finding) -> str:
    return f"{finding.path}: {finding.message} ({finding.requirement})"


def _with_other_weights(checkpoint: Checkpoint, terms: _Terms) -> Iterator[str]:
    """Weights that another checkpoint has too, in a run whose steps change them: one of both has them from the other.

    Which one is not known, so neither is chosen. Steps at a learning rate that has decayed to nothing change none.
    """
    shards = [] if checkpoint.is_bundle else list(stale_shards(checkpoint, terms.beside))
    other = shards[0][1] if shards else weights_of(checkpoint, terms.beside)
    if other is None or not (shards or are_misplaced(checkpoint, terms.beside)):
        return
    place = terms.beside.index(checkpoint.root)
    near = terms.beside[max(0, place - NUM_BESIDE) : place + NUM_BESIDE + 1]
    if not are_at_rest(checkpoint, other, [read_checkpoint(root) for root in near]):
        words = (f"{path} is that of {other.name}, byte for byte, and other shards are not" for path, _ in shards)
        yield from (f"{checkpoint.name}: {each}" for each in (*words, *stale_weights(checkpoint, [other])))


def _copied(checkpoint: Checkpoint, older: Sequence[Candidate]) -> Iterator[str]:
    """The save id of an older checkpoint, which a copy of it has."""
    if checkpoint.save_ids or checkpoint.manifest:
        read = [read_checkpoint(one.root, one.files) for one in older]
        found = _findings(checkpoint, _SAVE_ID, read)
        own = (each for each in found if each.path == checkpoint.name or each.path.startswith(f"{checkpoint.name}/"))
        yield from map(_words, own)


def _without_state(checkpoint: Checkpoint, older: Sequence[Candidate]) -> Iterator[str]:
    """A model for use among checkpoints that a run can resume from."""
    if checkpoint.is_for_use:
        for one in older:
            names = inventory(one.root, one.files).files
            if state := resume_state({path.split("/")[0] for path in names}):
                words = "it is a model without state to resume from"
                yield f"{checkpoint.name}: {words}, and {one.root.name} next to it has {state[0]}"
                return


def _without_optimizer(checkpoint: Checkpoint, one: Candidate, older: Sequence[Candidate]) -> Iterator[str]:
    """A file with a model alone among files that a run can resume from."""
    if one.saved and (words := without_optimizer(one.saved, (each.saved for each in older if each.saved))):
        yield f"{checkpoint.name}: {words}"


def _changed(checkpoint: Checkpoint) -> Iterator[str]:
    """A save or a removal that is under way."""
    if checkpoint.is_bundle:
        facts = checkpoint.files.items()
        changed = [path for path, fact in facts if fact_of(checkpoint.root / path, path) != fact]
    else:
        changed = [path for path, _ in changes(checkpoint, ())]
    if changed:
        yield f"{checkpoint.place(changed[0])}: the file changed while the checkpoint was read"
