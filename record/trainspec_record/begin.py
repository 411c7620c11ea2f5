"""Starts recording, or reports why it cannot."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from trainspec_record.guard import never_raises, tell_once
from trainspec_record.identity import Identity, identity
from trainspec_record.node.nvml import device_uuid
from trainspec_record.node.sampler import start_sampler
from trainspec_record.recording import Run
from trainspec_record.redaction import Redaction, read_key
from trainspec_record.settings import Settings
from trainspec_record.silent import NO_RUN, SilentRun
from trainspec_record.writers import Writers, open_writers

SAMPLER = "TRAINSPEC_NODE_SAMPLER"
"""`none` where an agent samples the node."""
DOCUMENTS = "TRAINSPEC_DOCUMENTS"
"""Files of the plan, profile and policy that the run claims to follow, where the program names none."""
_KNOWN = frozenset(field.name for field in fields(Settings))
_active: weakref.ReferenceType[Run] | None = None


@never_raises(NO_RUN)
def begin(settings: Mapping[str, Any]) -> Run | SilentRun:
    """Begin to record as the environment and the program say; a process records one run at a time."""
    global _active  # noqa: PLW0603 - a process has one
    who = identity(os.environ)
    if who is None:
        return NO_RUN
    before = _active() if _active is not None else None
    if before is not None and before.is_active:
        tell_once("a run is recorded already in this process; the second one is not")
        return NO_RUN
    for unknown in settings.keys() - _KNOWN:
        tell_once(f"run() has no setting {unknown!r}")
    told = Settings(**{key: value for key, value in settings.items() if key in _KNOWN})
    if not told.documents and os.environ.get(DOCUMENTS):
        told = replace(told, documents=os.environ[DOCUMENTS].split(os.pathsep))
    if who.device is None and told.device is None:
        who = who._replace(device=device_uuid(os.environ, who.local_rank))
    if told.redaction_key is not None:
        who = who._replace(redaction=Redaction(read_key(told.redaction_key)))
    writers = open_writers(who, told)
    _sample(writers, told)
    found = Run(writers)
    _active = weakref.ref(found)
    return found


@never_raises(None)
def _sample(writers: Writers, settings: Settings) -> None:
    """Sample the node from a thread, on one rank of it."""
    who: Identity = writers.who
    if who.local_rank == 0 and settings.node_sampler and os.environ.get(SAMPLER, "thread") == "thread":
        writers.sampler = start_sampler(who, writers.pump, writers.clock, os.environ)
