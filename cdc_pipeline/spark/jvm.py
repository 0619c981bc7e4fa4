"""Access to a session's JVM through py4j, for functions that PySpark does not expose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    """py4j's view of the JVM, untyped: PySpark declares it optional because a stopped session has none."""
    return spark._jvm


def jvm_session(spark: SparkSession) -> Any:
    return spark._jsparkSession
