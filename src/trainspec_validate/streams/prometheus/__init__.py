"""The only place that reads and writes expositions of Prometheus and OpenMetrics."""
