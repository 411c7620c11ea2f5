"""Predicts the memory of a step with the plain backend, by a count of its arrays."""

from __future__ import annotations

import math

from trainspec_reference.common.job import Job
from trainspec_reference.common.weights import initial_weights

_BYTES = 4
_KEPT_OF_LAYER = 5
"""Arrays that the backward pass of a layer reads: the norm and its output, two halves of a projection, the state."""
_WORKING = 15
"""Arrays of that size while the gradients of one layer are computed, with the hidden states around it."""
_STATE = 4
"""Parameters, two moments, and which entries decay."""
_OF_GRADIENT = 4
"""The weights that are read, gradients by name and in one vector, and their sum."""


def predicted_bytes(job: Job) -> int:
    """Bytes of the largest moment of a training step on one rank, without interpreter and libraries."""
    shape, samples = job.model, job.plan.batch.micro_sequences
    weights = initial_weights(shape, job.seed)
    num_parameters = sum(math.prod(one.shape) for one in weights.values())
    positions = samples * shape.sequence_length
    hidden = positions * shape.hidden_size * (_KEPT_OF_LAYER * shape.num_layers + _WORKING)
    logits = positions * shape.vocabulary_size
    return _BYTES * ((_STATE + _OF_GRADIENT) * num_parameters + hidden + logits)
