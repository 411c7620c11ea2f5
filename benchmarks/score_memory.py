"""Scores the memory model against published tables and measured jobs.

Run it: `python benchmarks/score_memory.py`. Every number that a prediction uses is published or read from the
framework's code, but for one: the share of memory that the allocator reserves beyond its tensors. Each row is
therefore predicted with the share that the other tables give, never with its own.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from training_sets import load

from trainspec_validate.performance.costs.activations import ActivationPolicy, layer_bytes
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState, model_state, sharded_bytes_per_parameter
from trainspec_validate.performance.costs.rank_memory import GIB, Overheads, RankMemory, peak
from trainspec_validate.performance.costs.transformer import Shape, parameters

PUBLISHED = Path(__file__).parent / "published"
LOSS_BYTES = {"eager": 12.0, "eager-parallel": 16.0, "compiled": 4.0, "chunked": 2 + (4 + 2) / 8}
"""Bytes of one logit at the fullest moment of the loss.

eager: fp32 logarithm of the softmax, its gradient, and the gradient of the logits, as the loss of
pytorch/torchtitan@9dec370a:train.py ends up, which is not compiled. eager-parallel: the same with logits split
over tensor ranks, four fp32 tensors at the end of pytorch/pytorch@02eef6b8:torch/distributed/tensor/parallel/
loss.py. compiled: 16-bit logits and their gradient (pytorch/torchtitan@e7c0cae9:torchtitan/components/loss.py
compiles the loss). chunked: 16-bit logits, and for one of 8 chunks an fp32 copy and a 16-bit gradient
(pytorch/torchtune@10ff7cd2:torchtune/modules/loss/ce_chunked_output_loss.py)."""

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    """The rows of one published table."""
    with (PUBLISHED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, slots=True)
class Cell:
    """One published number and its prediction."""

    name: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Prediction over publication, less one."""
        return self.predicted / self.published - 1


@dataclass(frozen=True, slots=True)
class ZeroCell:
    """A cell of the ZeRO table, with its last printed digit."""

    cell: Cell
    last_digit: float

    @property
    def is_exact(self) -> bool:
        """Whether the prediction is within 0.5 %."""
        return abs(self.cell.error) <= 0.005

    @property
    def is_rounded(self) -> bool:
        """Whether the printed number is the prediction, rounded to the digits that are printed."""
        return abs(self.cell.predicted - self.cell.published) <= self.last_digit / 2


def zero_cells() -> list[ZeroCell]:
    """The 54 cells of arXiv:1910.02054, Table 1, in GB of 1e9 bytes."""
    state = model_state("fp16", "fp32", "fp16", "fp32")
    cells = []
    for row in rows("zero_memory.csv"):
        each = sharded_bytes_per_parameter(state, int(row["zero_stage"]), int(row["data_degree"]))
        published = row["published_gb"]
        name = f"{row['parameters_billions']}e9 parameters, stage {row['zero_stage']}, {row['data_degree']} ranks"
        cell = Cell(name, float(published), each * float(row["parameters_billions"]))
        cells.append(ZeroCell(cell, 10.0 ** -len(published.partition(".")[2])))
    return cells


def shape_of(row: Row) -> Shape:
    """The shape that a row names; without a word on it, its feed-forward part has a gate."""
    return Shape(
        num_layers=int(row["num_layers"]),
        hidden_size=int(row["hidden_size"]),
        num_heads=int(row["num_heads"]),
        num_key_value_heads=int(row["num_key_value_heads"]),
        head_size=int(row["head_size"]),
        ffn_hidden_size=int(row["ffn_hidden_size"]),
        vocabulary_size=int(row["vocabulary_size"]),
        gated_ffn=bool(int(row.get("gated_ffn", "1"))),
        tied_embeddings=bool(int(row.get("tied_embeddings", "0"))),
    )


