"""Starts Spark's JVM, from what earlier starts found out: the jars that Ivy resolved, and an archive of Java's classes.

Without the jars Spark would ask Ivy at each start, copy them, and load them where Java cannot archive them. The archive
(class-data sharing) halves the CPU of a JVM's first minute. The first JVM writes it when it ends; Java checks at each start
that it belongs to the same Java and the same jars, and ignores it otherwise. Both are files of the user's cache folder, and
may be deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dagster_pyspark import LazyPySparkResource
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cdc_pipeline.errors import TransientError
from cdc_pipeline.local_files import write_atomically
from cdc_pipeline.spark.java import JavaHome, require_java
from cdc_pipeline.spark.jvm import jvm, properties_text, spark_home
from cdc_pipeline.spark.process_lock import is_private, process_lock, report_progress
from cdc_pipeline.spark.stores import LOG_STORE_JAR

_PACKAGES, _EXCLUDES, _CLASS_PATH = "spark.jars.packages", "spark.jars.excludes", "spark.driver.extraClassPath"
_JARS = "spark.jars"
_OPTIONS, _MORE_OPTIONS = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
_FOLDERS_IN_CLASS_PATH = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
"""Environment variables by which Spark adds folders to the class path. Java does not archive classes then."""
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_ARCHIVE_OPTIONS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
_NO_ARGUMENTS = "pyspark-shell"
"""`PYSPARK_SUBMIT_ARGS` without options, which outrank settings and may name jars."""
_NOT_IN_OPTIONS = re.compile(rf"[\s'\"\\{os.pathsep}]")
"""Characters that Spark's launcher or Java would take for the end of the path."""
_ARCHIVE_MAGIC = b"\xa8\xab\x0b\xf0"
"""First bytes of a complete archive; Java writes them last."""


@dataclass(frozen=True)
class StartCache:
    """The cache for a session with these settings."""

    settings: Mapping[str, str]
    java: JavaHome
    folder: Path

    @classmethod
    def find(cls, settings: Mapping[str, str], java: JavaHome) -> StartCache | None:
        """None on a cluster, whose executors need the jars from Spark, with jars of the user, or without a cache folder."""
        has_own_jars = any(name in settings for name in ("spark.jars.ivy", "spark.jars.ivySettings", _CLASS_PATH))
        has_own_jars |= settings.get(_JARS, LOG_STORE_JAR) != LOG_STORE_JAR
        has_own_jars |= os.environ.get("PYSPARK_SUBMIT_ARGS", _NO_ARGUMENTS) != _NO_ARGUMENTS
        has_own_jars |= (spark_home() / "conf").exists() or any(map(os.environ.get, _FOLDERS_IN_CLASS_PATH))
        if has_own_jars or _PACKAGES not in settings or not settings["spark.master"].startswith("local"):
            return None
        try:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser(), "cdc_pipeline")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
        except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
            return None
        return cls(settings, java, folder) if is_private(status) else None

    def to_settings(self) -> dict[str, str]:
        """The settings with which the session starts from the cache; unchanged if the jars are not known yet."""
        jars = self._jars
        if not jars:
            return dict(self.settings)
        found = {name: value for name, value in self.settings.items() if name not in (_PACKAGES, _EXCLUDES, _JARS)}
        found[_CLASS_PATH] = os.pathsep.join(map(str, jars))
        if any(name in text for name in _ARCHIVE_OPTIONS for text in self._java_options):
            return found  # the user decides
        archive = self._archive(jars)
        if _NOT_IN_OPTIONS.search(str(archive)):
            return found
        use = f"-XX:SharedArchiveFile={archive}" if _is_complete(archive) else f"-XX:ArchiveClassesAtExit={archive}"
        # Java's messages about archives, in which it names each class that it leaves out
        found[_OPTIONS] += f" {use} -Xlog:cds*=off"
        return found

    def store_jars(self, session: SparkSession) -> None:
        """Stores the jars of a session that was started without the cache."""
        urls = (session.sparkContext.getConf().get(_JARS) or "").split(",")
        jars = [Path(url.removeprefix("file://")) for url in urls if url.startswith("file:///")]
        if jars and all(jar.is_file() for jar in jars):
            with contextlib.suppress(OSError):  # a full disk
                write_atomically(self._record, json.dumps([[str(jar), jar.stat().st_size] for jar in jars]))

    @property
    def _record(self) -> Path:
        names = (_PACKAGES, _EXCLUDES, _JARS, "spark.jars.repositories")
        return self.folder / f"jars-{_digest(*(self.settings.get(name, '') for name in names))}.json"

    @cached_property
    def _jars(self) -> tuple[Path, ...]:
        """The jars that Spark does not ship; empty if they are not known or one is missing."""
        try:
            stored = [(Path(name), size) for name, size in json.loads(self._record.read_text(encoding="utf-8"))]
            if any(jar.stat().st_size != size or os.pathsep in str(jar) for jar, size in stored):
                return ()
        except (OSError, ValueError, TypeError):
            return ()
        shipped = {_artifact(jar.name) for jar in _shipped_jars()}
        return tuple(jar for jar, _ in stored if _artifact(jar.name.split("_", 1)[-1]) not in shipped)

    def _archive(self, jars: tuple[Path, ...]) -> Path:
        # what Java compares, too: it would ignore the archive at each start
        files = [f"{jar} {(state := jar.stat()).st_size} {state.st_mtime_ns}" for jar in (*jars, *_shipped_jars())]
        memory = self.settings.get("spark.driver.memory", "")
        java = (str(self.java.path), self.java.version, memory, *self._java_options)
        return self.folder / f"classes-{_digest(*java, *files)}.jsa"

    @property
    def _java_options(self) -> list[str]:
        options = [self.settings.get(name, "") for name in (_OPTIONS, _MORE_OPTIONS)]
        return options + [os.environ.get(name, "") for name in JAVA_VARIABLES]


