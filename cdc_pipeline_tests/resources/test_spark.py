"""What the session's JVM has, whatever the machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.resources.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_jvm_is_in_utc_by_name(spark: SparkSession) -> None:
    """Delta looks at the name: for any other it computes a table's whole state at each commit."""
    assert jvm(spark).java.util.TimeZone.getDefault().getID() == "UTC"
