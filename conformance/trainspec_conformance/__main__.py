"""Runs the suite as `python -m trainspec_conformance`."""

from trainspec_conformance.cli import main

main()
