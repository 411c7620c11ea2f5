"""Reads and writes expositions of Prometheus and OpenMetrics."""
