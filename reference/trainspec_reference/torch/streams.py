"""Exchanges gradients on a device stream that overlaps with the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class SideStream:
    """A queue of work beside the one that computes; on the processor, threads do the same and nothing is to be done."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def mark(self) -> torch.cuda.Event | None:
        """What has been asked of the computing queue until now."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    @contextmanager
    def after(self, event: torch.cuda.Event | None) -> Iterator[None]:
        """Work that begins once the marked work is done, and does not hold up the computing queue."""
        if self._stream is None or event is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(event)
            yield

    def finish_computing(self) -> None:
        """Wait for the computing queue."""
        if self._stream is not None:
            torch.cuda.current_stream().synchronize()

    def finish(self) -> None:
        """Wait for the work beside it."""
        if self._stream is not None:
            self._stream.synchronize()
