"""`SparkLakehouse`: the Spark session of a run as a Dagster resource, on top of dagster-pyspark's.

The settings are typed fields instead of one `spark_config`, because Dagster does not resolve an `EnvVar` inside that.
`session_settings` converts them to Spark's settings. The jars have the versions of the Python packages: an upgrade is one
edit in pyproject.toml.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import dagster as dg
from pydantic import Field, PrivateAttr, field_validator
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_pipeline.errors import SECRET_SETTINGS, TerminalError
from cdc_pipeline.spark.jvm import spark_home
from cdc_pipeline.spark.small_frames import SMALL_QUERY_ROWS
from cdc_pipeline.spark.start import JAVA_VARIABLES, start_session
from cdc_pipeline.spark.stores import LOG_STORE_JAR, S3, S3_EXCLUDES, s3_packages, s3_settings

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

_KAFKA_CONNECTORS = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0"}
"""Supported minor version of Spark → the newest patch of its Kafka connector whose dependencies all resolve from Maven
Central (those of 4.0.1 and 4.0.2 do not, 2026-11). It works with any Spark of the same minor version."""


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


_UTC_OPTION = "-Duser.timezone=UTC"
_COLLECTOR_OPTION = re.compile(r"-XX:[+-]Use\w+GC\b")
_FIRST_COMPILER_ONLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m"
"""By default the first compiler alone gets 48 MB for code. Spark fills them within half a minute, and the JVM goes on
interpreted."""
_LATE_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""Four times the defaults. With them the second compiler takes more CPU in the first ten batches than Spark's tasks."""
_SMALL_QUERY_ROWS = 2_000
"""In a JVM that stays, generated code is compiled once. Interpreted, a row of a batch costs 0.2 ms, generated 0.03."""
_HEAP = re.compile(r"(\d+)(?:([mgt])b?)?")
_CONSUMERS = "spark.kafka.consumer.cache.capacity"
_LOG_CACHE_SIZE = "spark.databricks.delta.delta.log.cacheSize"
# The comments give the reason for each setting.
_FIXED_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # mirrors must not depend on the machine's time zone
    "spark.sql.session.timeZone": "UTC",
    # an overflow is an error, which the expressions of generated and computed columns catch: never a wrong number
    "spark.sql.ansi.enabled": "true",
    # in a JVM with another time zone, Delta recomputes the whole table state to validate each commit
    "spark.driver.defaultJavaOptions": _UTC_OPTION,
    "spark.executor.defaultJavaOptions": _UTC_OPTION,
    # for duplicate keys of a JSON object the last one wins, as in the encoders' parsers; Spark's default is an error
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # column names are matched exactly; MySQL has none that differ only in case
    "spark.sql.caseSensitive": "true",
    # the state of a small table is computed in one task instead of fifty
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "true",
    # Spark builds the text of each plan even if nobody reads it: limit its columns
    "spark.sql.debug.maxToStringFields": "10",
    # many files that are read by name (claims) are listed in a few tasks instead of one per file
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # a batch generates about 300 classes; with Spark's default of 100 each batch would compile all of them again, and run
    # slowly until the JVM has optimized them
    "spark.sql.codegen.cache.maxEntries": "5000",
    # half of the size of raw, and two thirds of that of the change log, for 1 µs of CPU an event
    "spark.sql.parquet.compression.codec": "zstd",
    # the cached changes of a cut are read once or twice: compression costs more than it saves
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # row values seldom repeat: a Parquet dictionary costs time and saves no space
    "spark.hadoop.parquet.enable.dictionary#before.key_value.value": "false",
    "spark.hadoop.parquet.enable.dictionary#after.key_value.value": "false",
    # A following run reads each partition with the consumer of the batch before (_CONSUMERS; an idle one is closed after
    # five minutes). Records that it fetched ahead are dropped: they take memory, and a leader election can rewrite them.
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    "spark.ui.showConsoleProgress": "false",
    # Spark builds this text for each query even without a UI: use the shortest form
    "spark.sql.ui.explainMode": "simple",
    # otherwise each column function makes three py4j calls to record the Python line for errors
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # redacts reader options such as a broker's passwords in plans, logs and event logs
    "spark.redaction.regex": SECRET_SETTINGS,
    "spark.sql.redaction.options.regex": SECRET_SETTINGS,
    # merges of several tables run in parallel and share the cores
    "spark.scheduler.mode": "FAIR",
}

_SETTINGS_OF_VALUES = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.caseSensitive",
)
"""Settings that decide which values are stored: nobody may override them."""


def _sets_collector(settings: Mapping[str, str]) -> bool:
    """Whether the user's options already choose a garbage collector. A JVM with two such options does not start."""
    texts = [settings.get("spark.driver.extraJavaOptions", "")]
    texts += [os.environ.get(name, "") for name in JAVA_VARIABLES]
    folder = os.environ.get("SPARK_CONF_DIR") or f"{spark_home()}/conf"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        texts.append(Path(folder, "spark-defaults.conf").read_text(encoding="utf-8"))
    return any(_COLLECTOR_OPTION.search(text) for text in texts)


