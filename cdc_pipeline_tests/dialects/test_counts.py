from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.counts import BatchCounts, ObservedFrame
from cdc_pipeline.dialects.decode import decode
from cdc_pipeline_tests.support.dialect_cases import changed, raw
from cdc_pipeline_tests.support.messages import EPOCH_MS, canal, canal_ddl, dataworks, ddl, row, watermark

_ROW: dict[str, str | None] = {"id": "1", "v": "a"}
_INSERT = row("INSERT", "t", 1, _ROW)
_KEYED = row("INSERT", "t", 1, _ROW, key=["id"])
_INEXACT = row("INSERT", "t", 1, _ROW, extension=False)
_THREE_ROWS = canal("INSERT", "t", 1, [_ROW, _ROW, _ROW])
_DEAD = changed(_INSERT, data=None)
_QUERY = canal("QUERY", "", 1, None, database="", sql="DELETE FROM t")
_STATEMENT = canal("UPDATE", "t", 1, None, sql="UPDATE t SET v = 1")
_ROLLBACK = canal("XAROLLBACK", "", 1, None, database="", sql="XA ROLLBACK X'7832',X'',1")
_OTHER_DDL = dataworks("ALTER", "t", 1, sql="ALTER TABLE t ADD c int").replace("MySQL", "PostgreSQL")
_LATER_HEARTBEAT = dataworks("MHEARTBEAT", None, 7)
_HEARTBEAT, _BEGIN = dataworks("MHEARTBEAT", None, 1), dataworks("TRANSACTION_BEGIN", None, 1)


@dataclass(frozen=True)
class _Case:
    """Records and their counts. `others`: offsets of the records that `other_records` returns."""

    values: list[str | bytes | None]
    kinds: dict[str, int]
    changes: int = 0
    exact: bool = False
    heartbeats: dict[str, int] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)
    dialects: tuple[str, ...] = ("ticdc",)
    keyless: int | None = None
    """None: all row changes."""


_CASES = {
    "each kind": _Case(
        [
            *[_INSERT, _THREE_ROWS, ddl("DROP TABLE t", 1), watermark(1), _HEARTBEAT, _BEGIN, _ROLLBACK],
            *[_STATEMENT, _QUERY, None, b"", b"{", _INEXACT, _OTHER_DDL],
        ],
        {**dict.fromkeys(unified.KINDS, 1), unified.ROW: 3, unified.EMPTY: 2},
        changes=5,
        exact=True,
        heartbeats={"topic": EPOCH_MS + 1000},
        others=[2, 6, 7, 11, 13],
        dialects=("canal", "dataworks", "ticdc"),
    ),
    "a row with a key": _Case([_KEYED, _INSERT], {unified.ROW: 2}, changes=2, exact=True, keyless=1),
    "rows only": _Case([_THREE_ROWS, _INEXACT, _THREE_ROWS], {unified.ROW: 3}, changes=7, dialects=("canal", "ticdc")),
    "an exact row": _Case([_INEXACT, _INSERT], {unified.ROW: 2}, changes=2, exact=True),
    "an exact ddl": _Case([ddl("DROP TABLE t", 1)], {unified.DDL: 1}, exact=True, others=[0]),
    "an inexact ddl": _Case([canal_ddl("DROP TABLE t", 1)], {unified.DDL: 1}, others=[0], dialects=("canal",)),
    "a watermark": _Case([_INEXACT, watermark(1)], {unified.ROW: 1, unified.WATERMARK: 1}, 1, exact=True),
    "a dead letter with a commitTs": _Case([_DEAD, _INEXACT], {unified.DEAD: 1, unified.ROW: 1}, 1, others=[0]),
    "a dead watermark": _Case([changed(watermark(1), es=0)], {unified.DEAD: 1}, others=[0]),
    "a dead letter with three rows": _Case(
        [changed(_THREE_ROWS, sql="x")], {unified.DEAD: 1}, others=[0], dialects=("canal",)
    ),
    "counted only": _Case(
        [_LATER_HEARTBEAT, _HEARTBEAT, _BEGIN, _QUERY, None],
        {unified.HEARTBEAT: 2, unified.TRANSACTION: 1, unified.QUERY_TEXT: 1, unified.EMPTY: 1},
        heartbeats={"topic": EPOCH_MS + 7000},
        dialects=("canal", "dataworks"),
    ),
    "none": _Case([], {}, dialects=()),
}


