"""The only place that lets `python -m trainspec_conformance` run the suite."""

from trainspec_conformance.cli import main

main()
