"""Defines the command line of the reference trainers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from trainspec_reference.common.alone import train_alone
from trainspec_reference.common.assignment import Assignment
from trainspec_reference.common.launch import hosts, launch
from trainspec_reference.common.offers import refuse, refuse_shared_devices
from trainspec_reference.common.probe import answer
from trainspec_reference.common.probe_arrays import ProbeInputError
from trainspec_reference.common.reading import Changes, NotTrainableError, read_job, write_documents
from trainspec_reference.common.run_settings import IN_USE, Settings
from trainspec_validate import InputError, Severity, validate
from trainspec_validate.documents.load import LoadError
from trainspec_validate.report.concise import render
from trainspec_validate.report.options import Options

BACKENDS = ("torch", "jax", "plain")
WAYS = ("restart", "replace", "shrink")
"""What can be asked for when a worker is lost; `shrink` needs elastic degrees in the plan."""


def main(arguments: Sequence[str]) -> int:
    """Train, or answer a probe; gives the exit status: 0 completed, 2 wrong use, and those of `run_settings`."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "probe":
            answer(options.backend, options.input, options.output)
            return 0
        return _train(options)
    except (ProbeInputError, NotTrainableError, InputError, LoadError, OSError) as error:
        print(f"trainspec_reference: {error}", file=sys.stderr)  # noqa: T201 - the answer to wrong use
        return IN_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m trainspec_reference", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in BACKENDS:
        _add_training(commands.add_parser(name, help=f"train with the {name} backend"))
    probe = commands.add_parser("probe", help="compute numbers for a conformance test")
    probe.add_argument("backend", choices=BACKENDS)
    probe.add_argument("input", type=Path, help="request, as JSON")
    probe.add_argument("output", type=Path, help="file for the answer")
    return parser


def _add_training(command: argparse.ArgumentParser) -> None:
    command.add_argument("--plan", type=Path, required=True, help="training plan")
    command.add_argument("--cluster", type=Path, help="cluster profile, to validate the plan with")
    command.add_argument("--checkpoint", type=Path, help="checkpoint policy; without it nothing is saved")
    command.add_argument("--out", type=Path, required=True, help="directory of the run; one that exists is resumed")
    command.add_argument("--steps", type=_positive, help="optimizer steps, in place of the plan's")
    command.add_argument("--ranks", type=_positive, help="workers, in place of the plan's")
    command.add_argument("--hosts", type=_positive, default=1, help="nodes that the workers stand for, in equal parts")
    command.add_argument("--seed", type=int, help="seed, in place of the plan's")
    command.add_argument("--device", choices=("cpu", "cuda"), help="device, in place of the plan's")
    command.add_argument("--standby", type=int, default=0, help="workers that stand by for those that are lost")
    command.add_argument("--on-loss", choices=WAYS, help="what is done about a lost worker, in place of the policy's")
    command.add_argument("--alone", action="store_true", help="one process, without a controller")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _holds(papers: Sequence[Path]) -> bool:
    """Whether documents have no error; their findings are printed where they have."""
    report = validate([str(path) for path in papers])
    if report.at_or_above(Severity.ERROR):
        print(render(report, Options()), file=sys.stderr)  # noqa: T201 - findings are the answer
        return False
    return True


def _train(options: argparse.Namespace) -> int:
    if not _holds([path for path in (options.plan, options.cluster, options.checkpoint) if path is not None]):
        return IN_USE
    changes = Changes(options.steps, 1 if options.alone else options.ranks, options.seed, options.device)
    job = read_job(options.plan, options.checkpoint, changes)
    refuse(options.command, job)
    refuse_shared_devices(options.command, job)
    with TemporaryDirectory() as trial:  # a run leaves nothing behind that never began
        if not _holds(write_documents(job, options.cluster, Path(trial), options.out)):
            return IN_USE
    out = Path(os.path.realpath(options.out))  # whoever names a link as the directory of the run means its target
    out.mkdir(parents=True, exist_ok=True)
    stream = out / "streams" / out.resolve().name
    stream.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        hosts=hosts(job.plan.parallelism.num_accelerators, options.hosts),
        directory=out,
        checkpoint_directory=out / "checkpoints",
        trace_directory=out / "trace",
        run=stream.name,
        environment={"TRAINSPEC_RUN": str(stream), **os.environ},
        way=options.on_loss,
        num_standby=options.standby,
    )
    documents = write_documents(job, options.cluster, out, out)
    assignment = Assignment(options.command, job, settings.checkpoint_directory, settings.trace_directory, documents)
    if options.alone:
        os.environ.update(settings.environment)
        return train_alone(assignment, settings)
    return launch(assignment, settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
