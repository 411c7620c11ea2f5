"""Reads and writes OTLP/JSON, the format of OpenTelemetry in files."""
