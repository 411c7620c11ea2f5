"""Documents: their types, schemas, loading, and the messages about their form."""
