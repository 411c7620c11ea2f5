"""Distinguishes commands that a script starts from commands that it only prints, for readers of launch scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainspec_validate.interop.readers._shell_variables import Script, Word

SHOWS = frozenset({"echo", "printf", "cat", "logger", "log", ":", "true", "false"})
"""Commands that print their words, or do nothing with them."""
_STARTED = re.compile(
    r"\|&?[ \t]*(?:\\\n[ \t]*)?(?:sudo[ \t]+)?(?:[\w./-]*/)?"
    r"(?:(?:ba|z|k|da)?sh|sbatch|srun|salloc|qsub|bsub|ssh|xargs|parallel|at|batch|docker|kubectl|python3?)\b"
)
"""A pipe into a program that starts what it reads."""
_WRITTEN = re.compile(r"(?<![0-9&<>=-])(?:1?>>?|\btee[ \t](?:-a[ \t]+)?)[ \t]*(?P<file>[^\s;|&<>()]+)")
"""Output into a file."""
_NO_SCRIPT = re.compile(
    r"(?i)[\"']?(?:/dev/(?:null|stderr|stdout|tty)|[^\"'$]*\.(?:log|txt|out|err|md|csv|json))[\"']?"
)
"""Files that no shell runs; a file whose name is a variable may be any."""


def is_only_shown(script: Script, command: Sequence[Word], lines: Sequence[str]) -> bool:
    r"""Whether a command prints its words, and neither a pipe nor a file takes them to a program that may start them.

    Args:
        script: knows what the first word may be.
        command: its words.
        lines: the text of the script.

    >>> from trainspec_validate.interop.readers._shell_commands import read_script
    >>> texts = "echo torchrun a.py", "echo torchrun a.py | bash", "echo a.py > $JOB", "R=echo; $R torchrun a.py"
    >>> [is_only_shown(script := read_script(text), script.commands[-1], [text]) for text in texts]
    [True, False, False, True]
    """
    ways, more = script.choices.flat(command[0].text)
    if more or not ways or any(way.text.partition(" ")[0] not in SHOWS for way in ways):
        return False
    first, last = command[0].line, max(word.line + word.text.count("\n") for word in command)
    text = "\n".join(lines[max(0, first - 1) : last])
    for line in lines[last:]:
        if not text.endswith("\\"):
            break
        text = f"{text}\n{line}"
    if _STARTED.search(text):
        return False
    return all(_NO_SCRIPT.fullmatch(found["file"]) for found in _WRITTEN.finditer(text))
