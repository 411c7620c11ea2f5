"""Reads job configurations of torchtitan in TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._plan_identities import complete
from trainspec_validate.interop.readers._plan_parts import Draft, Lines, name_of
from trainspec_validate.interop.readers._plan_settings import flatten
from trainspec_validate.interop.readers._torchtitan_plan import write_plan
from trainspec_validate.interop.readers._worlds import settled
from trainspec_validate.system.boundary import words_of

MAX_CHARACTERS = 256 * 1024
MAX_DOTS = 200
"""Dots of one line: keys of very many parts cost the TOML parser time and memory by their square."""
_HEAD = 256 * 1024
_TRAINING = re.compile(r"(?m)^[ \t]*\[training\][ \t]*(?:#.*)?$")
_BESIDE = re.compile(r"(?m)^[ \t]*\[(?:job|model|parallelism|experimental|metrics|activation_checkpoint)\]")
_SECTION = re.compile(r"[ \t]*\[([A-Za-z0-9_.]+)\]")
_KEY = re.compile(r"[ \t]*([A-Za-z0-9_]+)[ \t]*=")
_PRESET = re.compile(r"(?im)^#.{0,60}\bpreset for (\d{1,7})\b.{0,40}\b(?:GPU|accelerator)s?\b")


def looks_like(text: ForeignText) -> bool:
    """Whether a text is TOML with the tables of a torchtitan job."""
    head = text.text[:_HEAD]
    return bool(_TRAINING.search(head)) and bool(_BESIDE.search(head))


def read(text: ForeignText) -> Fragment:
    """The plan that a torchtitan job describes; the shape of the model for flavours of Llama 3.

    Raises:
        ForeignFormatError: it is no TOML, or has no `[training]`.
    """
    data = _parse(text.text)
    if not isinstance(data.get("training"), dict):
        raise ForeignFormatError("there is no table [training]", help="give the job configuration of torchtitan")
    preset = _PRESET.search(text.text[:_HEAD])

    def make(values: dict[str, Any]) -> Draft:
        draft = Draft(values, _lines(text.text))
        description = draft.word("job.description")
        if description and name_of(description):
            draft.put(("metadata", "name"), name_of(description), "made of job.description")
        write_plan(draft)
        if preset:
            told = f"a comment calls the file a preset for {preset[1]} accelerators; what starts the job decides"
            draft.lacks(("parallelism", "num_accelerators"), told)
        complete(draft)
        return draft

    return settled(flatten(data), make).fragment("torchtitan-toml", text)


def _parse(text: str) -> Mapping[str, object]:
    if len(text) > MAX_CHARACTERS:
        raise ForeignFormatError(
            f"the file is longer than {MAX_CHARACTERS} characters", help="name a job configuration"
        )
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS:
            raise ForeignFormatError(f"a line with more than {MAX_DOTS} dots", number, "break it into several lines")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ForeignFormatError("the file is nested too deeply", help="name a job configuration") from None
    except ValueError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise ForeignFormatError(f"the file is no TOML: {words_of(error)}", int(found[1]) if found else None) from None


def _lines(text: str) -> Lines:
    """Finds the lines of dotted names, by tables and keys at the beginning of lines."""

    def find(names: Iterable[str]) -> Mapping[str, int]:
        wanted, section = set(names), ""
        found: dict[str, int] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if table := _SECTION.match(line):
                section = f"{table[1]}."
            elif (key := _KEY.match(line)) and f"{section}{key[1]}" in wanted:
                found.setdefault(f"{section}{key[1]}", number)
        return found

    return find


FORMATS = (Format("torchtitan-toml", "job configuration of torchtitan", "TrainingPlan", looks_like, read),)
