"""Runs a training stack, damages it, and judges what it does by what it writes."""
