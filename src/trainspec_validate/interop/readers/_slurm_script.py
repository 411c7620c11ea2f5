"""Reads a shell script in which the variables of Slurm have the sizes that its lines ask for."""

from __future__ import annotations

from trainspec_validate.interop.readers._shell_commands import read_script
from trainspec_validate.interop.readers._shell_documents import with_read_documents
from trainspec_validate.interop.readers._shell_run_documents import with_run_documents
from trainspec_validate.interop.readers._shell_variables import Script
from trainspec_validate.interop.readers._slurm_sizes import OPEN, slurm_sizes

_SLURM_NAMES = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE",),
}
"""Variables in which Slurm hands over what its lines ask for."""


def script_of(text: str) -> Script:
    """A script in which Slurm's variables have the sizes that its lines ask for.

    Raises:
        ForeignFormatError: the script is cut off in a quote, or grows beyond bounds.
    """
    sizes = slurm_sizes(text)
    known = {key: size for key, size in sizes.items() if size != OPEN}
    named = {name: known[key] for key, names in _SLURM_NAMES.items() if key in known for name in names}
    whole, unread = with_run_documents(with_read_documents(text))
    script = read_script(whole, named)
    script.unread.extend(unread)
    return script
