"""Compares what the parts of one checkpoint count: optimizer, schedule and ranks with the step of the model.

A difference is a finding only where no healthy run leaves it. Programs skip steps under loss scaling, make an
optimizer anew when they resume from weights alone, and keep one through several calls of a trainer; so most differences
are remarks, and become findings where the file is that of another checkpoint next to it (`twins`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.checkpoints.counted import Counted
from trainspec_validate.checkpoints.progress import LIGHTNING
from trainspec_validate.checkpoints.trainer_files import MARK, OPTIMIZERS, SCHEDULE
from trainspec_validate.checkpoints.view import Checkpoint

_INDEX = 1
"""Some optimizers do not count their first step, in which they only gather statistics, as SOAP does."""
_RESUME = "resume from a checkpoint whose parts agree"
_LOOK = "look for a file of another save, unless the optimizer was made anew or optimizer steps were skipped"
_LOOK_AHEAD = "look for a file of another save, unless the optimizer was kept from an earlier training"
_RANDOM = re.compile(r"^random_states_[0-9]{1,7}\.pkl$")
_OF_ACCELERATE = re.compile(r"^scheduler(?P<number>_[0-9]{1,4})?\.bin$")
_OPTIMIZER_OF_ACCELERATE = re.compile(r"^optimizer(?:_[0-9]{1,4})?\.bin$")
_FEW = 4
"""Optimizer steps for each epoch at least, where a schedule counts epochs."""
_RANK = re.compile(r"(?:^|/)(?:mp_rank|tp_rank)_[0-9_a-z]+/(?P<name>[^/]+)$")
_OF_DEEPSPEED = re.compile(r"(?:^|/)[^/]*_mp_rank_[0-9]+_optim_states\.pt$")
_MODEL = re.compile(r"(?:^|/)(?:zero_pp_rank_[0-9]+_)?mp_rank_[0-9]+(?:_[0-9]+)?_model_states\.pt$")
_SINCE = (1, 6)
"""Version of Lightning whose `global_step` is what its loops count:
https://github.com/Lightning-AI/pytorch-lightning/pull/11805."""
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})")


def compare_parts(checkpoint: Checkpoint) -> None:
    """Report parts that cannot be of one save, and note those that may be of two; after all readers."""
    _compare_trainer(checkpoint)
    _compare_deepspeed(checkpoint)
    _compare_lightning(checkpoint)
    _compare_accelerate(checkpoint)
    _compare_ranks(checkpoint)


def _report(checkpoint: Checkpoint, path: str, words: str) -> None:
    checkpoint.report("step", path, words, _RESUME)


def _report_empty(checkpoint: Checkpoint, path: str, more: str = "") -> None:
    """Report an optimizer without state: those of PyTorch have their groups of parameters before the first step too."""
    words = f"the file holds no state of an optimizer{more}"
    checkpoint.report("resume-state", path, words, "resume from an earlier checkpoint")


def _claimed(checkpoint: Checkpoint, path: str) -> int | None:
    return next((claim.step for claim in checkpoint.claims if claim.path == path), None)


def optimizer_of(checkpoint: Checkpoint) -> str:
    """The file in which the Trainer of Hugging Face has the optimizer; empty where it has none."""
    return next((path for path in OPTIMIZERS if path in checkpoint.said), "") if MARK in checkpoint.files else ""


def _compare_trainer(checkpoint: Checkpoint) -> None:
    """The Trainer takes a step of the schedule with each step, and saves or loads both or none.

    https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/trainer.py, _inner_training_loop
    """
    step, path = _claimed(checkpoint, MARK), optimizer_of(checkpoint)
    if not step:
        return
    if path and checkpoint.said[path].is_empty:
        _report_empty(checkpoint, path, f", and {MARK} counts {step:,} steps")
        return
    said = checkpoint.said.get(SCHEDULE, Counted())
    schedule = None if said.is_plateau else said.schedule_step
    updates = checkpoint.said[path].optimizer_step if path else None
    words = [f"{MARK} counts {step:,} steps"]
    words += [f"{path} {updates:,}"] if updates is not None else []
    words += [f"{SCHEDULE} {schedule:,}"] if schedule is not None else []
    told, place = ", ".join(words), path if updates is not None and not _is_near(updates, step) else SCHEDULE
    scaled = _skips(checkpoint) and (updates or 0) <= step and (schedule or 0) <= step
    if updates is None or schedule is None:
        agree = all(_is_near(one, step) for one in (updates, schedule) if one is not None)
        kind = "" if agree or scaled else "doubt"
    else:
        kind = _kind(step, updates, schedule, scaled=scaled)
    if kind == "fault":
        _report(checkpoint, place, told)
    elif kind:
        why, look = ("kept from an earlier training", _LOOK_AHEAD) if (updates or 0) > step else ("made anew", _LOOK)
        checkpoint.doubts[place] = (f"is of another step than other parts, or was {why}: {told}", look)


def _kind(step: int, updates: int, schedule: int, *, scaled: bool) -> str:
    """Whether three counts are a fault, a doubt, or neither (empty).

    >>> _kind(20, 20, 20, scaled=False), _kind(20, 10, 20, scaled=False), _kind(20, 10, 10, scaled=False)
    ('', 'fault', 'doubt')
    """
    if _is_near(updates, schedule):
        return "" if scaled or _is_near(updates, step) else "doubt"
    if _is_near(updates, step):
        return "" if schedule % step == 0 and schedule else "fault"  # some take as many steps as there are processes
    if _is_near(schedule, step) and (updates > step or scaled):
        return "doubt"  # a second call of `train` keeps the optimizer and makes a schedule anew
    return "doubt" if scaled else "fault"


def _is_near(one: int, other: int) -> bool:
    return abs(one - other) <= _INDEX


