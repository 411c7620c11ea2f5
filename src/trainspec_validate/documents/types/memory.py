"""Declares the memory plan of a job and its flow between host and device."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Bytes, Count, Fraction, Record


class Offload(Record, frozen=True, kw_only=True):
    """Class of tensor that leaves the device between uses."""

    what: Literal["optimizer", "parameters", "gradients", "activations"]
    """Class of tensor."""
    target: Literal["host", "local-disk"]
    """Where it goes."""
    fraction: Fraction
    """Share of it that leaves; of activations, the share of those that the activation policy keeps."""
    bytes_per_step: Bytes | None = None
    """Traffic of one optimizer step and rank, both directions together."""
    overlapped: bool | None = None
    """True when the traffic overlaps with computation."""


class Memory(Record, frozen=True, kw_only=True):
    """Which data is where on one rank."""

    activation_policy: Literal["none", "selective", "full", "offload"]
    """Part of the activations that is recomputed in the backward pass; none with `offload`."""
    reserve_bytes: Bytes | None = None
    """Device memory left free for contexts, communication buffers and fragmentation."""
    state_bytes_per_parameter: Annotated[float, Meta(gt=0, le=64)] | None = None
    """Weights, master weights, gradients and optimizer state of one parameter before sharding."""
    predicted_peak_bytes: Bytes | None = None
    """Largest device memory of any rank."""
    peak_view: Literal["allocator", "device"] | None = None
    """Whether the peak is what the framework allocated or what the device reports."""
    offload: tuple[Offload, ...] = ()
    """Tensors that leave the device between uses."""
    pinned_host_bytes: Bytes | None = None
    """Page-locked host memory of one rank."""
    prefetch_depth: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """Input batches that are ready on or on the way to the device."""
    pinned_input: bool | None = None
    """True when input is copied from page-locked memory."""
    asynchronous_copies: bool | None = None
    """True when host-to-device copies overlap with computation."""
    input_bytes_per_step: Bytes | None = None
    """Input that one rank copies to its device in one optimizer step."""
    allocator: Literal["caching", "expandable-segments", "asynchronous", "arena", "framework-default"] | None = None
    """Allocator of device memory."""
    unified_memory: Literal["none", "coherent", "managed"] = "none"
    """Use of memory that host and device share."""
    donated_buffers: bool | None = None
    """True when step inputs give their buffers to step outputs."""
    num_loader_workers: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """Input workers of one rank."""
    micro_batches_in_flight: Count | None = None
    """Micro-batches whose activations live at the same time on the first stage."""