def _raw(spark: SparkSession, case: _Case) -> DataFrame:
    values = [value.encode() if isinstance(value, str) else value for value in case.values]
    return raw(spark, {str(place): value for place, value in enumerate(values)})


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.timeout(120)  # an observation that never comes is waited for without end
def test_counts(name: str, spark: SparkSession) -> None:
    case = _CASES[name]
    records = _raw(spark, case)
    observed = ObservedFrame(decode(records))
    changes = unified.row_changes(observed.frame).select("offset").collect()
    counts = observed.counts(len(case.values))
    kinds = dict.fromkeys(unified.KINDS, 0) | case.kinds
    span, keyless = _span(observed.frame), case.changes if case.keyless is None else case.keyless
    assert counts == BatchCounts(
        len(case.values), kinds, case.changes, case.exact, case.heartbeats, *span, case.dialects, keyless
    )
    assert counts.is_balanced
    assert len(changes) == case.changes
    assert sorted(row["offset"] for row in observed.other_records(records).collect()) == case.others
    found = observed.watermarks(1)
    watermarks = decode(records).where(F.col("kind") == unified.WATERMARK)
    wanted = watermarks.select(
        *found.column_names[:-1], F.timestamp_millis(F.shiftright("watermark_ts", 18)).alias("watermark_time")
    )
    assert spark.createDataFrame(found).dtypes == wanted.dtypes
    assert sorted(spark.createDataFrame(found).collect()) == sorted(wanted.collect())
    assert found.num_rows == case.kinds.get(unified.WATERMARK, 0)


def _span(decoded: DataFrame) -> tuple[int | None, int | None]:
    times = [row["at"] for row in unified.row_changes(decoded).select("at").collect()]
    return (min(times), max(times)) if times else (None, None)


def test_the_clock_of_each_encoder(spark: SparkSession) -> None:
    """`at`: the TSO, `es`, or the time at which the message was built, with the number of Canal's batch."""
    values = {
        "0": _INSERT,
        "1": row("INSERT", "t", 3, {"id": "1"}, extension=False),
        "2": changed(dataworks("INSERT", "t", 1, after=_ROW)),
        "3": changed(canal("INSERT", "t", 4, [{"id": "1"}], batch=7)),
    }
    observed = ObservedFrame(decode(raw(spark, values)))
    rows = {row["offset"]: row for row in unified.row_changes(observed.frame).collect()}
    at = [rows[offset]["at"] for offset in sorted(rows)]
    assert at[:2] == [rows[offset]["commit_ts"] for offset in (0, 1)]
    assert at[2:] == [rows[2]["ts"] << 18, (rows[3]["ts"] << 18) + 7]
    assert [rows[offset]["at"] >> 18 for offset in (1, 3)] == [rows[1]["es"], rows[3]["ts"]]


def test_watermark_time_is_the_physical_part(spark: SparkSession) -> None:
    ms = 1_700_000_000_123
    value = changed(watermark(1), es=ms, _tidb={"watermarkTs": (ms << 18) + 5})
    observed = ObservedFrame(decode(raw(spark, {"0": value})))
    observed.frame.write.format("noop").mode("overwrite").save()
    (found,) = observed.watermarks(1).to_pylist()
    assert (found["watermark_ts"], found["watermark_time"].timestamp()) == ((ms << 18) + 5, ms / 1000)


def test_other_records_go_by_topic_and_partition_too(spark: SparkSession) -> None:
    records = _raw(spark, _Case([ddl("DROP TABLE t", 1), _INSERT], {}))
    others = records.selectExpr("batch_id", "topic", "`partition` + 1 AS `partition`", *records.columns[3:])
    observed = ObservedFrame(decode(records))
    observed.frame.write.format("noop").mode("overwrite").save()
    found = observed.other_records(records.union(others)).select("partition", "offset").collect()
    assert found == [(0, 0)]


@pytest.mark.parametrize(("records", "balanced"), [(2, False), (3, True), (4, False)])
def test_balance(records: int, balanced: bool) -> None:
    by_kind = dict.fromkeys(unified.KINDS, 0) | {unified.ROW: 2, unified.DEAD: 1}
    assert BatchCounts(records, by_kind, row_changes=9, exact_ts=True).is_balanced is balanced
