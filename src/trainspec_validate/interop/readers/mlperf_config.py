"""Reads the variables of MLPerf submissions (`config_*.sh`), which their run scripts hand to a training."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft, word_value
from trainspec_validate.interop.readers._shell_found import MORE, Found, Option
from trainspec_validate.interop.readers._shell_unread import leave_open
from trainspec_validate.interop.readers._shell_variables import Script
from trainspec_validate.interop.readers._slurm_script import script_of
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import cut_to

_HEAD = 64 * 1024
_NODES = re.compile(r"(?m)^[ \t]*export[ \t]+DGXNNODES=")
_STARTS = re.compile(r"(?m)^[ \t]*(?!#)[^\n#]{0,400}\b(?:torchrun|srun|mpirun|python3?|docker|bash[ \t]+-c)\b")
"""Commands of a run script, which starts a training itself."""
_COPIED: Mapping[Pointer, tuple[str, ...]] = {
    ("parallelism", "tensor"): ("TENSOR_MODEL_PARALLEL", "TP"),
    ("parallelism", "pipeline"): ("PIPELINE_MODEL_PARALLEL", "PP"),
    ("parallelism", "context"): ("CONTEXT_PARALLEL", "CP"),
    ("batch", "micro_sequences"): ("MICRO_BATCH_SIZE",),
}
_BATCHES = ("MINIBS", "BATCHSIZE", "GLOBAL_BATCH_SIZE")
_PEAK: Pointer = ("optimizer", "learning_rate", "peak")
_UNREAD = "the run script, or a file that this one reads in, decides it and is not read"


def looks_like(text: ForeignText) -> bool:
    """Whether a text exports the nodes of a submission, and starts nothing."""
    head = text.text[:_HEAD]
    return bool(_NODES.search(head)) and not _STARTS.search(head)


def read(text: ForeignText) -> Fragment:
    """The accelerators and degrees that the variables give; a file that is read in after them may set them again.

    Raises:
        ForeignFormatError: the script is cut off in a quote, or grows beyond bounds.
    """
    script = script_of(text.text)
    options = _variables(script).settings(script.outside)

    def lines(names: Iterable[str]) -> Mapping[str, int]:
        return {name: options[name].line for name in names if name in options}

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, lines)
        for pointer, names in _COPIED.items():
            draft.copy(pointer, *names)
        split = draft.flag("SP", "SEQ_PARALLEL")
        if split is not None:
            draft.put(("parallelism", "sequence"), split, "SP or SEQ_PARALLEL of the script")
        peak = draft.number("LR")
        if peak and peak > 0:
            draft.put(_PEAK, peak)
        for name in _BATCHES:
            if (size := draft.look(name)) is not None:
                draft.lacks(
                    ("batch", "global_sequences"),
                    f"{name} is {cut_to(str(size), 20)}; the run script makes it of that",
                )
        if (steps := draft.look("MAX_STEPS")) is not None:
            why = f"at most {cut_to(str(steps), 20)}: the job ends with the quality that the benchmark asks for"
            draft.lacks(("job", "num_steps"), why)
        world = _world(draft)
        leave_open(draft, _UNREAD)
        complete(draft, *world)
        return draft

    return settled({name: option.value for name, option in options.items()}, make).fragment("mlperf-config", text)


def _variables(script: Script) -> Found:
    """The variables, each with the values that branches and files which are read in later may give it."""
    found = Found()
    for name, value in script.variables.items():
        if re.fullmatch(r"[A-Z][A-Z0-9_]{1,60}", name):
            texts, more = script.choices.flat(value)
            line = script.places.get(name, 0)
            possible = [Option(word_value(one.text), one.line or line) for one in texts]
            found.options[name] = [*possible, *([Option(MORE, line)] if more else [])]
    return found


def _world(draft: Draft) -> tuple[int | None, str]:
    each, nodes = draft.count("DGXNGPU"), draft.count("DGXNNODES")
    if each and nodes:
        return each * nodes, f"DGXNNODES {nodes} x DGXNGPU {each}"
    known = ", ".join(f"{name} {value}" for name, value in (("DGXNNODES", nodes), ("DGXNGPU", each)) if value)
    draft.lacks(("parallelism", "num_accelerators"), f"DGXNNODES x DGXNGPU, of which the file states {known or 'none'}")
    return None, ""


FORMATS = (Format("mlperf-config", "variables of an MLPerf submission", "TrainingPlan", looks_like, read),)