def _megabytes(heap: str) -> int:
    """The size of a heap, as `4g` or `512m`; 0 for other forms."""
    size = _HEAP.fullmatch(heap.strip().lower())
    return int(size[1]) * 1024 ** "mgt".index(size[2] or "m") if size else 0


class SparkLakehouse(dg.ConfigurableResource["SparkLakehouse"]):
    """The Spark session and its settings. Runs in local mode by default; a cluster needs other settings only."""

    master: str = Field(default="local[*]", description="Spark master: local[*], spark://host:7077, yarn, k8s://…")
    driver_memory: str = Field(
        default="4g", description="Heap of the driver. In local mode the driver does all the work."
    )
    shuffle_partitions: int = Field(default=0, description="Tasks per shuffle; 0 means the number of cores.")
    stores: list[str] = Field(
        default_factory=list,
        description="Object stores of lakes and sources: `s3` for `s3a://…`. A pipeline adds its own; name them if another "
        "pipeline of the process starts the session.",
    )
    packages: list[str] = Field(
        default_factory=list,
        description="Maven coordinates of further jars, such as a JDBC driver. A pipeline adds its own.",
    )
    settings: dict[str, str] = Field(
        default_factory=dict,
        description="Further Spark settings, which override all others but those that decide which values are stored: time "
        "zone, ANSI mode, case of column names, duplicate keys in JSON.",
    )

    _session: SparkSession | None = PrivateAttr(default=None)

    @field_validator("stores")
    @classmethod
    def _validate_stores(cls, value: list[str]) -> list[str]:
        for name in value:
            if name != S3:
                raise ValueError(f"{name!r} is not a store with jars of its own: {S3} is expected")
        return value

    @field_validator("settings")
    @classmethod
    def _validate_settings(cls, value: dict[str, str]) -> dict[str, str]:
        for name in _SETTINGS_OF_VALUES:
            if str(value.get(name, _FIXED_SETTINGS[name])).lower() != _FIXED_SETTINGS[name].lower():
                raise ValueError(
                    f"{name}: {value[name]!r} would change the values in mirrors; {_FIXED_SETTINGS[name]!r} is expected"
                )
        return value

    def session_settings(self, *, short_lived: bool = False) -> dict[str, str]:
        """All Spark settings with which the session starts. `short_lived`: see `start`."""
        has_s3 = S3 in self.stores
        settings = {
            **_FIXED_SETTINGS,
            **(s3_settings() if has_s3 else {}),
            "spark.app.name": "cdc_pipeline",
            "spark.master": self.master,
            "spark.driver.memory": self.driver_memory,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions or os.cpu_count() or 2),
            "spark.jars.packages": ",".join((*jar_packages(), *(s3_packages() if has_s3 else ()), *self.packages)),
            "spark.jars.excludes": ",".join((*_SHIPPED_WITH_SPARK, *(S3_EXCLUDES if has_s3 else ()))),
            **self.settings,
        }
        if has_s3:
            settings["spark.jars"] = ",".join(filter(None, (LOG_STORE_JAR, settings.get("spark.jars"))))
        if not _sets_collector(settings):
            # batches need throughput, not short pauses: G1 takes a fifth more CPU
            settings["spark.driver.defaultJavaOptions"] += " -XX:+UseParallelGC"
        if not short_lived:
            settings.setdefault(SMALL_QUERY_ROWS, str(_SMALL_QUERY_ROWS))
        compilers = _FIRST_COMPILER_ONLY if short_lived else _LATE_SECOND_COMPILER
        settings["spark.driver.defaultJavaOptions"] += f" {compilers}"
        heap = _megabytes(settings["spark.driver.memory"])
        # the logs of as many tables as fill a quarter of the heap, 2 MB each: Delta's default of 10,000 can fill all of it
        settings.setdefault(_LOG_CACHE_SIZE, str(max(heap // 8, 100)))
        # a consumer may hold a fetch of 1 MB
        settings.setdefault(_CONSUMERS, str(max(heap // 3, 64)))
        return settings

    @property
    def has_started(self) -> bool:
        """Whether the process has a session."""
        return SparkContext._active_spark_context is not None

    @property
    def session(self) -> SparkSession:
        """The process's session, started on first use. Raises JavaError or TransientError if Spark cannot start."""
        return self.start()

    def start(self, *, short_lived: bool = False) -> SparkSession:
        """The process's session, as `session`.

        `short_lived`: a new JVM uses the first of its two compilers only. It then starts faster, and has spent less CPU
        until about its fifth batch.
        """
        if self._session is None:
            self._session = start_session(self.session_settings(short_lived=short_lived))
        return self._session


@functools.lru_cache
def own_spark(stores: tuple[str, ...] = (), packages: tuple[str, ...] = ()) -> SparkLakehouse:
    """The resource of pipelines that name none of their project: one object, which several pipelines can share."""
    return SparkLakehouse(
        stores=list(stores),
        packages=list(packages),
        master=os.environ.get("CDC_SPARK_MASTER", "local[*]"),
        driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "4g"),
    )