def _stage_layers(row: Row) -> tuple[int, ...]:
    """Even, the rest to the stages after the first: pytorch/torchtitan@9dec370a, pipelining_utils.py."""
    num_chunks = int(row["pipeline"]) * int(row["num_virtual_stages"])
    even, rest = divmod(int(row["num_layers"]), num_chunks)
    return tuple(even + (0 < index <= rest) for index in range(num_chunks)) if num_chunks > 1 else ()


def layout_of(row: Row) -> Layout:
    """The layout of a measured row; all state is sharded where there are ranks to share it."""
    degrees = ("data", "tensor", "pipeline", "context", "num_virtual_stages", "micro_sequences", "num_micro_batches")
    counts = {name: int(row[name]) for name in (*degrees, "sequence_length")}
    return Layout(
        **counts,
        schedule=row["schedule"],
        sequence_parallel=counts["tensor"] > 1,
        sharding_stage=3 if counts["data"] * counts["context"] > 1 else 0,
        stage_layers=_stage_layers(row),
    )


def policy_of(row: Row, shape: Shape) -> ActivationPolicy:
    """Tensors that a row's framework keeps; its eager code also keeps the last product of a layer."""
    factor = 1.0
    if row["recompute"] == "alternate" and row["compiled"] == "0":
        key_width = shape.num_key_value_heads * shape.head_size
        needed = shape.hidden_size + 2 * shape.attention_width + key_width + shape.ffn_hidden_size
        factor = (needed + shape.hidden_size) / needed
    loss = LOSS_BYTES[row["loss"]]
    if row["recompute"] == "full":
        return ActivationPolicy("full", loss_bytes_per_logit=loss)
    return ActivationPolicy("alternate", implementation_factor=factor, loss_bytes_per_logit=loss)


