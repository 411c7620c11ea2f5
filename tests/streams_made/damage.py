"""Lists the kinds of damage to made runs, and the requirements meant to detect each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from .edits import Streams
from .run import Run, make_run
from .shape import Shape
from .write import by_emitter

BASES = {
    "plain": Shape(),
    "faults": Shape(faults=True),
    "long": Shape(num_nodes=1, num_steps=160, step_seconds=24.0, devices_per_node=8, device_interval_seconds=30.0),
}
"""Undamaged runs that operators work on."""

Files = Mapping[str, bytes | str]


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of damage to a run."""

    name: str
    what: str
    """What it does, in one sentence."""
    requirements: tuple[str, ...]
    """Requirements that are meant to notice it; any one of them is enough."""
    base: str
    apply: Callable[[Run], Files]
    """The damaged files of the run, its documents among them."""


_KINDS: list[Damage] = []


def undamaged(base: str) -> Files:
    """All files of an undamaged run."""
    return _files(make_run(BASES[base]))


def _files(run: Run, streams: Iterable[object] | None = None) -> Files:
    return {**run.documents, **by_emitter(run.streams if streams is None else streams)}  # type: ignore[arg-type]


def _register(operator: Callable[..., object], requirements: tuple[str, ...], base: str, apply: object) -> None:
    name = operator.__name__.replace("_", "-")
    what = (operator.__doc__ or "").strip()
    _KINDS.append(Damage(name, what, requirements, base, apply))  # type: ignore[arg-type]


def on_streams(*requirements: str, base: str = "plain") -> Callable[[Callable[[Run], Streams]], object]:
    """Register an operator that turns a run into other streams; its docstring says what it does."""

    def register(operator: Callable[[Run], Streams]) -> Callable[[Run], Streams]:
        _register(operator, requirements, base, lambda run: _files(run, operator(run)))
        return operator

    return register


def on_text(*requirements: str, file: str = "job.0.jsonl", base: str = "plain") -> Callable[..., object]:
    """Register an operator that damages the bytes of one file; its docstring says what it does."""

    def register(operator: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def apply(run: Run) -> Files:
            files = dict(_files(run))
            text = files[file]
            assert isinstance(text, bytes)
            return {**files, file: operator(text)}

        _register(operator, requirements, base, apply)
        return operator

    return register


def few_kinds() -> tuple[Damage, ...]:
    """Kinds that name every requirement between them: each names one that none of those with more names."""
    named: set[str] = set()
    chosen = []
    for kind in sorted(kinds(), key=lambda kind: -len(kind.requirements)):
        if not named.issuperset(kind.requirements):
            named.update(kind.requirements)
            chosen.append(kind)
    return tuple(chosen)


@cache
def kinds() -> tuple[Damage, ...]:
    """Every kind of damage, in the order of what is meant to notice it."""
    for part in ("text", "identity", "values", "times", "pace", "life", "recovery", "promises", "devices"):
        import_module(f".damage_{part}", __package__)
    return tuple(sorted(_KINDS, key=lambda kind: (kind.requirements[0], kind.name)))
