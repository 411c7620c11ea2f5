"""Holds the properties that a program declares of its run, and makes stream headers of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainspec_record import values
from trainspec_record.catalog import METRICS
from trainspec_record.identity import Identity

PRODUCER = {"name": "trainspec_record", "version": "1"}
FLOPS = ("train.flops.convention", "train.flops.per_token", "train.flops.peak", "train.flops.precision")
_NAME = re.compile(r"[a-z][a-z0-9_.]*")
_INSTRUMENTS = frozenset({"counter", "updowncounter", "gauge", "histogram"})


@dataclass(frozen=True)
class Settings:
    """Settings that a program declares of its run; each of them can be left out."""

    world_size: int | None = None
    """Ranks of the job, where the launcher does not set them."""
    device: str | None = None
    """UUID of the device of this rank, where the environment does not set it."""
    flops_per_token: float | None = None
    """Model operations of one token, forward and backward."""
    peak_flops: float | None = None
    """Dense peak of one accelerator, in operations per second."""
    flops_precision: str = "bf16"
    """Number format that the peak holds for."""
    flops_convention: str = "6n"
    """Formula that counts operations, by its name in a training plan."""
    loss_reduction: str | None = None
    """How losses of micro-batches and ranks become one, as in a training plan."""
    documents: Iterable[str | Path] = ()
    """Files of the plan, profile and policy that the run claims to follow; their digests are written."""
    rank_map: str | None = None
    """Host and device of each rank, where the heads of their streams are not enough."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """Further attributes that hold for the whole attempt, by their names in the catalog."""
    unsupported: Mapping[str, str] = field(default_factory=dict)
    """Metrics required of the program that it cannot give, each with the reason."""
    extension_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Metrics of a vendor: `unit`, `instrument` and `description` of each."""
    groups: bool = False
    """Whether ranks log metrics of process groups too, such as `train.collective.sequence`."""
    report_interval_steps: int = 1
    """Optimizer steps between two reports; more than 1 where an optimizer step takes a few milliseconds only."""
    redaction_key: str | Path | None = None
    """File with the key by which names of hosts, devices and emitters are hidden; `TRAINSPEC_REDACT` where left out."""
    node_sampler: bool = True
    """Whether the first rank of each node samples devices and host in a thread; not where an agent does."""

    @property
    def flops(self) -> dict[str, Any]:
        """Attributes of utilisation; none where operations or peak are not known."""
        cost, peak = values.number(self.flops_per_token), values.number(self.peak_flops)
        if not cost or not peak:
            return {}
        return dict(zip(FLOPS, (str(self.flops_convention), cost, peak, str(self.flops_precision)), strict=True))

    @property
    def num_devices_per_rank(self) -> int:
        """Devices that each rank drives, as declared; 1 where nothing is."""
        told = self.declared.get("train.rank.num_devices")
        return told if isinstance(told, int) and told >= 1 else 1

    @property
    def interval(self) -> int:
        """Optimizer steps between two reports, within what a head can say."""
        return min(max(int(self.report_interval_steps), 1), 1_000_000)

    def policies(self) -> list[str]:
        """Each document with its digest; one that cannot be read is left out."""
        found = []
        for document in self.documents:
            path = Path(document)
            if path.is_file():
                found.append(f"{path.name} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
        return found

    def job_head(self, who: Identity, now_us: int, start_us: int) -> dict[str, Any]:
        """Head of the stream of the job; `start_us` is when the run started."""
        told = {name: value for name, value in self.declared.items() if not name.startswith("train.parallel.")}
        if self.loss_reduction:
            told["train.loss.reduction"] = self.loss_reduction
        refused = {name: values.text(why) for name, why in self.unsupported.items() if name in METRICS}
        if not self.flops:
            refused.setdefault("train.flops.utilization", "the program states no operations per token, or no peak")
        return {
            **head(who, "job", now_us, ("job", "emitter"), start_us),
            "report_interval_steps": self.interval,
            "declared": values.attributes({**told, **self.flops}),
            "unsupported": refused,
            "extension_metrics": self._extensions(),
        }

    def rank_head(self, who: Identity, now_us: int) -> dict[str, Any]:
        """Head of the stream of a rank."""
        told = {name: value for name, value in self.declared.items() if name.startswith("train.parallel.")}
        subject = {"rank": who.rank, "host": who.host, **({"device": who.device} if who.device else {})}
        return {
            **head(who, rank_emitter(who), now_us, ("rank", *(["group"] if self.groups else []), "emitter"), now_us),
            **subject,
            "report_interval_steps": self.interval,
            "declared": values.attributes(told),
            "extension_metrics": self._extensions(),
        }

    def _extensions(self) -> dict[str, dict[str, str]]:
        return {
            name: {
                key: values.text(value) for key, value in entry.items() if key in {"unit", "instrument", "description"}
            }
            for name, entry in self.extension_metrics.items()
            if _NAME.fullmatch(name) and entry.get("unit") and entry.get("instrument") in _INSTRUMENTS
        }


def rank_emitter(who: Identity) -> str:
    """Name of the writer of a rank."""
    return f"rank-{who.rank:06}"


def head(who: Identity, emitter: str, now_us: int, scopes: tuple[str, ...], start_us: int) -> dict[str, Any]:
    """Keys of every head; counters count from `start_us`."""
    return {
        "k": "head",
        "apiVersion": "trainspec/v1",
        "kind": "MetricStream",
        "run": who.run,
        "att": who.attempt,
        "emitter": emitter,
        "time_us": now_us,
        "scopes": list(scopes),
        **({"world_size": who.world_size} if who.world_size else {}),
        "counters_start_us": start_us,
        "producer": PRODUCER,
    }
