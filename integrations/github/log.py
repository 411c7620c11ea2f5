"""Prints for the steps: the one place that writes to the log of a job, whose runner takes commands out of it.

Names of branches and files, and what Git says, are of whoever made the request. They are made neutral as the validator
does it, by its own module, which is read from the checkout of the action: nothing is installed yet.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

_FILE = Path(__file__).resolve().parents[2] / "src" / "trainspec_validate" / "system" / "neutral.py"


def _module() -> ModuleType:
    spec = spec_from_file_location("neutral_of_the_action", _FILE)
    if spec is None or spec.loader is None:
        raise ImportError(f"{_FILE} cannot be loaded; check out the whole action")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


_NEUTRAL = _module()


def say(text: str) -> None:
    """Write one line."""
    print(_NEUTRAL.neutral(_NEUTRAL.printable(text)), flush=True)


def complain(text: str) -> None:
    """Write an error of any number of lines, as an annotation of the job."""
    lines = (_NEUTRAL.neutral(_NEUTRAL.printable(line)) for line in text.splitlines())
    print(f"::error title=TrainSpec::{'%0A'.join(line.replace('%', '%25') for line in lines)}", flush=True)
