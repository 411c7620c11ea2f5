"""Changes to a trainer that are hard to detect; run as a program, it prints how each is detected."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "conformance" / "mutants"))

from reach import in_a_copy
from registry import Mutant, all_mutants
from trainspec_conformance.testbed.plain import memory, probes
from trainspec_conformance.testbed.plain.backend import PlainBackend
from trainspec_reference.common import batch_schedule, channel, controller, decisions, telemetry, watch


def changed_constant() -> None:
    memory._KEPT_OF_LAYER = 0


def changed_table() -> None:
    decisions._CLASSES.clear()


def changed_environment() -> None:
    os.environ["TRAINSPEC_TRAP"] = "1"


def changed_default() -> None:
    batch_schedule.fitted.__defaults__ = ((),)


def changed_function_elsewhere() -> None:
    os.fsync = lambda _: None  # type: ignore[assignment]


def function_and_constant() -> None:
    own_function()
    changed_constant()


def function_becomes_another_thing() -> None:
    controller.silent = frozenset  # type: ignore[attr-defined]


def added_method() -> None:
    probes.BackendProbes.kernels = lambda self: {}  # type: ignore[method-assign, assignment]


def loaded_module() -> None:
    import sched  # noqa: F401

    own_function()


def nothing() -> None:
    """Changes nothing that can be seen."""


def property_of_a_class() -> None:
    watch.Watch.is_stalled = property(lambda self: False)  # type: ignore[method-assign, assignment]


def imported_name() -> None:
    telemetry.shares = lambda *_: (1,)


def own_function() -> None:
    batch_schedule.fitted = lambda sequences, speeds: (1,)


def several_functions() -> None:
    PlainBackend.update = lambda self, learning_rate, clip_norm: None  # type: ignore[method-assign]
    channel.Link.say = lambda self, message: None  # type: ignore[method-assign]


def main() -> None:
    """Print what each replaces, by its name."""
    traps: tuple[Callable[[], None], ...] = (
        changed_constant,
        changed_table,
        changed_environment,
        changed_default,
        changed_function_elsewhere,
        function_and_constant,
        function_becomes_another_thing,
        added_method,
        loaded_module,
        nothing,
        property_of_a_class,
        imported_name,
        own_function,
        several_functions,
    )
    all_mutants()
    told = {one.__name__: in_a_copy(Mutant(one.__name__, "", "", patch=one)) for one in traps}
    told["changed_task"] = in_a_copy(Mutant("task", "", "", patch=own_function, task=lambda task: task))
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
