"""Refuses paths of the command line that a change could lead out of its tree, where a change is judged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from trainspec_validate.pipeline.files import STDIN
from trainspec_validate.system.boundary import InputError
from trainspec_validate.system.patterns import WILDCARDS
from trainspec_validate.system.repository import outermost, top_of


def without_links_out(arguments: Iterable[str]) -> tuple[list[str], list[InputError]]:
    """The arguments that stay in their tree, and why the others are refused."""
    kept, refused = list[str](), list[InputError]()
    for argument in arguments:
        tree = _left(argument) if argument not in {"", STDIN} else None
        if tree is None:
            kept.append(argument)
        else:
            words = f"is a link out of {tree}, which a change can make; it is not followed"
            refused.append(InputError(f"{argument}: {words}; put the files themselves there, or name them"))
    return kept, refused


def _left(argument: str) -> Path | None:
    """The tree that an argument is in by its name and not by what it leads to; None where it stays there."""
    place = Path(os.path.abspath(_spelt_out(argument)))  # noqa: PTH100 - Path.resolve follows links
    tree = _tree_of(place)
    try:
        real = os.path.realpath(_spelt_out(argument))
    except ValueError:
        return None  # no name of a file, which the search reports
    return None if tree is None or Path(real).is_relative_to(os.path.realpath(tree)) else tree


def _spelt_out(argument: str) -> str:
    """An argument up to the first step of a pattern."""
    if os.path.lexists(argument):
        return argument
    parts = Path(argument).parts
    plain = next((number for number, part in enumerate(parts) if WILDCARDS & set(part)), len(parts))
    return os.path.join(*parts[:plain]) if plain else "."  # noqa: PTH118


def _tree_of(place: Path) -> Path | None:
    """The repository that a name is in: of the working directory, else of its own; else the working directory."""
    here = Path.cwd()
    tree = top_of(here)
    if tree is None and place.is_relative_to(here):
        return outermost(place.parent, here) or here
    if tree is not None and place.is_relative_to(tree):
        return tree
    return next((one for one in place.parents if os.path.lexists(one / ".git")), None)
