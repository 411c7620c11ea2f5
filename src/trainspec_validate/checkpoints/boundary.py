"""Makes a finding about one file out of whatever it makes its reader raise, so that the rest of a checkpoint is judged.

A mistake of ours passes through as it is; `trainspec_validate.system.boundary` decides which errors are one. Too little
memory of the machine passes through as an `OutOfMemoryError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

from trainspec_validate.checkpoints.limits import FILE_SECONDS, AmbiguousError
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError
from trainspec_validate.checkpoints.view import Checkpoint
from trainspec_validate.system.boundary import OutOfMemoryError, reason_of, refusal_of
from trainspec_validate.system.budget import OverLimitError, timed
from trainspec_validate.system.process import lacks_memory, memory_of_the_machine

AMBIGUOUS = "do not load it; save the state anew with the program that wrote it"
CUT = "restore the file from another copy; it is shorter than its header would be"
BROKEN = "restore the file from another copy"
_SHOWN = 200


@contextmanager
def judged(checkpoint: Checkpoint, path: str, what: str = "the file", remedy: str = BROKEN) -> Iterator[None]:
    """Run what reads one file of a checkpoint; a failure of it is reported once, and ends nothing else.

    Args:
        checkpoint: gets the finding.
        path: of the file; empty for the directory.
        what: names the file in a sentence.
        remedy: what to do about a file that is damaged.
    """
    try:
        with memory_of_the_machine(), timed(FILE_SECONDS) if path else nullcontext():
            yield
    except AmbiguousError as error:
        checkpoint.report("code", path, f"{what} {error}", AMBIGUOUS)
    except LimitError as error:
        checkpoint.report("limits", path, f"{what} {error}")
    except UnreadableError as error:
        checkpoint.report("container", path, f"{what} {error}", remedy)
    except Exception as error:
        aspect, words = failure(error)
        checkpoint.report(aspect, path, f"{what} {words}", remedy)


def failure(error: Exception) -> tuple[Literal["limits", "container"], str]:
    """The aspect of a failure that no reader expects, and words for it, which continue a sentence about the file.

    Raises:
        OutOfMemoryError: the machine gave too little memory.
        Exception: the error itself, where it is a mistake of ours.
    """
    if isinstance(error, OutOfMemoryError):
        raise error
    if lacks_memory(error):
        raise OutOfMemoryError from error
    if refusal_of(error) is None:
        raise error
    if isinstance(error, OverLimitError):
        return "limits", f"passes a limit: {error}"
    if isinstance(error, MemoryError):
        return "limits", "asks for more memory than there is"
    if isinstance(error, RecursionError):
        return "limits", "nests deeper than a reader follows"
    words = str(error) if not isinstance(error, OSError) else reason_of(error)
    return "container", f"cannot be read: {type(error).__name__}: {words[:_SHOWN]}"
