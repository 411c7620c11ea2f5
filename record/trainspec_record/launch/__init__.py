"""Starts a training program so that it follows its plan and is recorded."""
