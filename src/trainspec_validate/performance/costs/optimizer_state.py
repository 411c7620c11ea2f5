"""Numbers that an optimizer keeps of each parameter, by optimizer and by the matrices of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainspec_validate.performance.costs.transformer import Shape, parameters

NUM_MOMENTS: Mapping[str, tuple[int, int, int]] = {
    "adam": (2, 2, 2),
    "adamw": (2, 2, 2),
    "muon": (1, 1, 1),
    "adafactor": (0, 0, 1),
    "shampoo": (0, 2, 3),
    "soap": (2, 2, 2),
    "sgd": (0, 1, 1),
    "lion": (1, 1, 1),
}
"""Least, usual and most tensors with one number for each parameter. Adam arXiv:1412.6980, algorithm 1; Muon
arXiv:2502.16982, section 2.1; Adafactor arXiv:1804.04235, section 3; Shampoo with Adam's grafting arXiv:2309.06497,
section 3; SOAP arXiv:2409.11321, section 6; Lion arXiv:2302.06675, algorithm 2."""
FACTORED = frozenset({"adafactor", "shampoo", "soap"})
"""Optimizers that also keep tensors whose size follows from the rows and columns of a matrix."""
LARGEST_SIDE: Mapping[str, int] = {"shampoo": 1024, "soap": 10_000}
"""Largest side of a preconditioner by default: facebookresearch/optimizers@03c24d7e and nikhilvyas/SOAP, soap.py."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Matrices of one size."""

    rows: int
    columns: int
    count: int

    @property
    def num_parameters(self) -> int:
        """Parameters of all of them."""
        return self.rows * self.columns * self.count


def matrices(shape: Shape, *, tables: bool = True) -> tuple[Matrix, ...]:
    """Matrices of a transformer with one for each projection; norms are left out, and on request the tables.

    They add up to the parameters of `transformer.parameters` less the norms.

    >>> llama_8b = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
    >>> round(sum(matrix.num_parameters for matrix in matrices(llama_8b)) / 1e9, 2)
    8.03
    """
    hidden, layers, expert_layers = shape.hidden_size, shape.num_layers, shape.num_expert_layers
    each = 3 if shape.gated_ffn else 2
    experts = shape.num_experts + shape.num_shared_experts
    found = (
        Matrix(hidden, shape.attention_width, (3 if shape.relative_positions else 2) * layers),
        Matrix(hidden, shape.num_key_value_heads * shape.head_size, 2 * layers),
        Matrix(hidden, shape.ffn_hidden_size, each * (layers - expert_layers)),
        Matrix(hidden, shape.expert_hidden_size, each * expert_layers * experts),
        Matrix(hidden, shape.num_experts, expert_layers),
        Matrix(shape.vocabulary_size, hidden, (1 if shape.tied_embeddings else 2) if tables else 0),
    )
    return tuple(matrix for matrix in found if matrix.num_parameters)


def factor_numbers(name: str, rows: int, columns: int, largest_side: int | None = None) -> float:
    """Numbers that an optimizer keeps of a matrix besides its moments.

    Adafactor keeps a sum for each row and each column (arXiv:1804.04235, algorithm 2). Shampoo keeps a square factor
    for the rows, one for the columns (arXiv:1802.09568, algorithm 1) and their inverse roots; of a matrix cut into
    blocks the factors are those of the blocks (arXiv:2309.06497, section 4). SOAP keeps the factors and their
    eigenvectors, and none of a side above the largest (arXiv:2409.11321, section 6). Others keep none.

    >>> factor_numbers("adafactor", 4096, 14336)
    18432.0
    >>> factor_numbers("shampoo", 4096, 4096, 1024) / 4096**2
    4.0
    >>> factor_numbers("soap", 4096, 14336, 10_000) / 4096**2
    2.0

    Raises:
        ValueError: a side is below 1.
    """
    if min(rows, columns, largest_side or 1) < 1:
        raise ValueError("a matrix has at least one row and one column")
    if name == "adafactor":
        return float(rows + columns)
    most = largest_side or LARGEST_SIDE.get(name, max(rows, columns))
    if name == "shampoo":
        high, wide = min(rows, most), min(columns, most)
        return 2.0 * rows * columns * (high / wide + wide / high)
    if name == "soap":
        return 2.0 * sum(side**2 for side in (rows, columns) if side <= most)
    return 0.0


def factors_per_parameter(name: str, shape: Shape, *, tables: bool = True, largest_side: int | None = None) -> float:
    """Numbers that an optimizer keeps besides its moments, over all parameters of a transformer.

    Sources as for `factor_numbers`. Distributed Shampoo on Llama 3.1 8B, which with blocks of any size keeps four
    numbers for each parameter of a square block, and Adafactor, which keeps next to none:

    >>> llama_8b = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
    >>> round(factors_per_parameter("shampoo", llama_8b), 2), round(factors_per_parameter("adafactor", llama_8b), 4)
    (4.0, 0.0004)
    """
    held = matrices(shape, tables=tables)
    numbers = sum(m.count * factor_numbers(name, m.rows, m.columns, largest_side) for m in held)
    return numbers / parameters(shape).total
