"""What a check is about: findings, requirements, the catalogs of hardware and metrics, units and quantities."""
