"""Runs `trainspec-validate` as `python -m trainspec_validate`."""

from trainspec_validate.cli.entry import validate

validate()