def _skips(checkpoint: Checkpoint) -> bool:
    """Whether loss scaling may have skipped updates."""
    arguments = checkpoint.said.get("training_args.bin", Counted())
    return "scaler.pt" in checkpoint.files or arguments.values.get("fp16") is True


def _compare_deepspeed(checkpoint: Checkpoint) -> None:
    """DeepSpeed counts steps, and those of them that it skipped; all ranks update at once."""
    folders: dict[str, dict[str, Counted]] = {}
    for path, said in checkpoint.said.items():
        if _OF_DEEPSPEED.search(path) or _MODEL.search(path):
            folders.setdefault(path.rpartition("/")[0], {})[path] = said
    for folder in folders.values():
        models = {path: said for path, said in folder.items() if _MODEL.search(path)}
        for path, said in sorted(models.items())[1:]:  # the first is told by its reader
            checkpoint.claim(path, said.count("global_steps"), f"{path.rpartition('/')[2]} (global_steps)")
        first = min(models, default="")
        steps, skipped = (models[first].count(key) if first else None for key in ("global_steps", "skipped_steps"))
        updates = {path: said.optimizer_step for path, said in folder.items() if said.optimizer_step is not None}
        _compare_equal(checkpoint, updates, "the optimizer")
        if steps is None or not updates or len({*updates.values()}) > 1:
            continue
        path, number = min(updates.items())
        told = f"the optimizer counts {number:,} optimizer steps, and {first.rpartition('/')[2]} {steps:,} steps"
        if number > steps + _INDEX:
            _report(checkpoint, path, told)
        elif number + _INDEX < steps - (skipped or 0):
            told += f", {skipped or 0:,} of them skipped"
            checkpoint.doubts[path] = (f"is of another step than the model, or was made anew: {told}", _LOOK)


def _compare_accelerate(checkpoint: Checkpoint) -> None:
    """Schedules that Accelerate prepared take a step with each step, or one for each process.

    Others take steps for each epoch, which are few, or for each batch, of which there are more than optimizer steps:
    https://github.com/huggingface/accelerate/blob/16cb6eb8/src/accelerate/scheduler.py.
    """
    num_processes = sum(_RANDOM.match(path) is not None for path in checkpoint.files)
    for path, said in checkpoint.said.items():
        if num_processes and said.is_empty and _OPTIMIZER_OF_ACCELERATE.match(path):
            _report_empty(checkpoint, path)
        match = _OF_ACCELERATE.match(path)
        held = checkpoint.said.get(f"optimizer{match['number'] or ''}.bin") if match else None
        steps, updates = said.schedule_step, held.optimizer_step if held else None
        if not num_processes or said.is_plateau or not steps or not updates:
            continue
        is_known = _is_near(steps, updates) or steps == updates * num_processes
        if not is_known and updates < _FEW * steps and steps < 2 * updates:
            words = f"counts {steps:,} steps, and the optimizer {updates:,} optimizer steps"
            checkpoint.doubts[path] = (f"may be of another step than the optimizer: it {words}", _LOOK)


def _compare_ranks(checkpoint: Checkpoint) -> None:
    """What ranks save of one thing counts the same in each."""
    by_name: dict[str, dict[str, int | None]] = {}
    for path, said in checkpoint.said.items():
        if _RANDOM.match(path):
            by_name.setdefault("", {})[path] = said.count("step")
        elif match := _RANK.search(path):
            by_name.setdefault(match["name"], {})[path] = said.optimizer_step
    for name, counts in by_name.items():
        known = {path: number for path, number in counts.items() if number is not None}
        _compare_equal(checkpoint, known, "the optimizer" if name else "step")


def _compare_equal(checkpoint: Checkpoint, counts: Mapping[str, int], what: str) -> None:
    """Report the first file of each count that is not the highest one."""
    highest = max(counts, key=lambda path: counts[path], default="")
    told: set[int] = set()
    for path, number in sorted(counts.items()):
        if number != counts[highest] and number not in told:
            told.add(number)
            _report(checkpoint, path, f"{what} counts {number:,}, and {highest} of another rank {counts[highest]:,}")


def _compare_lightning(checkpoint: Checkpoint) -> None:
    """Lightning continues from what its loops count, and not from `global_step`."""
    for path, said in checkpoint.said.items():
        version = _VERSION.match(str(said.values.get(LIGHTNING, "")))
        step = said.count("global_step")
        if version is None or (int(version[1]), int(version[2])) < _SINCE or not step or not said.loop_steps:
            continue
        if step not in {*said.loop_steps, sum(said.loop_steps)}:
            shown = " and ".join(f"{number:,}" for number in said.loop_steps)
            _report(checkpoint, path, f"global_step is {step:,}, and the loops that Lightning continues count {shown}")
        elif said.optimizer_step is not None and said.optimizer_step > step and step == said.loop_steps[0]:
            words = f"the optimizer counts {said.optimizer_step:,} optimizer steps, and global_step is {step:,}"
            _report(checkpoint, path, words)


def unexplained(checkpoint: Checkpoint) -> Iterator[str]:
    """The files of optimizers and schedules whose count is not that of the model, or that none is known for."""
    step = _claimed(checkpoint, MARK) if MARK in checkpoint.files else None
    models = [said.count("global_steps") for path, said in checkpoint.said.items() if _MODEL.search(path)]
    for path, said in checkpoint.said.items():
        if said.schedule_step and path in checkpoint.doubts and _OF_ACCELERATE.match(path):
            yield path
        if not said.optimizer_step or _MODEL.search(path) or LIGHTNING in said.values:
            continue
        known = next((one for one in models if one is not None), None) if _OF_DEEPSPEED.search(path) else step
        if known is None or not _is_near(said.optimizer_step, known):
            yield path
