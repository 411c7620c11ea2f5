"""Plans a job at the command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.lookup import complete_model, pick
from trainspec_validate.cli.terminal import Failure

_COUNT = click.IntRange(1, 100_000_000)
_WISHES = (
    *("num_ranks", "node_group", "global_sequences", "sequence_length"),
    *("num_tokens", "number_format", "framework", "price_per_accelerator_hour"),
)
_DEGREES = {
    "tensor": "tensor ranks",
    "context": "context ranks",
    "pipeline": "pipeline stages",
    "expert": "expert ranks",
    "micro_sequences": "sequences of a micro-batch",
}
_CONSTRAINTS = (*_DEGREES, *(f"max_{name}" for name in _DEGREES), "even_stages")


def _constrained(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with an option for each constraint of a search."""
    command = click.option("--even-stages", is_flag=True, help="Give all chunks of a pipeline as many layers.")(command)
    for name, words in reversed(_DEGREES.items()):
        option = name.replace("_", "-")
        command = click.option(f"--max-{option}", type=_COUNT, help=f"At most so many {words}.")(command)
        command = click.option(f"--{option}", type=_COUNT, help=f"Exactly so many {words}.")(command)
    return command


class Finite(click.FloatRange):
    """A number between bounds that is a number; click lets `nan` pass between any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            click.BadParameter: it is none, or is outside.
        """
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


@click.command(
    epilog="""\b
Examples:
  trainspec plan cluster.yaml --model llama3-70b
  trainspec plan cluster.yaml --model llama3-405b --num-ranks 16384 --global-sequences 2048 --output run
  trainspec plan cluster.yaml --model my-plan.yaml --top 10 --format json
  trainspec plan cluster.yaml --predict my-plan.yaml
"""
)
@click.argument("cluster", type=click.Path())
@click.option(
    "--model",
    metavar="NAME|FILE",
    shell_complete=complete_model,
    help="Model of the catalog (`trainspec catalog --models`), or a training plan whose model and adapters are taken.",
)
@click.option(
    "--predict",
    "predicted",
    type=click.Path(),
    metavar="PLAN",
    help="Search nothing: predict step time and memory of this training plan, by the same models.",
)
@click.option(
    "--num-ranks",
    type=_COUNT,
    help="Ranks of the job; those of the whole cluster take all of its node groups.  [default: all of the node group]",
)
@click.option("--node-group", metavar="NAME", help="Node group to run on.  [default: the fastest]")
@click.option("--global-sequences", type=_COUNT, help="Sequences of one optimizer step.")
@click.option("--sequence-length", type=_COUNT, help="Tokens of one sequence.")
@click.option("--tokens", "num_tokens", type=Finite(1, 1e15), help="Tokens of the whole job.")
@click.option(
    "--precision",
    "number_format",
    type=click.Choice(["bf16", "fp16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Format of the matrix products.",
)
@click.option(
    "--framework",
    metavar="NAME[==VERSION]",
    help="Training framework whose kernels and overlap predictions take, such as megatron-core==0.12.",
)
@click.option(
    "--reserve-bytes",
    type=Finite(0, 1e13),
    help="Memory of a rank to leave to contexts and collectives; 4e9, and 0 on TPUs, without it.",
)
@_constrained
@click.option(
    "--price-per-accelerator-hour", type=Finite(0, 1e6), help="Show what the job costs at this price, in its currency."
)
@click.option("--top", type=click.IntRange(1, 100), default=5, show_default=True, help="Plans to show.")
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False),
    callback=terminal.no_standard_output,
    help="Write plan.yaml and checkpoint.yaml here.",
)
@click.option("--pick", "picked", type=click.IntRange(1, 100), default=1, show_default=True, help="Plan to write.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    callback=terminal.no_standard_output,
    help="Draw step time against memory into this SVG file.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there, and plan in spite of errors.")
def command(cluster: str, model: str | None, predicted: str | None, **options: Any) -> int:
    """Search the best way to train a model on a cluster, and write its plan and checkpoint policy.

    Every layout that the framework runs and memory holds is compared by its predicted step time. In plan 1 each
    dimension saves more than predictions miss; the others differ in kind. The band is the one that eight of ten
    published runs kept to. Nothing is written before the search is over. With --predict the exit code is 1 for a
    plan that is predicted not to fit into memory.
    """
    if predicted is not None:
        return _predict(cluster, predicted, model, options)
    if model is None:
        raise click.UsageError("Missing option '--model', or '--predict' for a plan that is given.")
    _search(cluster, model, options)
    return terminal.OK


def _predict(cluster: str, plan: str, model: str | None, options: dict[str, Any]) -> int:
    from trainspec_validate.cli.commands import plan_prediction  # noqa: PLC0415 - `--help` goes without the models

    wished = [name for name in _WISHES if options[name] is not None and name != "number_format"]
    wished += [name for name in _CONSTRAINTS if options[name]]
    refused = [*(["model"] if model else []), *wished, *(name for name in ("output", "plot") if options[name])]
    if refused:
        words = ", ".join("--" + {"num_tokens": "tokens"}.get(name, name.replace("_", "-")) for name in refused)
        raise click.UsageError(f"--predict takes a plan as it is: leave out {words}")
    return plan_prediction.show(cluster, plan, options["style"], force=options["force"])


