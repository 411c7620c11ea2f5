"""Distinguishes programs that train from those that use a model, by their names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.model.values import cut_to

_TRAINS_NOTHING = re.compile(
    r"(?i)(?:^|[_.-])(?:generate|generation|inference|infer|evaluate|evaluation|eval|zeroshot|preprocess|convert|decode"
    r"|serve|server|microbenchmark|merge|analy[sz]er?|tokeni[sz]er?|quanti[sz]e|ptq|export|checker)(?:[_.-]|$)|(?:^|_)to_(?:maxtext|huggingface|hf|megatron|mcore|nemo)\b"
)
"""Parts of the names of programs that use a model, or make data or checkpoints for one."""
_DEGREES = r"(?:tensor|pipeline|sharding|sep)_parallel_degree"
PADDLE = (
    rf"\bpaddle\.distributed\b|(?m:(?:^|[{{,])[ \t]*\"?(?:{_DEGREES}|recompute)\"?[ \t]*:)"
    rf"|--(?:{_DEGREES}|recompute)(?![\w-])"
)
"""Marks of PaddleNLP, whose arguments have the names of the transformers Trainer and defaults of their own.

Source: PaddlePaddle/PaddleNLP:paddlenlp/trainer/training_args.py.
"""
ROLL = r"(?m)^[ \t]+strategy_args[ \t]*:[ \t]*(?:#[^\n]*)?$[^\0]{0,400}?^[ \t]+strategy_name[ \t]*:"
"""Mark of ROLL, each of whose workers has a section with the names of the transformers Trainer.

Source: alibaba/ROLL:roll/configs/worker_config.py.
"""
_COMMANDS = frozenset({"trl", "swift"})
"""Installed commands whose first word names what is trained."""
_LAUNCHERS = re.compile(r"torch\.distributed\.\w+|accelerate\.commands\.launch")


def trains_nothing(programs: Iterable[str]) -> bool:
    """Whether each program that is known by name generates, evaluates or converts.

    >>> [trains_nothing([name]) for name in ("run_text_generation.py", "train_and_eval.py", "eval.py", "$SCRIPT")]
    [True, False, True, False]
    """
    known = [program for program in programs if "$" not in program]
    return bool(known) and all(_TRAINS_NOTHING.search(name) and "train" not in name for name in known)


def without_training(program: str) -> ForeignFormatError:
    """The error for a source that starts no training."""
    return ForeignFormatError(
        f"{cut_to(program, 60)} is no program that trains", help="give the script of the training"
    )


def command_of(words: Sequence[str]) -> str:
    """The module that a command starts, or the subcommand of TRL or ms-swift; empty where it shows neither.

    >>> command_of("python -m torch.distributed.run --nnodes 2 -m trl.scripts.dpo --lr 1".split())
    'trl.scripts.dpo'
    >>> command_of("uv run trl dpo --lr 1".split()), command_of("python -m trl --lr 1".split()), command_of(["--lr"])
    ('trl dpo', 'trl', '')
    """
    for word, following in itertools.pairwise([*words, ""]):
        if word in {"-m", "--module"} and not _LAUNCHERS.fullmatch(following) and following not in _COMMANDS:
            return following
        if (command := word.rpartition("/")[2]) in _COMMANDS:
            return command if following.startswith("-") else f"{command} {following}".rstrip()
    return ""
