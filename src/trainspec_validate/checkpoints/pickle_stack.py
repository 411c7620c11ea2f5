"""Holds the values that a pickle puts on its stack, in groups that begin at marks."""

from __future__ import annotations

from typing import Any

from trainspec_validate.checkpoints.pickle_values import Name


class _Mark:
    """Where a group on the stack begins."""


MARK = _Mark()


class Stack:
    """The values of one pickle that nothing has taken yet."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        """Places of the marks on the stack."""
        self.functions: dict[str, None] = {}
        self.only_called: set[Name] = set()  # and never part of another value

    def _top(self) -> Any:
        """The top; a mark is no value."""
        if not self.stack or self.stack[-1] is MARK:
            raise ValueError("a value is taken where there is none")
        return self.stack[-1]

    def _pop(self) -> Any:
        """The top, taken away."""
        self._top()
        return self.stack.pop()

    def _group(self) -> list[Any]:
        """The values above the last mark, which are taken from the stack with it."""
        if not self.marks:
            raise ValueError("a group has no begin")
        place = self.marks.pop()
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return self._held(found) if self.only_called else found

    def _held(self, taken: list[Any]) -> list[Any]:
        """Values that become part of another one; some names may only be called."""
        for one in taken:
            if type(one) is Name and one in self.only_called:
                self.functions[str(one)] = None
        return taken

    def drop(self) -> None:
        """Take the top away, a mark too."""
        if not self.stack:
            raise ValueError("a value is taken where there is none")
        if self.stack.pop() is MARK:
            self.marks.pop()

    def mark(self, _argument: Any) -> None:
        """Where a group begins."""
        self.marks.append(len(self.stack))
        self.stack.append(MARK)

    def take(self, size: int) -> list[Any]:
        """The topmost values, taken away."""
        place = len(self.stack) - size
        if place < 0 or (self.marks and self.marks[-1] >= place):
            raise ValueError("a value is taken where there is none")
        taken = self.stack[place:]
        del self.stack[place:]
        return self._held(taken) if self.only_called else taken

    def group(self) -> list[Any]:
        """The group, taken away."""
        return self._group()
