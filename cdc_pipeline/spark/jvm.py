"""The one door to the JVM behind a session, for what PySpark has no call for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    """py4j's view of the JVM. PySpark types it as optional, because a stopped session has none."""
    return spark._jvm


def jvm_session(spark: SparkSession) -> Any:
    return spark._jsparkSession
