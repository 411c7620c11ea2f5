"""What Spark does with the parts of a run, in this process and without a cluster: each crosses over as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from trainspec_validate.telemetry.fold import spark
from trainspec_validate.telemetry.kernels import jit


class _Items:
    """Replaces a distributed data set."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = [pickle.dumps(item) for item in items]

    def map(self, work: Callable[[Any], Any]) -> _Items:
        """Each item as the work makes it, where it lies."""
        return _Items([work(pickle.loads(item)) for item in self._items])

    def treeReduce(self, join: Callable[[Any, Any], Any]) -> Any:  # noqa: N802 - the name of Spark
        """All items joined, neighbours first."""
        found = [pickle.loads(item) for item in self._items]
        while len(found) > 1:
            pairs = [found[start : start + 2] for start in range(0, len(found), 2)]
            found = [_Items([join(*pair) if len(pair) == 2 else pair[0]]).treeReduce(join) for pair in pairs]
        return found[0]


class _Context:
    """Replaces the context of a session."""

    defaultParallelism = 3  # noqa: N815 - the name of Spark

    def parallelize(self, items: Sequence[Any], _num_parts: int) -> _Items:
        """The items, distributed."""
        return _Items(items)


@contextmanager
def without_cluster() -> Iterator[None]:
    """The engine `spark` folds in this process, with compiled loops only where they are there already."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(spark, "_context", _Context))
        if not jit.is_compiled():
            stack.enter_context(patch.object(jit, "compile_loops", cache(lambda: False)))
        yield
