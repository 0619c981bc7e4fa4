"""Real messages in folders of TiCDC's storage sink: mirrors equal the source's tables at each checkpoint."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.dialects.decoded_tables import DecodeSettings, decode_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.ddl_events import BEFORE_CHANGEFEED
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.sources.source import RunContext
from cdc_pipeline.sources.storage.source import TicdcStorage
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.messages import ddl, row, tso
from cdc_pipeline_tests.support.storage_sink import CAPTURES, StorageSink, checkpoint, payloads

_PARTITIONS = 4
# Tables of the capture that cover every type and every kind of statement. `test_captures` uses all tables.
_TABLES = frozenset(
    ("all_types", "defaults", "no_pk", "cpk_nc", "", "evolve", "evolved", "evolved2", "part", "part_x", "part_h")
)


def _ingest(spark: SparkSession, paths: LakePaths, source: TicdcStorage) -> CutReport:
    """One run of all stages, which decodes messages of TiCDC only."""
    source.ingest(Lake(spark, paths), RunContext("run", lambda line: None))
    decode_batches(Lake(spark, paths), DecodeSettings("ticdc"))
    maker = CutMaker(Lake(spark, paths), "run", "UTC", 2, lambda line: None, {}, DdlPolicy())
    return maker.advance()


def _differences(spark: SparkSession, paths: LakePaths, tables: dict[str, Any]) -> dict[str, list[str]]:
    """Table → differences of its mirror from the expected rows."""
    found = {
        table: mirror_differences(spark, paths, TableName(*table.split(".", 1)), truth["columns"], truth["rows"])
        for table, truth in tables.items()
    }
    return {table: lines for table, lines in found.items() if lines}


def _ends(messages: list[str], watermarks: list[int]) -> list[int]:
    """For each watermark, the number of messages up to its copy in the last partition."""
    ends = []
    for watermark in watermarks:
        copies = [index for index, text in enumerate(messages) if f'"watermarkTs":{watermark}' in text]
        assert len(copies) == _PARTITIONS
        ends.append(copies[-1] + 1)
    return ends


def test_slices_of_the_shop_with_a_restart(spark: SparkSession, tmp_path: Path, paths: LakePaths) -> None:
    """Each slice: new files, a new checkpoint, a run. Rows above the checkpoint wait.

    After a restart TiCDC sends rows and statements again, also from an older checkpoint. They change nothing.
    """
    messages = payloads("shop")
    with (CAPTURES / "shop" / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        truths = {truth["watermark"]: truth["tables"] for truth in map(json.loads, stream)}
    first, second = sorted(truths)[2], sorted(truths)[7]
    ends = _ends(messages, [first, second])
    sink = StorageSink(tmp_path / "sink", rows_per_file=40)
    source = TicdcStorage(str(sink.root), max_bytes_per_batch=600_000)
    slices = [
        (messages[: ends[0] + 9], truths[first], first),
        (_resent(messages[ends[0] - 150 : ends[1] + 9]), truths[second], second),
    ]
    for sent, truth, watermark in slices:
        sink.write(sent)
        _ingest(spark, paths, source)
        cut = published_cut(Lake(spark, paths))
        assert cut.resolved_tso == watermark
        assert {f"{mirror['database']}.{mirror['table']}" for mirror in cut.mirrors} == set(truth)
        assert _differences(spark, paths, truth) == {}
    raw = spark.read.format("delta").load(paths.table("raw_topic_snapshot"))
    assert raw.agg(F.max("batch_id")).first()[0] > len(slices)  # type: ignore[index]
    # each line and each schema file once
    is_checkpoint = F.get("headers", F.lit(0))["value"] == F.lit(b"metadata")
    values = [bytes(found[0]) for found in raw.where(~is_checkpoint).select("value").collect()]
    assert len(values) == len(set(sink.names())) == raw.where(~is_checkpoint).select("headers").distinct().count()
    balance = lake_balance(Lake(spark, paths))
    assert balance.is_balanced, balance
    second = _ingest(spark, paths, source)
    assert not second.published


def _resent(messages: list[str]) -> list[str]:
    """The messages as another encoder run resends them, with another `ts`."""
    return [text.replace('"ts":1', '"ts":2', 1) if '"isDdl":false' in text else text for text in messages]


def test_every_type_and_statement_without_the_extension(spark: SparkSession, tmp_path: Path, paths: LakePaths) -> None:
    """Commit times are in ms, and a checkpoint closes the ms before its own.

    Uses date folders, physical tables, dispatchers, LF, and indexes of 20 digits.
    """
    messages = [text for text in payloads("types-ticdc-extension") if json.loads(text)["table"] in _TABLES]
    content = gzip.decompress((CAPTURES / "types-ticdc-extension" / "expected.json.gz").read_bytes())
    truth = {
        table: found for table, found in json.loads(content)["tables"].items() if table.split(".", 1)[1] in _TABLES
    }
    sink = StorageSink(
        tmp_path / "sink",
        width=20,
        date="2026-11-21",
        extension=False,
        rows_per_file=7,
        terminator=b"\n",
        physical={"shop.part": (104, 105, 106), "shop.part_h": (110, 111, 112, 113)},
        dispatcher="a1b2",
    )
    sink.write(messages)
    last = max(json.loads(text)["es"] for text in messages)
    sink.put("metadata", checkpoint((last + 1 << 18) + 5))
    report = _ingest(spark, paths, TicdcStorage(str(sink.root)))
    assert report.resolved_tso == (last + 1 << 18) - 1
    assert {str(entry.name) for entry in report.mirrors} == set(truth)
    assert _differences(spark, paths, truth) == {}
    assert lake_balance(Lake(spark, paths)).is_balanced


def test_definitions_of_existing_tables(spark: SparkSession, tmp_path: Path, paths: LakePaths) -> None:
    """A schema file without a statement gives the column types, and a gap: the table is older than the changefeed. A known
    table stays as it is.

    A row that precedes a version of its own ms in the file comes after that version. A checkpoint does not close its ms.
    """
    sink = StorageSink(tmp_path / "sink", extension=False)
    columns: list[dict[str, Any]] = [
        {"ColumnName": "id", "ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20", "ColumnIsPk": "true"},
        {"ColumnName": "amount", "ColumnType": "DECIMAL", "ColumnPrecision": "12", "ColumnScale": "2"},
        {"ColumnName": "kind", "ColumnType": "ENUM", "ColumnElems": ["a", "it's"], "ColumnNullable": "false"},
        {"ColumnName": "at", "ColumnType": "DATETIME", "ColumnScale": "3", "ColumnDefault": "2024-01-01 00:00:00.000"},
        {"ColumnName": "te`xt", "ColumnType": "TEXT", "ColumnPrecision": "65535"},
    ]
    version = tso(1) + 7
    sink.define("db", "ta`b", version, "", 0, columns)
    sink.versions["db", "ta`b"] = version
    image: dict[str, str | None] = {
        "id": "1",
        "amount": "1.50",
        "kind": "2",
        "at": "2024-01-02 03:04:05.600",
        "te`xt": "x",
    }
    types = {"id": "bigint unsigned", "amount": "decimal", "kind": "enum", "at": "datetime", "te`xt": "text"}

    def sent(step: int, number: str, table: str = "ta`b") -> str:
        return _compact(row("INSERT", table, step, {**image, "id": number}, types=types, key=["id"]))

    sink.write([sent(1, "1"), sent(3, "3")])
    sink.put("metadata", checkpoint(tso(3) + 9))
    source, name = TicdcStorage(str(sink.root)), TableName("db", "ta`b")
    report = _ingest(spark, paths, source)
    mirror = spark.read.format("delta").load(paths.mirror(name))
    assert (
        dict(mirror.dtypes).items()
        >= {
            "id": "decimal(20,0)",
            "amount": "decimal(12,2)",
            "kind": "string",
            "at": "timestamp_ntz",
            "te`xt": "string",
        }.items()
    )
    shown = mirror.select(F.col("id").cast("string"), F.col("amount").cast("string"), "kind").orderBy("id")
    assert (report.resolved_tso, [tuple(found) for found in shown.collect()]) == (tso(3) - 1, [("1", "1.50", "it's")])
    # the statement of a column's change, and the definition again, as a restart writes it
    sink.define("db", "ta`b", tso(4) + 1, "ALTER TABLE `ta``b` ADD COLUMN `n` INT DEFAULT 5", 5, columns)
    sink.define("db", "ta`b", tso(5), "", 0, columns)
    sink.put("metadata", checkpoint(tso(6)))
    report = _ingest(spark, paths, source)
    mirror = spark.read.format("delta").load(paths.mirror(name)).select(F.col("id").cast("string"), "n").orderBy("id")
    assert [tuple(found) for found in mirror.collect()] == [("1", 5), ("3", 5)]
    assert [entry.gaps for entry in report.mirrors] == [(str(BEFORE_CHANGEFEED),)]


def test_late_files_under_the_name_before_a_rename(spark: SparkSession, tmp_path: Path, paths: LakePaths) -> None:
    """The commit TSO places the rows of such a file, not its folder or the time at which it appears."""
    sink, types = StorageSink(tmp_path / "sink"), {"id": "int"}

    def put(table: str, step: int, number: str) -> str:
        return _compact(row("INSERT", table, step, {"id": number}, types=types, key=["id"]))

    create = ddl("CREATE TABLE `before` (`id` INT PRIMARY KEY)", 1, table="before", kind="CREATE")
    sink.write([create, put("before", 2, "1")])
    sink.put("metadata", checkpoint(tso(3)))
    source = TicdcStorage(str(sink.root))
    _ingest(spark, paths, source)
    rename = ddl("RENAME TABLE `before` TO `after`", 5, table="after", kind="RENAME")
    sink.write([rename, put("after", 6, "2")])
    _ingest(spark, paths, source)
    # a redelivery, and a row that was flushed late, below the next checkpoint
    sink.write([put("before", 2, "1"), put("before", 4, "3")])
    sink.put("metadata", checkpoint(tso(7)))
    report = _ingest(spark, paths, source)
    assert [(str(entry.name), entry.gaps) for entry in report.mirrors] == [("db.after", ())]
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", "after")))
    assert sorted(found["id"] for found in mirror.collect()) == [1, 2, 3]
    # TiCDC never sends a new row below its checkpoint. The check `no_breach` reports it under the name in its message
    sink.write([put("before", 4, "4")])
    sink.put("metadata", checkpoint(tso(9)))
    report = _ingest(spark, paths, source)
    assert [(str(breach.name), breach.changes) for breach in report.breaches] == [("db.before", 1)]


def _compact(message: str) -> str:
    return json.dumps(json.loads(message), ensure_ascii=False, separators=(",", ":"))
