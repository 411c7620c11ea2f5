"""Holds the terms of checks: findings, requirements, the catalogs of hardware and metrics, units and quantities."""
