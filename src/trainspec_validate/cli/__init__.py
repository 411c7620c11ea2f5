"""Command lines of the validator: `trainspec-validate`, and the commands of `trainspec`."""