def _shipped_jars() -> list[Path]:
    return sorted((spark_home() / "jars").glob("*.jar"))


def _artifact(file: str) -> str:
    """`kafka-clients` of `kafka-clients-3.9.0.jar`."""
    return re.split(r"-(?=\d)", file, maxsplit=1)[0]


def _is_complete(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return file.read(len(_ARCHIVE_MAGIC)) == _ARCHIVE_MAGIC
    except OSError:
        return False


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


_FILE = "--properties-file"


@contextlib.contextmanager
def settings_options(settings: Mapping[str, str], folder: Path, others: str = "") -> Iterator[list[str]]:
    """The spark-submit options that load the settings from a file in `folder`, which exists within the context only.

    Any user of the machine can read a command line.
    `others`: the user's own spark-submit options. If these have a `--properties-file`, the settings become `--conf` options,
    visible in the command line, because spark-submit reads only the last such file.
    """
    if _FILE in others:
        yield [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        return
    descriptor, name = tempfile.mkstemp(dir=folder, prefix="settings-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(properties_text(settings))
        yield [_FILE, name, "--load-spark-defaults"]
    finally:
        Path(name).unlink(missing_ok=True)


def start_session(settings: dict[str, str]) -> SparkSession:
    java = require_java()
    # without it, workers use the first python3 on PATH instead of this environment's
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkSession.getActiveSession() is not None:
        session: SparkSession = LazyPySparkResource(spark_config=settings).spark_session
    else:
        cache = StartCache.find(settings, java)
        used = settings if cache is None else cache.to_settings()
        # two processes that fill an empty Ivy cache at the same time corrupt each other's files
        lock = process_lock("jars") if "spark.jars.packages" in used else contextlib.nullcontext()
        with (
            _stderr_in_file() as log,
            report_progress("starting Spark, fetching its jars if they are not cached yet"),
            lock,
        ):
            try:
                _start_jvm(used)
                # the JVM has added the jars of the packages to it
                config = {name: value for name, value in used.items() if name != _JARS}
                session = LazyPySparkResource(spark_config=config).spark_session
            except Exception as error:
                raise TransientError(f"Spark did not start: {_error_line(log)} (whole log: {log})") from error
        # the log has no errors; the space of the open file is freed when the JVM ends
        with contextlib.suppress(OSError):
            log.unlink()
        if cache is not None:
            cache.store_jars(session)
    session.sparkContext.setLogLevel("ERROR")
    _cache_java_classes(session)
    return session


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Starts the process's JVM, if it has none, as PySpark does, but passes the settings in a file: they may be secrets."""
    previous = os.environ.get("PYSPARK_SUBMIT_ARGS")
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    with settings_options(settings, Path(tempfile.gettempdir()), previous or "") as options:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(options)} {previous or 'pyspark-shell'}"
        try:
            SparkContext._ensure_initialized()
        finally:
            if previous is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = previous


def _cache_java_classes(session: SparkSession) -> None:
    """Caches the Java classes that PySpark resolves for each column function.

    Without it py4j searches a dozen packages each time, for up to a millisecond, thousands of times in a run.
    """
    view = jvm(session)
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils"):
        setattr(view, name, getattr(view, name))


@contextlib.contextmanager
def _stderr_in_file() -> Iterator[Path]:
    """Redirects stderr, which a JVM started within the context inherits, to a file: Ivy and Spark fill it with noise."""
    descriptor, name = tempfile.mkstemp(prefix="cdc_pipeline-spark-", suffix=".log")
    sys.stderr.flush()
    original = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield Path(name)
    finally:
        sys.stderr.flush()
        os.dup2(original, 2)
        os.close(original)
        os.close(descriptor)


def _error_line(log: Path) -> str:
    """The first line of the JVM's output that reports an error, else its first line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "not found" in line or "Exception" in line or "Error" in line]
    return (errors or lines or ["it wrote nothing"])[0]
