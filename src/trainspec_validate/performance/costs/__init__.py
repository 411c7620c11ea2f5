"""Pure arithmetic over plain numbers: models with their sources; nothing of the package is imported here."""
