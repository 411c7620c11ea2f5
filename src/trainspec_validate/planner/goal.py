"""Declares the request to a planner."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.forecast.facts import MachineFacts, ModelFacts


@dataclass(frozen=True, slots=True)
class Goal:
    """A job to be planned.

    Raises:
        ValueError: there is no rank, no sequence or no token, or the reserve is negative.
    """

    model: ModelFacts
    machine: MachineFacts
    num_ranks: int
    global_sequences: int
    sequence_length: int
    reserve_bytes: float
    """Device memory of a rank that a plan leaves free."""

    def __post_init__(self) -> None:
        if min(self.num_ranks, self.global_sequences, self.sequence_length) < 1:
            raise ValueError("a job has a rank, and a step has a sequence of a token")
        if self.reserve_bytes < 0:
            raise ValueError(f"a reserve of {self.reserve_bytes} bytes")

    @property
    def memory_budget_bytes(self) -> float:
        """What a plan may use of a rank's device memory."""
        return self.machine.memory_bytes - self.reserve_bytes
