"""Adapters of the recorder to training frameworks: one module for each, loaded on demand."""
