"""Local sessions of Apache Spark, for tests on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def local_session(log_level: str, num_threads: int = 2) -> Iterator[None]:
    """A session whose workers find the modules of the tests through the path of this process; skips without Spark."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("Spark needs Java, and there is none")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = sql.SparkSession.builder.master(f"local[{num_threads}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    made = builder.config("spark.sql.shuffle.partitions", "2").appName("tests").getOrCreate()
    made.sparkContext.setLogLevel(log_level)
    yield
    made.stop()
