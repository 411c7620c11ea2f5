"""The only place where the recorder meets training frameworks: one module for each, loaded by those who use it."""