def tensors_of(row: Row) -> RankMemory:
    """Prediction for a measured row, without what the allocator reserves beyond its tensors."""
    shape = shape_of(row)
    trained = 1.0
    if row["trainable_parameters"]:
        trained = float(row["trainable_parameters"]) / parameters(shape).total
    state = ModelState(
        weights=float(row["weight_bytes"]),
        master=0.0,
        gradients=float(row["gradient_bytes"]) * trained,
        moments=float(row["optimizer_bytes"]) * trained,
    )
    pipelined = int(row["pipeline"]) > 1
    overheads = Overheads(
        fragmentation=0.0,
        gathered_weight_bytes=float(row["gathered_weight_bytes"]),
        gathered_gradient_bytes=2.0 * trained,
        stage_stays_gathered=pipelined,
        keeps_stage_outputs=pipelined,
    )
    return peak(shape, layout_of(row), state, policy_of(row, shape), overheads)[1]


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured row in GiB, and what the tensors of its prediction take."""

    row: Row
    measured_gib: float
    tensors_gib: float

    @property
    def reserved_share(self) -> float:
        """Measured memory beyond the tensors, as a share of them."""
        return self.measured_gib / self.tensors_gib - 1


def measured(*, adapters: bool = False) -> list[Measured]:
    """Rows of full training by torchtitan, or those of torchtune, which prints another quantity."""
    wanted = [row for row in rows("memory_measured.csv") if (row["table"] == "torchtune") == adapters]
    return [Measured(row, float(row["memory_gib"]), tensors_of(row).allocator / GIB) for row in wanted]


def leave_out(points: Sequence[Measured], same: Callable[[Row, Row], bool]) -> list[Cell]:
    """Each row predicted with the median share of those rows that are not the `same` as it."""
    cells = []
    for point in points:
        others = [other.reserved_share for other in points if not same(other.row, point.row)]
        predicted = point.tensors_gib * (1 + statistics.median(others))
        cells.append(Cell(point.row["row"], point.measured_gib, predicted))
    return cells


def by_table(points: Sequence[Measured]) -> list[Cell]:
    """Leave out the whole table of a row."""
    return leave_out(points, lambda left, right: left["table"] == right["table"])


def by_row(points: Sequence[Measured]) -> list[Cell]:
    """Leave out the row alone."""
    return leave_out(points, lambda left, right: left["row"] == right["row"])


def with_default(points: Sequence[Measured]) -> list[Cell]:
    """Each row predicted with the share that `Overheads` has by default."""
    factor = 1 + Overheads().fragmentation
    return [Cell(point.row["row"], point.measured_gib, point.tensors_gib * factor) for point in points]


def differences() -> list[Cell]:
    """GiB that 128 ranks save against 8, pair by pair: activations cancel, so nothing is estimated."""
    points = {point.row["row"][-3:]: point for point in measured() if "202412" in point.row["row"]}
    cells = []
    for few, many in (("001", "004"), ("002", "005"), ("003", "006")):
        saved = points[few].measured_gib - points[many].measured_gib
        cells.append(Cell(f"rows {few} and {many}", saved, points[few].tensors_gib - points[many].tensors_gib))
    return cells


def activation_factors() -> list[Cell]:
    """Measured bytes of a layer per token in eager code, and by the formula; one token on one rank."""
    cells = []
    for row in rows("activation_copies.csv"):
        shape = shape_of(row)
        held = 2 * float(row["copies_of_hidden_state_per_layer"]) * shape.hidden_size
        cells.append(Cell(row["model"], held, layer_bytes(shape, Layout(), ActivationPolicy("none"))))
    return cells


def plain_cells() -> list[tuple[Row, Cell]]:
    """Memory of the device for plain loops of PyTorch, in GiB, and what `trainspec plan --predict` says of it."""
    measured_bytes = {row["row_id"]: row for row in rows("plain_training.csv")}
    cells = []
    for run in load()[0]:
        if run.row in measured_bytes and run.prediction.memory:
            row, memory = measured_bytes[run.row], run.prediction.memory[1]
            cells.append((row, Cell(row["name"], float(row["device_bytes"]) / GIB, memory.total / GIB)))
    return cells


def worst(cells: Sequence[Cell]) -> float:
    """Largest error of a list, without its sign."""
    return max(abs(cell.error) for cell in cells)


def mean(cells: Sequence[Cell]) -> float:
    """Mean error of a list, without signs."""
    return statistics.fmean(abs(cell.error) for cell in cells)


def _print(title: str, cells: Sequence[Cell], unit: str) -> None:
    print(f"\n{title}: mean error {mean(cells):.1%}, worst {worst(cells):.1%}")
    for cell in cells:
        print(f"  {cell.name:42} {cell.published:9.2f} {unit}, predicted {cell.predicted:9.2f}, {cell.error:+.1%}")


def main() -> None:
    """Print every row of every table."""
    zero = zero_cells()
    exact = sum(cell.is_exact for cell in zero)
    only_rounded = [cell.cell for cell in zero if not cell.is_exact and cell.is_rounded]
    print(f"ZeRO table: {exact} of {len(zero)} cells within 0.5 %, {len(only_rounded)} equal as printed:")
    for cell in only_rounded:
        print(f"  {cell.name}: {cell.published} GB printed, {cell.predicted:.4f} predicted")
    points = measured()
    print(f"\nReserved beyond tensors: median {statistics.median(p.reserved_share for p in points):.3f}")
    _print("torchtitan, each table predicted from the others", by_table(points), "GiB")
    _print("torchtitan, each row predicted from the others", by_row(points), "GiB")
    _print("torchtitan, default overheads", with_default(points), "GiB")
    _print("8 against 128 ranks", differences(), "GiB")
    tuned = measured(adapters=True)
    bare = [Cell(point.row["row"], point.measured_gib, point.tensors_gib) for point in tuned]
    _print("torchtune, tensors alone (its table does not say whether it means allocated or reserved)", bare, "GiB")
    _print(
        "plain PyTorch on one H200, path of `trainspec plan`, nothing fitted",
        [cell for _, cell in plain_cells()],
        "GiB",
    )
    print("\nActivations of one layer in eager code over the formula (implementation factor):")
    for cell in activation_factors():
        print(f"  {cell.name:42} {cell.published / cell.predicted:.2f}")


if __name__ == "__main__":
    main()
