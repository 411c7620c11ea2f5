"""Declares what a collective library reported about the machine that a job ran on."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Count, Fraction, Name, Record, SoftwareComponent, Source, Text
from trainspec_validate.documents.types.fabric import Transport


class CollectiveObservation(Record, frozen=True, kw_only=True):
    """What one log of a collective library shows of one job."""

    source: Source
    """The log."""
    group: Name | None = None
    """Node group that the job ran on; absent means that the observation speaks of every group."""
    library: SoftwareComponent | None = None
    """The library and its version, as the log names them."""
    transport: Transport | None = None
    """Protocol between the nodes of the job; absent where the log does not show it, or shows several."""
    interfaces: tuple[Name, ...] = ()
    """Names of the network interfaces that the library uses, in its order, for example `mlx5_0`."""
    link_layers: tuple[Literal["infiniband", "ethernet"], ...] = ()
    """Link layers of these interfaces, each once."""
    num_ranks: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """Ranks of the largest communicator."""
    num_nodes: Count | None = None
    """Nodes of the job."""
    gpu_direct_share: Fraction | None = None
    """Share of the network connections that read and write accelerator memory without a copy through the host."""
    forced_settings: tuple[Name, ...] = ()
    """Names of the settings that the environment forced on the library."""
    in_switch_reduction: Literal["seen", "disabled"] | None = None
    """Whether the switches of a scale-up domain were ready to reduce, or were switched off."""
    warnings: tuple[Text, ...] = ()
    """Warnings of the library, each once."""
