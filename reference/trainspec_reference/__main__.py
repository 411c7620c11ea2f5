"""Defines the command line of the reference trainers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from trainspec_reference.common.backend import BACKENDS
from trainspec_reference.common.controller import hosts, launch
from trainspec_reference.common.offers import refuse, refuse_shared_devices
from trainspec_reference.common.reading import Changes, NotTrainableError, read_job, write_documents
from trainspec_reference.common.run_settings import IN_USE, Assignment, Settings
from trainspec_validate import InputError, Severity, validate
from trainspec_validate.documents.load import LoadError
from trainspec_validate.report.concise import render
from trainspec_validate.report.options import Options

WAYS = ("restart", "replace", "shrink")
"""Reactions to a lost worker; `shrink` needs elastic degrees in the plan."""


def main(arguments: Sequence[str]) -> int:
    """Train; gives the exit status: 0 completed, 2 wrong use, and those of `run_settings`."""
    options = _parser().parse_args(arguments)
    try:
        return _train(options)
    except (NotTrainableError, InputError, LoadError, OSError) as error:
        print(f"trainspec_reference: {error}", file=sys.stderr)  # noqa: T201 - the answer to wrong use
        return IN_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m trainspec_reference", description=__doc__)
    parser.add_argument("backend", type=_backend, help=f"{', '.join(BACKENDS)}, or a package with a backend")
    parser.add_argument("--plan", type=Path, required=True, help="training plan")
    parser.add_argument("--cluster", type=Path, help="cluster profile, to validate the plan with")
    parser.add_argument("--checkpoint", type=Path, help="checkpoint policy; without it nothing is saved")
    parser.add_argument("--out", type=Path, required=True, help="directory of the run; one that exists is resumed")
    parser.add_argument("--steps", type=_positive, help="optimizer steps, in place of the plan's")
    parser.add_argument("--ranks", type=_positive, help="workers, in place of the plan's")
    parser.add_argument("--hosts", type=_positive, default=1, help="nodes over which the workers are spread evenly")
    parser.add_argument("--seed", type=int, help="seed, in place of the plan's")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="device, in place of the plan's")
    parser.add_argument("--standby", type=int, default=0, help="standby workers, which replace lost ones")
    parser.add_argument("--on-loss", choices=WAYS, help="reaction to a lost worker, in place of the policy's")
    return parser


def _backend(text: str) -> str:
    if text not in BACKENDS and "." not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is neither one of {', '.join(BACKENDS)} nor the name of a package")
    return text


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
    changes = Changes(options.steps, options.ranks, options.seed, options.device)
    job = read_job(options.plan, options.checkpoint, changes)
    refuse(options.backend, job)
    refuse_shared_devices(options.backend, job)
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
    assignment = Assignment(options.backend, job, settings.checkpoint_directory, settings.trace_directory, documents)
    return launch(assignment, settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
