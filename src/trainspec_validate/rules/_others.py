"""Distinguishes a rule that has nothing to judge from one that a value `other` keeps from judging, for the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from trainspec_validate.documents.others import OTHER, others, with_listed, without_others
from trainspec_validate.documents.types import Document, Unknown, UnknownValueError
from trainspec_validate.documents.types.partial import Pointer
from trainspec_validate.performance.derived.job import Same
from trainspec_validate.rules import NotApplicable, Rule, Unresolved, at
from trainspec_validate.rules._groups import violations_of

_CACHED = 256
"""Documents of a run that are kept with what was made of them."""


def kept_off(rule: Rule, arguments: Mapping[str, Document]) -> Iterator[Unresolved]:
    """The keys with the value `other` in whose place a listed value would have the rule judge, and find nothing.

    A listed value that the rule would find wrong is not the one that the document means.
    """
    if not _asks(rule, arguments):
        return
    for name, document in arguments.items():
        for keys, (pointer, listed) in _of(Same(document)).items():
            if any(_passes(rule, {**arguments, name: _variant(Same(document), keys, value)}) for value in listed):
                reason = f"gives {'.'.join(keys)}: {OTHER}"
                yield Unresolved(at(document, *pointer), reason, "name one that is listed, where one fits")


def _asks(rule: Rule, arguments: Mapping[str, Document]) -> bool:
    """Whether the rule looks at a value `other` at all."""
    if not any(_of(Same(document)) for document in arguments.values()):
        return False
    try:
        for _ in violations_of(rule, {name: _open(Same(document)) for name, document in arguments.items()}):
            pass  # a rule may look at it after what it finds
    except NotApplicable:
        return False
    except UnknownValueError:
        return True
    except TypeError as error:
        # A built-in function that takes nothing but a text met a value that is not known.
        if Unknown.__name__ not in str(error):
            raise
        return True
    return False


def _passes(rule: Rule, arguments: Mapping[str, Document]) -> bool:
    try:
        return not any(True for _ in violations_of(rule, arguments))
    except (NotApplicable, UnknownValueError):
        return False


@lru_cache(maxsize=_CACHED)
def _of(same: Same[Document]) -> Mapping[tuple[str, ...], tuple[Pointer, tuple[str, ...]]]:
    return others(same.document)


@lru_cache(maxsize=_CACHED)
def _open(same: Same[Document]) -> Document:
    return without_others(same.document)


@lru_cache(maxsize=_CACHED)
def _variant(same: Same[Document], keys: tuple[str, ...], value: str) -> Document:
    """The document with a listed value; one object for all rules, so that they share a prediction."""
    return with_listed(same.document, keys, value)
