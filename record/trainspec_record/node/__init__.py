"""Reads the hardware of a node."""
