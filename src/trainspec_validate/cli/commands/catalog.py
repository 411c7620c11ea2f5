"""Shows the published figures of accelerators and the shapes of models to a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.cli.commands.lookup import accelerator, complete_accelerator, pick
from trainspec_validate.documents.commented import figure
from trainspec_validate.model.catalog import CatalogAccelerator, CatalogModel, accelerators, models

_HEADER = ("name", "memory GB", "bf16 TFLOP/s", "bandwidth TB/s", "watts", "links", "title")
_MODEL_HEADER = ("name", "billions", "active", "layers", "hidden", "heads", "sequence", "title")


@click.command(
    epilog="""\b
Examples:
  trainspec catalog nvidia-h100-sxm-80gb
  trainspec catalog --models
"""
)
@click.argument("name", required=False, shell_complete=complete_accelerator)
@click.option("listing", "--models", is_flag=True, help="Show models, by the names that `trainspec plan` takes.")
@click.option(
    "style", "--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
def command(name: str | None, listing: bool, style: str) -> None:
    """List the accelerators whose figures are known, or show one with the source of its figures.

    Rates are dense, of one package or chip. Every name can be the model of an accelerator in a profile.
    """
    if listing:
        _show_models(name, style)
        return
    known = accelerators()
    chosen = [accelerator(name)] if name else list(known.values())
    if style == "json":
        terminal.emit(json.dumps([asdict(entry) for entry in chosen], indent=2, ensure_ascii=False) + "\n", "json")
    elif name:
        terminal.emit("".join(f"{line}\n" for line in _page(chosen[0])))
    else:
        tables.show(_HEADER, [_row(entry) for entry in chosen], frozenset(range(1, 5)))


def _show_models(name: str | None, style: str) -> None:
    known = models()
    chosen = [pick(name, known, "model", "`trainspec catalog --models`")] if name else list(known.values())
    if style == "json":
        terminal.emit(json.dumps([asdict(entry) for entry in chosen], indent=2, ensure_ascii=False) + "\n", "json")
    elif name:
        terminal.emit("".join(f"{line}\n" for line in _model_page(chosen[0])))
    else:
        tables.show(_MODEL_HEADER, [_model_row(entry) for entry in chosen], frozenset(range(1, 7)))


def _model_row(entry: CatalogModel) -> tuple[str, ...]:
    shape = entry.model
    active = shape.get("num_active_parameters", shape["num_parameters"])
    sizes = (f"{value / 1e9:.4g}" for value in (shape["num_parameters"], active))
    keys = ("num_layers", "hidden_size", "num_attention_heads", "sequence_length")
    return (entry.name, *sizes, *(str(shape[key]) for key in keys), entry.title)


def _model_page(entry: CatalogModel) -> Iterator[str]:
    yield f"{entry.name}: {entry.title}"
    experts = {f"experts.{key}": value for key, value in entry.model.get("experts", {}).items()}
    lines = {key: value for key, value in entry.model.items() if key != "experts"} | experts
    width = max(map(len, lines))
    for key, value in lines.items():
        written = json.dumps(value) if isinstance(value, bool) else value if isinstance(value, str) else figure(value)
        yield f"  {key:<{width}}  {written}"
    yield f"  {'source':<{width}}  {entry.source}"


def _row(entry: CatalogAccelerator) -> tuple[str, ...]:
    return (
        entry.name,
        f"{entry.memory_bytes / 1e9:g}",
        _scaled(entry.peak_flops_per_second.get("bf16"), 1e12),
        _scaled(entry.memory_bandwidth_bytes_per_second, 1e12),
        _scaled(entry.power_watts, 1),
        " ".join(entry.scale_up.values()),
        entry.title,
    )


def _scaled(value: float | None, unit: float) -> str:
    return "" if value is None else f"{value / unit:g}"


def _page(entry: CatalogAccelerator) -> Iterator[str]:
    yield f"{entry.name}: {entry.title}"
    yield f"  memory            {entry.memory_bytes / 1e9:g} GB"
    if entry.memory_bandwidth_bytes_per_second:
        yield f"  memory bandwidth  {entry.memory_bandwidth_bytes_per_second / 1e12:g} TB/s"
    for number_format, rate in entry.peak_flops_per_second.items():
        yield f"  dense peak        {rate / 1e12:g} TFLOP/s in {number_format}"
    if entry.measured_matmul_flops_per_second:
        yield f"  measured product  {entry.measured_matmul_flops_per_second / 1e12:g} TFLOP/s"
    if entry.power_watts:
        yield f"  power             {entry.power_watts:g} W"
    if entry.scale_up:
        yield f"  scale-up links    {' '.join(entry.scale_up.values())}"
    if entry.num_dies > 1:
        yield f"  dies              {entry.num_dies}"
    if entry.note:
        yield f"  note              {entry.note}"
    yield f"  source            {entry.source}"
