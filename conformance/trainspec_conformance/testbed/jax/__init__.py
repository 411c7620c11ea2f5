"""Answers probes with the code of the JAX trainer."""
