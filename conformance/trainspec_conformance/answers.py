"""Finds the answer of a stack to a numeric question, and reads it without trusting its form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from trainspec_conformance.arrays import Array, unpacked
from trainspec_conformance.criteria import CannotJudgeError, Case
from trainspec_conformance.records import Entry, Probed
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.system.structs import converted

Value = TypeVar("Value")


@dataclass(frozen=True)
class Answer:
    """A request and its answer."""

    entry: Entry
    record: Probed
    question: dict[str, Any]
    found: dict[str, Any]

    def value(self, key: str) -> Any:
        """A value of the answer.

        Raises:
            CannotJudgeError: it is not there.
        """
        if key not in self.found:
            raise CannotJudgeError(f"the answer has no {key}")
        return self.found[key]

    def array(self, key: str, shape: tuple[int, ...]) -> Array:
        """An array of the answer, which has to have that shape.

        Raises:
            CannotJudgeError: it is not there, or of another shape.
        """
        try:
            found = unpacked(self.value(key))
        except ValueError as error:
            raise CannotJudgeError(f"{key} of the answer: {error}") from error
        if found.shape != shape:
            raise CannotJudgeError(f"{key} of the answer has the shape {list(found.shape)}, wanted {list(shape)}")
        return found

    def of_type(self, key: str, kind: type[Value]) -> Value:
        """A value of the answer, of a type.

        Raises:
            CannotJudgeError: it is not there, or of another type.
        """
        try:
            return converted(self.value(key), kind)
        except (msgspec.ValidationError, RecursionError) as error:
            raise CannotJudgeError(f"{key} of the answer: {error}") from error

    def number(self, key: str) -> float:
        """A finite number of the answer.

        Raises:
            CannotJudgeError: it is not there, or no such number.
        """
        return self.of_type(key, float)

    def asked(self, key: str) -> Array:
        """An array of the question."""
        return unpacked(self.question[key])


def answer_of(case: Case, criterion: Criterion) -> Answer:
    """The answer that a criterion is about.

    Raises:
        CannotJudgeError: there is none, the stack failed, or it says that it has no code for that.
    """
    for entry, record in case.trial.of(Probed):
        if record.case == criterion.case:
            return _answer(entry, record)
    raise CannotJudgeError(f"the stack received no request for {criterion.case}")


def others(case: Case, answer: Answer) -> list[Answer]:
    """The answers to other questions about the same operation, in order.

    Raises:
        CannotJudgeError: there is none, or the stack failed to give one.
    """
    found = [
        _answer(entry, record)
        for entry, record in case.trial.of(Probed)
        if record.case != answer.record.case
        and msgspec.json.decode(record.input).get("operation") == answer.question["operation"]
    ]
    if not found:
        raise CannotJudgeError(f"the stack received a request for {answer.record.case} only")
    return found


def _answer(entry: Entry, record: Probed) -> Answer:
    found = msgspec.json.decode(record.output)
    if record.status != 0 or not isinstance(found, dict):
        raise CannotJudgeError(f"the stack gave no answer: {record.reason or 'it is not an object'}")
    if "unsupported" in found:
        raise CannotJudgeError(f"unsupported: {found['unsupported']}")
    return Answer(entry, record, msgspec.json.decode(record.input), found)
