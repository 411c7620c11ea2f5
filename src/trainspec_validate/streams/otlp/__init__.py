"""The only place that reads and writes OTLP/JSON, the format of OpenTelemetry in files."""
