"""The jars of a session, in the versions of the Python packages: an upgrade is one edit in pyproject.toml."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pyspark

from cdc_pipeline.errors import TerminalError

# Dependencies that PySpark ships: excluding them keeps older copies off the class path and saves 70 MB.
_SHIPPED_WITH_SPARK = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jdk8",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.parquet:parquet-column",
    "org.apache.parquet:parquet-hadoop",
    "org.lz4:lz4-java",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
)

_KAFKA_CONNECTORS = {"4.0": "4.0.0", "4.1": "4.1.1"}
"""Supported minor version of Spark → the newest patch of its Kafka connector whose dependencies all resolve from Maven
Central (those of 4.0.1 and 4.0.2 do not, 2026-11). It works with any Spark of the same minor version."""


def spark_home() -> Path:
    """The folder of the Spark that PySpark starts."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def jar_packages() -> tuple[str, ...]:
    """Maven coordinates for `spark.jars.packages` that match the installed pyspark and delta-spark.

    Raises TerminalError if this minor version of Spark is not supported.
    """
    spark_minor = ".".join(version("pyspark").split(".")[:2])
    if spark_minor not in _KAFKA_CONNECTORS:
        supported = " or ".join(_KAFKA_CONNECTORS)
        raise TerminalError(f"pyspark {version('pyspark')} is installed, but {supported} is expected")
    return (
        f"io.delta:delta-spark_{spark_minor}_2.13:{version('delta-spark')}",
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_KAFKA_CONNECTORS[spark_minor]}",
    )


def jar_excludes() -> tuple[str, ...]:
    """Maven coordinates for `spark.jars.excludes`: dependencies that PySpark ships."""
    return _SHIPPED_WITH_SPARK
