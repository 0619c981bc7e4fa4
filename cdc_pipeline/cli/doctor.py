"""`cdc-pipeline doctor`: checks what a pipeline needs, each with a remedy."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import starmap

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from cdc_pipeline.cli.declared import DeclaredPipeline
from cdc_pipeline.dialects.contents import with_decompressed
from cdc_pipeline.dialects.decode import decode
from cdc_pipeline.dialects.senders import topics_of_canal, with_senders
from cdc_pipeline.dialects.ticdc import TICDC
from cdc_pipeline.dialects.topic_tables import with_tables
from cdc_pipeline.dialects.unified import DEAD
from cdc_pipeline.errors import CdcError, SourceError, redact
from cdc_pipeline.lake.format import require_known_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.kafka.source import KafkaTopics
from cdc_pipeline.sources.raw_batches import newest_batch, newest_note, notes_newest_first
from cdc_pipeline.sources.source import NewRecords, RunContext
from cdc_pipeline.spark.java import JavaError, require_java
from cdc_pipeline.spark.session import SparkLakehouse, jar_packages, own_spark

PACKAGES = ("cdc_pipeline", "dagster", "pyspark", "delta-spark", "deltalake", "pandera", "confluent-kafka")
_MOST_TOPICS = 50
_EXTENSION = "enable-tidb-extension=true in the sink URI of the changefeed adds them"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    text: str
    """What was found, or what is wrong."""
    remedy: str = ""
    """What to do; empty if the check passed."""

    @property
    def passed(self) -> bool:
        return not self.remedy


def installed_versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def examine(declared: DeclaredPipeline | None, *, with_spark: bool = True) -> Iterator[Finding]:
    """The findings, one by one, because some take seconds. Without a pipeline only what every pipeline needs.

    A check that needs a failed one is left out.
    """
    yield Finding("versions", ", ".join(f"{name} {found}" for name, found in installed_versions().items()))
    java = _attempt("Java", _java, "Install OpenJDK 17 or 21 and set JAVA_HOME to it")
    yield java
    pipeline = None if declared is None else declared.pipeline
    source = None
    if pipeline is not None and pipeline.paths.has_files:
        source = _source(pipeline)
        yield source
        yield _attempt("lake", lambda: _folder(pipeline), _LAKE_REMEDY)
    if not with_spark or not java.passed:
        return
    spark = own_spark() if declared is None else declared.spark
    started = _attempt("Spark and jars", lambda: _spark(spark), _JARS_REMEDY)
    yield started
    if pipeline is None or not started.passed:
        return
    lake = Lake(spark.session, pipeline.paths)
    yield _attempt("lake format", lambda: _format(lake), _LAKE_REMEDY)
    if source is None:
        source = _source(pipeline, lake)
        yield source
    if isinstance(pipeline.source, KafkaTopics) and source.passed:
        yield _attempt("dialects", lambda: _dialects(pipeline, lake), _DIALECT_REMEDY, pipeline.source.secrets)


_SOURCE_REMEDY = "Correct the fields of `source` (`cdc-pipeline docs kafka` or `storage`), or ask who runs the broker"
_LAKE_REMEDY = "Choose another `lake`, or give this user the right to write there"
_JARS_REMEDY = (
    "The first start downloads jars from Maven Central: allow it, or set spark.jars.ivySettings to a mirror "
    "(`cdc-pipeline docs performance scale out`)"
)
_DIALECT_REMEDY = (
    "Only Canal-JSON of TiCDC, Canal and DataWorks is supported: read `cdc-pipeline docs dialects`, and check `topics`"
)


def _attempt(name: str, check: Callable[[], str], remedy: str, secrets: tuple[str, ...] = ()) -> Finding:
    try:
        return Finding(name, check())
    except (CdcError, JavaError, OSError, PySparkException, Py4JJavaError) as error:
        return Finding(name, redact(first_line(error), secrets), remedy)


def _java() -> str:
    java = require_java()
    return f"{java.version} at {java.path}"


def _source(pipeline: Pipeline, lake: Lake | None = None) -> Finding:
    def find() -> str:
        note = newest_note(pipeline.paths) if lake is None else next(notes_newest_first(lake), None)
        found = pipeline.source.find_new_records(note)
        return f"{pipeline.source.location}: {found.summary if isinstance(found, NewRecords) else found.reason}"

    return _attempt("source", find, _SOURCE_REMEDY, pipeline.source.secrets)


def _folder(pipeline: Pipeline) -> str:
    paths = pipeline.paths
    if paths.is_s3:
        S3Folder(paths.home).now()
    else:
        paths.require_writable_folder()
    return f"{paths.home} can be written"


def _spark(spark: SparkLakehouse) -> str:
    return f"Spark {spark.session.version} with {', '.join(jar_packages())}"


def _format(lake: Lake) -> str:
    require_known_format(lake)
    return f"{lake.paths.home} {'is readable' if lake.exists('raw_topic_snapshot') else 'is empty'}"


def _dialects(pipeline: Pipeline, lake: Lake) -> str:
    """The dialects of the newest records by topic. Raises SourceError if all of a topic are dead letters."""
    assert isinstance(pipeline.source, KafkaTopics)
    records = pipeline.source.newest_records(lake, RunContext("doctor", lambda _: None))
    if records is None:
        return "the topics have no records yet"
    records = records.selectExpr("0L AS batch_id", "*")
    if pipeline.decoding.dialect == "auto":
        records = with_senders(records, topics_of_canal(lake, records, newest_batch(lake) + 1, ()))
    decoded = decode(with_decompressed(with_tables(records, pipeline.decoding.tables)), pipeline.decoding.dialect)
    has_tsos = F.bool_or(F.coalesce("exact_ts", F.lit(False)) | F.col("watermark_ts").isNotNull()).alias("has_tsos")
    rows = (
        decoded.groupBy("topic", "dialect", "kind", "rule").agg(has_tsos).orderBy("topic", "dialect", "rule").collect()
    )
    accepted: dict[str, dict[str, bool]] = {}
    broken: dict[str, str] = {}
    for row in rows:
        if row["kind"] == DEAD:
            broken[row["topic"]] = row["rule"]
        elif row["dialect"] is not None:
            dialects = accepted.setdefault(row["topic"], {})
            dialects[row["dialect"]] = row["has_tsos"] or dialects.get(row["dialect"], False)
    wrong = [f"{topic} (rule {rule})" for topic, rule in broken.items() if topic not in accepted]
    if wrong:
        raise SourceError(f"the newest records would be dead letters: {_listed(wrong)}")
    texts = [f"{topic}: {', '.join(starmap(_dialect, found.items()))}" for topic, found in accepted.items()]
    return _listed(texts) or "no messages yet"


def _dialect(name: str, has_tsos: object) -> str:
    return name if has_tsos or name != TICDC.name else f"{name} without TSOs ({_EXTENSION})"


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - _MOST_TOPICS} more" if len(texts) > _MOST_TOPICS else ""
    return "; ".join(texts[:_MOST_TOPICS]) + more
