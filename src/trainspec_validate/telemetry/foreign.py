"""The only place that brings streams of other formats and of Parquet into batches."""

from __future__ import annotations
