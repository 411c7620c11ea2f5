"""Judges checkpoints on disk; it reads them as data and runs nothing that they hold."""
