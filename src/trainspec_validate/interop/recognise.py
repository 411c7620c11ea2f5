"""Lists the foreign formats that can be read, and detects the format of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from trainspec_validate.interop import readers
from trainspec_validate.interop.formats import Format, collected
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._shell_documents import without_configurations
from trainspec_validate.model.suggest import hint

_TRAINSPEC = re.compile(
    r"""^apiVersion[ \t]*:[ \t]*["']?trainspec/|"apiVersion"[ \t]*:[ \t]*"trainspec/""", re.MULTILINE
)
_TORCHTITAN = re.compile(r"(?m)^(?:from|import)[ \t]+torchtitan\b")
_MADE = re.compile(r"(?m)^def[ \t]+(\w{1,80})\([^)\n]{0,200}\)[ \t]*->[ \t]*[\"']?(?:\w{1,40}\.)?Trainer\.Config\b")
"""Functions of Python modules in which torchtitan keeps its configurations, such as `config_registry.py`."""
_HEAD = 256 * 1024
_MAX_NAMES = 8


@cache
def formats() -> Mapping[str, Format]:
    """Every format by name, in the order of names."""
    return collected(readers, Format)


def recognise(text: ForeignText) -> Format:
    """The one format that a text is written in.

    Raises:
        ForeignFormatError: no format fits, or several do, or the text is a document already.
    """
    outside = ForeignText(text.name, without_configurations(text.text))
    fitting = [entry for entry in formats().values() if entry.looks_like(outside)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(entry.name for entry in fitting)
        raise ForeignFormatError(f"fits several formats: {names}", help="name one with --format")
    if not text.text.strip():
        raise ForeignFormatError("the file is empty", help="the program that wrote it may have failed; run it again")
    if _TRAINSPEC.search(text.text):
        raise ForeignFormatError("this already is a TrainSpec document", help="validate it with trainspec-validate")
    head = text.text[:_HEAD]
    if _TORCHTITAN.search(head) and (made := _MADE.findall(head)):
        more = f" and {len(made) - _MAX_NAMES} more" if len(made) > _MAX_NAMES else ""
        told = f"a Python module of torchtitan with {len(made)} configurations: {', '.join(made[:_MAX_NAMES])}{more}"
        raise ForeignFormatError(f"{told}; code is never executed", help="give the job configuration in TOML")
    raise ForeignFormatError("fits no known format", help="`trainspec import --list` shows what is read")


def by_name(name: str) -> Format:
    """The format of a name.

    Raises:
        ForeignFormatError: there is none.
    """
    try:
        return formats()[name]
    except KeyError:
        told = hint(name, formats()) or "`trainspec import --list` shows what is read"
        raise ForeignFormatError(f"no format {name!r}; {told}") from None
