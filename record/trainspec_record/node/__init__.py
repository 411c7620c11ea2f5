"""The only place that reads the hardware of a node."""
