"""Reads the log of MLPerf."""
