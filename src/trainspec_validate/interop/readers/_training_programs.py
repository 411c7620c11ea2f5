"""Distinguishes programs that train from those that use a model, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainspec_validate.interop.fragment import ForeignFormatError

_TRAINS_NOTHING = re.compile(
    r"(?i)(?:^|[_.-])(?:generate|generation|inference|infer|evaluate|evaluation|eval|zeroshot|preprocess|convert|decode"
    r"|serve|server|microbenchmark|merge|analy[sz]er?|tokeni[sz]er?|quanti[sz]e|ptq|export|checker)(?:[_.-]|$)|(?:^|_)to_(?:maxtext|huggingface|hf|megatron|mcore|nemo)\b"
)
"""Parts of the names of programs that use a model, or make data or checkpoints for one."""


def trains_nothing(programs: Iterable[str]) -> bool:
    """Whether each program that is known by name generates, evaluates or converts.

    >>> [trains_nothing([name]) for name in ("run_text_generation.py", "train_and_eval.py", "eval.py", "$SCRIPT")]
    [True, False, True, False]
    """
    known = [program for program in programs if "$" not in program]
    return bool(known) and all(_TRAINS_NOTHING.search(name) and "train" not in name for name in known)


def without_training(program: str) -> ForeignFormatError:
    """The error for a source that starts no training."""
    return ForeignFormatError(f"{program[:60]} is no program that trains", help="give the script of the training")
