"""Finds the subject of a resource of OTLP, and writes its stream header."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainspec_validate.documents.types.stream import Event, Sample, ScopeName
from trainspec_validate.model.metrics import by_name, events
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.items import Found
from trainspec_validate.telemetry.formats.transcript import Transcript, producer

_MAX_OWNERS = 100_000
_RUN = ("train.run.id", "nemo.run.id", "dl.run.id")
_HOST = ("host.id", "host.name", "k8s.node.name")
_INSTANCE = ("service.instance.id", "k8s.pod.uid", "k8s.pod.name", "container.id")
_RANK_AT_END = re.compile(r"-rank([0-9]{1,8})\Z")


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of a resource, in the words of a record."""

    run: str | None
    attempt: int
    emitter: str
    host: str | None
    rank: int | None
    device: str | None

    @property
    def place(self) -> dict[str, Any]:
        """Keys that each of its records carries, since a file has many owners."""
        return {"emitter": self.emitter, "att": self.attempt}


def first(attributes: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The first of some attributes that is there."""
    return next((found for name in names if (found := fit.identity(attributes.get(name)))), None)


class Owners:
    """The resources of a file; each has its head before its first record."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._owners: dict[str, Owner] = {}
        self._headed: set[tuple[str, int]] = set()

    def of(self, resource: Mapping[str, Any]) -> Owner:
        """Identity of a resource."""
        text = json.dumps(resource, sort_keys=True, default=str)
        found = self._owners.get(text)
        if found is None:
            found = self._owner(resource)
            if len(self._owners) < _MAX_OWNERS:
                self._owners[text] = found
        return found

    def _owner(self, resource: Mapping[str, Any]) -> Owner:
        given = self._transcript.given
        instance = first(resource, _INSTANCE)
        in_name = _RANK_AT_END.search(instance or "")
        rank = fit.rank(resource.get("train.rank.id", in_name[1] if in_name else None))
        attempt = fit.attempt(resource.get("train.run.attempt"))
        host = first(resource, _HOST) or given.host
        parts = [first(resource, ("service.name",)), instance or host]
        emitter = fit.identity("/".join(part for part in parts if part)) or self._transcript.emitter
        return Owner(
            run=first(resource, _RUN) or given.run,
            attempt=given.attempt if attempt is None else attempt,
            emitter=given.emitter or emitter,
            host=host,
            rank=given.rank if rank is None else rank,
            device=first(resource, ("hw.id",)),
        )

    def head(self, offset: int, resource: Mapping[str, Any], found: Iterable[Found]) -> Iterator[Found]:
        """The head of a resource before its first records, whose scopes it states."""
        records = [record for _, record in found if isinstance(record, Sample | Event)]
        owner = self.of(resource)
        place = (owner.emitter, owner.attempt)
        if not records or place in self._headed or len(self._headed) >= _MAX_OWNERS:
            return
        self._headed.add(place)
        world = fit.whole(resource.get("train.world.size"), 100_000_000)
        more = {
            "run": owner.run,
            "att": owner.attempt,
            "emitter": owner.emitter,
            "host": owner.host,
            "rank": owner.rank,
            "device": owner.device,
            "world_size": world or None,
            "producer": producer(resource.get("service.name"), resource.get("service.version")),
        }
        yield offset, self._transcript.head(min(r.time_us for r in records), _scopes(records), **more)


def _scopes(records: Iterable[Sample | Event]) -> tuple[ScopeName, ...]:
    """Scopes of what a resource was seen to write first."""
    found: list[Any] = []
    for record in records:
        if isinstance(record, Event):
            found.append(events()[record.name].scope if record.name in events() else "emitter")
        for key in (*record.m, *(record.nr if isinstance(record, Sample) else ())):
            metric = by_name((keys.split(key) or (key,))[0])
            scopes = metric.scopes if metric else ("emitter",)
            wide = [scope for scope in scopes if scope != "device" or record.device]
            found.append((wide or list(scopes))[0])
    return tuple(dict.fromkeys(found)) or ("emitter",)
