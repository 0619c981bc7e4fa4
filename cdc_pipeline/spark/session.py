"""The Spark session of a run, as a Dagster resource on top of dagster-pyspark's.

Dagster reads none of this module's settings from `spark_config` by itself (`EnvVar` inside it is not resolved), so the
fields here are typed, and `session_settings` is the one function that turns them into Spark's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pyspark
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.jars import jar_excludes, jar_packages
from cdc_pipeline.spark.java import require_java
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline.spark.process_lock import told, turn
from cdc_pipeline.spark.submit_settings import settings_options
from cdc_pipeline.spark.warm_jvm import WarmJvm, warm_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_SECRET_OPTIONS = r"(?i)secret|password|token|access[.]?key|url|sasl[.]jaas|ssl[.]keystore[.]key"
_IN_UTC = "-Duser.timezone=UTC"
_COLLECTORS = re.compile(r"-XX:[+-]Use\w+GC\b")
_HEAP = re.compile(r"(\d+)(?:([mgt])b?)?")
_TABLES_IN_MEMORY = "spark.databricks.delta.delta.log.cacheSize"
# Each line says what goes wrong without it.
_FIXED_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # timestamps are instants; the machine's zone must not change what a mirror holds
    "spark.sql.session.timeZone": "UTC",
    # nor may it cost: where the JVM's zone is another, Delta checks each commit by computing the table's whole state anew
    "spark.driver.defaultJavaOptions": _IN_UTC,
    "spark.executor.defaultJavaOptions": _IN_UTC,
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
    # values of rows seldom come again: Parquet would look each up in a dictionary until it gives up, for the same size
    "spark.hadoop.parquet.enable.dictionary#before.key_value.value": "false",
    "spark.hadoop.parquet.enable.dictionary#after.key_value.value": "false",
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


def _chooses_collector(settings: Mapping[str, str]) -> bool:
    """Whether the driver is told of a garbage collector elsewhere: a JVM that is told of two does not start."""
    texts = [settings.get("spark.driver.extraJavaOptions", "")]
    texts += [os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")]
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    folder = os.environ.get("SPARK_CONF_DIR") or f"{home}/conf"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        texts.append(Path(folder, "spark-defaults.conf").read_text(encoding="utf-8"))
    return any(_COLLECTORS.search(text) for text in texts)


def _tables_in_memory(heap: str) -> int:
    """Of how many tables Delta keeps in memory what it knows, for an hour: that is up to 2 MB of plans each, and so many of
    them fill a quarter of the heap. Delta alone has 10,000. Of a heap that is told in another way than `4g`: the fewest."""
    told = _HEAP.fullmatch(heap.strip().lower())
    megabytes = int(told[1]) * 1024 ** "mgt".index(told[2] or "m") if told else 0
    return max(int(megabytes) // 8, 100)


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
        """All Spark settings, in force before the session starts."""
        settings = {
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
        if not _chooses_collector(settings):
            # what a batch makes dies with it, and nobody waits for a pause: G1 takes a fifth more CPU for the same
            settings["spark.driver.defaultJavaOptions"] += " -XX:+UseParallelGC"
        settings.setdefault(_TABLES_IN_MEMORY, str(_tables_in_memory(settings["spark.driver.memory"])))
        return settings

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
                _start_jvm(settings)
                session = LazyPySparkResource(spark_config=settings).spark_session
            except Exception as error:
                raise TransientError(f"Spark did not start: {_reason(log)} (whole log: {log})") from error
        # it has noise only; what the JVM goes on writing there takes no place once the JVM ends
        with contextlib.suppress(OSError):
            log.unlink()
    session.sparkContext.setLogLevel("ERROR")
    _remember_classes(session)
    return session


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Starts the JVM, where this process has none, as PySpark does, but for the settings: these may be secrets."""
    from pyspark import SparkContext

    kept = os.environ.get("PYSPARK_SUBMIT_ARGS")
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    with settings_options(settings, Path(tempfile.gettempdir()), kept or "") as options:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(options)} {kept or 'pyspark-shell'}"
        try:
            SparkContext._ensure_initialized()
        finally:
            if kept is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = kept


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
