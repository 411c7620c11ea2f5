"""The only place that answers `python -m trainspec_validate`, which is `trainspec-validate`."""

from trainspec_validate.cli import main

main()
