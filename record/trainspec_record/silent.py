"""The handles of a training script while nothing is recorded: calls that do nothing."""

from __future__ import annotations

TYPE_CHECKING = False  # see the module of the package
if TYPE_CHECKING:
    from typing import Any


class SilentSpan:
    """A block of which nothing is recorded."""

    __slots__ = ()

    def __enter__(self) -> SilentSpan:
        """Nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def commit(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    def fail(self, *_: Any, **__: Any) -> None:
        """Nothing."""


NO_SPAN = SilentSpan()


class SilentRun:
    """A run that is not recorded."""

    __slots__ = ()
    is_active = False

    def __enter__(self) -> SilentRun:
        """Nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def step(self, *_: Any, **__: Any) -> SilentSpan:
        """Nothing."""
        return NO_SPAN

    phase = evaluation = checkpoint = restore = fault = step

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing."""

    event = warm_up_again = flush = end = log

    def state(self, *_: Any, **__: Any) -> dict[str, float]:
        """Nothing to save."""
        return {}


NO_RUN = SilentRun()
