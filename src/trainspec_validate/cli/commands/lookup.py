"""Turns a word of the command line into what it names, or says which word was meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from trainspec_validate.checking.selection import renamed
from trainspec_validate.cli import terminal
from trainspec_validate.model.accelerator_names import accelerators_named
from trainspec_validate.model.catalog import CatalogAccelerator, accelerators
from trainspec_validate.model.requirements import Index, Requirement, load_index
from trainspec_validate.model.suggest import did_you_mean, meant

Found = TypeVar("Found")


def pick(word: str, choices: Mapping[str, Found], noun: str, where: str = "") -> Found:
    """The choice with this name, whatever its case.

    Raises:
        click.UsageError: there is none; the text says which one is near, or `where` all are listed, or which there are.
    """
    folded = {name.casefold(): value for name, value in choices.items()}
    if word.casefold() in folded:
        return folded[word.casefold()]
    nearest = did_you_mean(word, choices)
    listed = f"{where} lists them" if where else f"there are {', '.join(choices)}"
    raise click.UsageError(f"no {noun} is called {word!r}; {meant(word, nearest) if nearest else listed}")


def accelerator(word: str) -> CatalogAccelerator:
    """The accelerator of the catalog with this name, or the one that a product name means, with a note on it.

    Raises:
        click.UsageError: there is none, or the word means several, which the text lists.
    """
    known = {name.casefold(): entry for name, entry in accelerators().items()}
    exact = known.get(word.casefold())
    if exact is not None:
        return exact
    found = accelerators_named(word)
    if len(found) > 1:
        listed = ", ".join(entry.name for entry in found)
        raise click.UsageError(f"{word!r} is the name of several accelerators: {listed}")
    if not found:
        return pick(word, accelerators(), "accelerator", "`trainspec catalog`")
    terminal.tell(f"note: {word} is taken as {found[0].name}")
    return found[0]


def requirement(word: str, index: Index) -> Requirement:
    """The requirement with this id or name.

    Raises:
        click.UsageError: there is none.
    """
    found = index.find(word)
    for note in renamed([word], index):
        terminal.tell(note)
    return found or pick(word, dict(_by_word(index)), "requirement", "`trainspec rules`")


def _by_word(index: Index) -> Iterator[tuple[str, Requirement]]:
    for entry in index.by_id.values():
        yield entry.id, entry
        yield entry.name, entry


def complete_requirement(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Ids and names that begin as typed, for the shell."""
    return _starting(start, (word for word, _ in _by_word(load_index())))


def complete_accelerator(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Accelerators that begin as typed, for the shell."""
    return _starting(start, accelerators())


def complete_model(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Models that begin as typed, for the shell."""
    from trainspec_validate.model.catalog import models  # noqa: PLC0415

    return _starting(start, models())


def _starting(start: str, words: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.casefold().startswith(start.casefold())]
