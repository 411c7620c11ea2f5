"""Serves the latest values of a run to Prometheus."""