def _search(cluster: str, model: str, options: dict[str, Any]) -> None:
    from trainspec_validate.cli.commands import files, plan_report  # noqa: PLC0415
    from trainspec_validate.performance.forecast.facts import Unpredictable  # noqa: PLC0415 - `--help` goes without the models
    from trainspec_validate.planner import explain, plan_text, safety  # noqa: PLC0415
    from trainspec_validate.planner.constraints import Constraints  # noqa: PLC0415
    from trainspec_validate.planner.groups import planned  # noqa: PLC0415
    from trainspec_validate.planner.request import Impossible, Wishes  # noqa: PLC0415

    wished = {name: options[name] for name in _WISHES}
    try:
        constraints = Constraints(**{name: options[name] for name in _CONSTRAINTS})
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    wishes = Wishes(reserve_bytes=options["reserve_bytes"], constraints=constraints, **wished)
    _refuse_early(options)
    profile = files.document(cluster, "ClusterProfile", allow_errors=options["force"])
    trained, adapters = _model(model, force=options["force"])
    bar = terminal.Bar(wanted=True, doing="comparing")
    try:
        found = planned(profile, trained, wishes, adapters, max(options["top"], options["picked"]), bar)  # type: ignore[arg-type]
    except (Impossible, Unpredictable) as error:
        raise Failure(f"{cluster}: {error}") from error
    finally:
        bar.close()
    asked, ranking = found.request, found.ranking
    if not ranking.plans:
        raise Failure(f"{cluster}: {explain.nothing_fits(asked, ranking)}")
    if options["picked"] > len(ranking.plans):
        raise Failure(f"plan {options['picked']} is asked for, there are {len(ranking.plans)}")
    scored = ranking.plans[options["picked"] - 1]
    why = (plan_text.too_long(asked, scored) or safety.nowhere(asked)) if options["output"] else None
    if why:
        raise Failure(why)
    if options["plot"] and scored.untimed:
        raise Failure(f"--plot draws step times, and none is predicted: {scored.untimed}")
    plan_report.show(asked, ranking, options["top"], options["style"], found.groups)
    if options["output"] and not options["force"]:
        _refuse_invalid(asked, ranking, cluster, options)
    _write(asked, ranking, cluster, options)


def _refuse_early(options: dict[str, Any]) -> None:
    """Say before a long search that its result could not be written."""
    from trainspec_validate.cli.commands import files  # noqa: PLC0415
    from trainspec_validate.planner.plan_text import PLAN_FILE, POLICY_FILE  # noqa: PLC0415

    output, plot = options["output"], options["plot"]
    targets = [Path(output) / name for name in (PLAN_FILE, POLICY_FILE)] if output else []
    if plot and Path(plot) in targets:
        raise click.UsageError(f"--plot would replace {plot}")
    files.refuse_present([*targets, *([Path(plot)] if plot else [])], force=options["force"])


def _refuse_invalid(asked: Any, ranking: Any, cluster: str, options: dict[str, Any]) -> None:
    """Write no document that the validator would refuse."""
    from trainspec_validate.cli.commands import files  # noqa: PLC0415
    from trainspec_validate.documents.commented import as_text  # noqa: PLC0415
    from trainspec_validate.planner import plan_text  # noqa: PLC0415

    reference = f"{{name: {as_text(asked.cluster.metadata.name)}}}"
    made = plan_text.documents(asked, ranking, ranking.plans[options["picked"] - 1], reference)
    errors = files.errors_of(made, cluster)
    if errors:
        raise Failure("nothing is written, for it would have errors; --force writes it:", *errors)


def _write(asked: Any, ranking: Any, cluster: str, options: dict[str, Any]) -> None:
    from trainspec_validate.cli.commands import files  # noqa: PLC0415
    from trainspec_validate.planner import plan_text, tradeoff  # noqa: PLC0415

    texts: dict[Path, str] = {}
    chosen = ranking.plans[options["picked"] - 1]
    if options["output"]:
        target = Path(options["output"])
        made = plan_text.documents(asked, ranking, chosen, _reference(asked, cluster, target))
        texts |= {target / name: text for name, text in made.items()}
    if options["plot"]:
        texts[Path(options["plot"])] = tradeoff.drawing(asked, ranking)
    if texts:
        files.write(texts, force=options["force"])
    if options["output"]:
        documents = [path.as_posix() for path in texts if path.suffix == ".yaml"]
        if chosen.untimed:
            terminal.tell(f"{plan_text.POLICY_FILE}: not written, since its interval follows from the time of a step")
        terminal.tell(f"next: {shlex.join(['trainspec-validate', cluster, *documents])}")


def _reference(asked: Any, cluster: str, target: Path) -> str:
    """By file where both lie in the working tree, which the validator keeps to, else by name."""
    from trainspec_validate.documents.commented import as_text  # noqa: PLC0415

    name = as_text(asked.cluster.metadata.name)
    here = Path.cwd().resolve()
    if not all(path.resolve().is_relative_to(here) for path in (Path(cluster), target)):
        return f"{{name: {name}}}"
    back = Path(os.path.relpath(Path(cluster).resolve(), target.resolve())).as_posix()
    return f"{{file: {as_text(back)}, name: {name}}}"


def _model(word: str, *, force: bool) -> Any:
    from trainspec_validate.cli.commands import files  # noqa: PLC0415
    from trainspec_validate.documents.types import part  # noqa: PLC0415
    from trainspec_validate.documents.types.model import Model  # noqa: PLC0415
    from trainspec_validate.model.catalog import models  # noqa: PLC0415
    from trainspec_validate.planner.request import Impossible, model_of  # noqa: PLC0415

    if Path(word).suffix in {".yaml", ".yml", ".json"}:
        try:
            plan: Any = files.document(word, "TrainingPlan", allow_errors=force, unread={"cluster"})
            return model_of(plan)
        except Impossible as error:
            raise Failure(f"{word}: {error}") from error
    known = pick(word, models(), "model", "`trainspec catalog --models`")
    return part(Model, {"name": known.name, **known.model}), None
