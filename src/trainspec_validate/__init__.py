"""TrainSpec: validate cluster profiles, training plans and checkpoint policies."""
