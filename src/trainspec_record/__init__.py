"""The only place that a training script imports to write a metric stream."""
