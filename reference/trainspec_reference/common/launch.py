"""Starts a run: it writes what each worker is given to do, and runs the controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from trainspec_reference.common.assignment import Assignment
from trainspec_reference.common.backend import PROGRAMS_DIRECTORY, rendezvous_command
from trainspec_reference.common.controller import Controller
from trainspec_reference.common.job import Job
from trainspec_reference.common.run_settings import Settings

WORKER = (sys.executable, "-m", "trainspec_reference.common.worker")
"""Command of a worker; the file of its assignment follows."""
ASSIGNMENT = ".assignment.json"


def launch(
    assignment: Assignment,
    settings: Settings,
    command: Sequence[str] = WORKER,
    controller: Callable[[Job, Settings, Sequence[str]], Controller] = Controller,
) -> int:
    """Run a job to its end; gives the exit status.

    Raises:
        OSError: the directory of the run cannot be written.
    """
    settings.directory.mkdir(parents=True, exist_ok=True)
    path = settings.directory / ASSIGNMENT
    assignment.write(path)
    told = {PROGRAMS_DIRECTORY: str(settings.programs_directory.resolve()), **settings.environment}
    rendezvous = rendezvous_command(assignment.backend, assignment.job.device)
    if rendezvous:
        rendezvous = (*rendezvous, str(settings.directory))  # which tells whose it is where processes are listed
    settings = replace(settings, environment=told, rendezvous=rendezvous)
    return controller(assignment.job, settings, (*command, str(path))).run()


def hosts(num_ranks: int, num_hosts: int) -> tuple[str, ...]:
    """Names of the nodes that ranks stand for, in equal parts; ranks of one node stand together."""
    return tuple(f"node-{rank * num_hosts // num_ranks}" for rank in range(num_ranks))
