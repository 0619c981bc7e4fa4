"""The Spark session of a run, as a Dagster resource on top of dagster-pyspark's.

Dagster reads none of this module's settings from `spark_config` by itself (`EnvVar` inside it is not resolved), so the
fields here are typed, and `session_settings` is the one function that turns them into Spark's own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from cdc_pipeline.errors import TransientError
from cdc_pipeline.resources.jars import jar_excludes, jar_packages
from cdc_pipeline.resources.java import require_java
from cdc_pipeline.resources.jvm import jvm
from cdc_pipeline.resources.turns import told, turn
from cdc_pipeline.resources.warm_jvm import WarmJvm, warm_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SECRET_OPTIONS = r"(?i)secret|password|token|access[.]?key|url|sasl[.]jaas|ssl[.]keystore[.]key"
# Each line says what goes wrong without it.
_FIXED_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # timestamps are instants; the machine's zone must not change what a mirror holds
    "spark.sql.session.timeZone": "UTC",
    # nor may it cost: where the JVM's zone is another, Delta checks each commit by computing the table's whole state anew
    "spark.driver.defaultJavaOptions": "-Duser.timezone=UTC",
    "spark.executor.defaultJavaOptions": "-Duser.timezone=UTC",
    # a JSON object with the same key twice: the last one wins, as in the encoders' own parsers, instead of an error
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # column names that differ by case only are different columns of Delta's; MySQL has none such, Spark must not guess
    "spark.sql.caseSensitive": "true",
    # Delta's state of a small table is one task, not fifty
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "true",
    # of hundreds of columns the text of a plan names some, which is made for each query, shown or not
    "spark.sql.debug.maxToStringFields": "10",
    # many files that are read by name (claims) are listed in a few tasks, not in one each
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # a batch has some three hundred generated classes; of Spark's hundred none is left when the next batch comes, and code
    # that is compiled anew runs slowly until the JVM has optimised it anew
    "spark.sql.codegen.cache.maxEntries": "5000",
    # what a cut keeps of its changes is read once or twice: compressing it costs more than reading more
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.ui.showConsoleProgress": "false",
    # the text of each query's plan is made even where no UI shows it: the shortest there is
    "spark.sql.ui.explainMode": "simple",
    # otherwise each call of a column function asks the JVM three times, to name our own line in an error
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # a broker's passwords are options of a read: plans, logs and event logs show stars for them
    "spark.redaction.regex": _SECRET_OPTIONS,
    "spark.sql.redaction.options.regex": _SECRET_OPTIONS,
    # merges of several tables run side by side and share the cores
    "spark.scheduler.mode": "FAIR",
}


_STARTING = "starting Spark, fetching its jars if they are not cached yet"


class SparkLakehouse(dg.ConfigurableResource["SparkLakehouse"]):
    """Where Spark runs and with what. `local[*]` in one process by default; a cluster by changing settings only."""

    master: str = Field(default="local[*]", description="Spark master: local[*], spark://host:7077, yarn, k8s://…")
    driver_memory: str = Field(default="4g", description="Heap of the driver, which in local mode does all the work.")
    shuffle_partitions: int = Field(default=0, description="Tasks of a shuffle; 0 means as many as there are cores.")
    settings: dict[str, str] = Field(default_factory=dict, description="Any further Spark settings; they win.")
    warm_seconds: int = Field(
        default=0,
        description="How long the JVM of a run is kept for the next one; 0: each run has its own. For a local master only.",
    )

    _session: SparkSession | None = PrivateAttr(default=None)

    def session_settings(self) -> dict[str, str]:
        """All Spark settings, in force before the session starts. Pure."""
        return {
            **_FIXED_SETTINGS,
            "spark.app.name": "cdc_pipeline",
            "spark.master": self.master,
            "spark.driver.memory": self.driver_memory,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(self.shuffle_partitions or os.cpu_count() or 2),
            "spark.jars.packages": ",".join(jar_packages()),
            "spark.jars.excludes": ",".join(jar_excludes()),
            **self.settings,
        }

    @property
    def session(self) -> SparkSession:
        """The process's one session, started on first use. Raises JavaError or TransientError in one clear line."""
        if self._session is None:
            self._session = _started_session(self.session_settings(), self.warm_seconds)
        return self._session


def _started_session(settings: dict[str, str], warm_seconds: int = 0) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    require_java()
    # Workers otherwise take whatever python3 is first on PATH, which is not this environment's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session: SparkSession | None = None
    if Session.getActiveSession() is not None:
        session = LazyPySparkResource(spark_config=settings).spark_session
    # a cluster's executors outlive no driver; and this process has its JVM for good
    elif warm_seconds > 0 and settings["spark.master"].startswith("local") and SparkContext._gateway is None:
        with told(_STARTING):
            if (warm := warm_jvm(settings, warm_seconds, _say)) is not None:
                session = _session_in(warm, settings)
    if session is None:
        # two that fetch jars into one empty cache at the same time break each other's files
        with _quiet_jvm() as log, told(_STARTING), turn("jars"):
            try:
                session = LazyPySparkResource(spark_config=settings).spark_session
            except Exception as error:
                raise TransientError(f"Spark did not start: {_reason(log)} (whole log: {log})") from error
    session.sparkContext.setLogLevel("ERROR")
    _remember_classes(session)
    return session


def _session_in(warm: WarmJvm, settings: dict[str, str]) -> SparkSession | None:
    """A session in the warm JVM; None where that does not come about, for whatever reason: one that starts anew says it."""
    from pyspark import SparkContext

    try:
        warm.join()
        session: SparkSession = LazyPySparkResource(spark_config=settings).spark_session
    except Exception as error:
        _say(f"the warm JVM did not start a session ({error}): this process starts its own")
        warm.abandon()
        SparkContext._gateway = SparkContext._jvm = None
        return None
    return session


def _say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def _remember_classes(session: SparkSession) -> None:
    """PySpark asks the JVM for these classes anew each time that a column is made of a function, and py4j then looks for
    them in every jar under a dozen packages: thousands of times in a run, at most of a millisecond each."""
    view = jvm(session)
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils"):
        setattr(view, name, getattr(view, name))


@contextlib.contextmanager
def _quiet_jvm() -> Iterator[Path]:
    """The JVM's standard error, which Ivy and Spark fill with noise, goes to a file: the JVM inherits our descriptor."""
    descriptor, name = tempfile.mkstemp(prefix="cdc_pipeline-spark-", suffix=".log")
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield Path(name)
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(descriptor)


def _reason(log: Path) -> str:
    """The line of the JVM's output that says most."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "not found" in line or "Exception" in line or "Error" in line]
    return (telling or lines or ["it wrote nothing"])[0]
