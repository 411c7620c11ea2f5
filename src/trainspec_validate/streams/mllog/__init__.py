"""The only place that reads the log of MLPerf."""
