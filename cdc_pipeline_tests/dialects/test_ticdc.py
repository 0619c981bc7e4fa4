from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from cdc_pipeline.dialects import ticdc, unified
from cdc_pipeline.dialects.decode import BatchCounts, batch_counts
from cdc_pipeline.dialects.envelope import parsed
from cdc_pipeline.sources.records import HEADERS, RECORD
from cdc_pipeline_tests.messages import ddl, row, tso, watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_NEW = {"zeta": "1", "Alpha": "2", "mid": None}
_OLD = {"zeta": "0", "Alpha": "2", "mid": None}
_INSERT = row("INSERT", "t", 1, _NEW, key=["zeta"])
_UPDATE = row("UPDATE", "t", 2, _NEW, old=_OLD, key=["zeta"])
_DELETE = row("DELETE", "t", 3, _NEW, key=["zeta"])
_DDL = ddl("CREATE TABLE `t` (`a` INT)", 4, table="t", kind="CREATE")
_WATERMARK = watermark(5)


def _with(message: str, **fields: Any) -> bytes:
    """The message with these fields in place of its own."""
    return json.dumps({**json.loads(message), **fields}, ensure_ascii=False).encode()


def _without(message: str, *names: str) -> bytes:
    return json.dumps({name: field for name, field in json.loads(message).items() if name not in names}).encode()


def _escaped(text: bytes) -> bytes:
    """An INSERT whose only value is these bytes between quotes, as they stand in the JSON."""
    message = row("INSERT", "t", 1, {"a": "HERE"}).encode()
    return message.replace(b'"HERE"', b'"' + text + b'"')


def _decoded(spark: SparkSession, values: dict[str, bytes | None]) -> DataFrame:
    """The values as records of one topic, offsets in their order, decoded."""
    records = [
        ("topic", 0, offset, None, None, None if value is None else bytearray(value), None)
        for offset, value in enumerate(values.values())
    ]
    return ticdc.decoded(spark.createDataFrame(records, RECORD))


def _by_name(frame: DataFrame, values: dict[str, bytes | None]) -> dict[str, Row]:
    """The one row of each value. Column names are asked for apart: a Python dict of a Spark map has lost their order."""
    names = list(values)
    orders = {f"{column}_names": F.map_keys(column) for column in ("before", "after")}
    rows = frame.withColumns(orders).collect()
    assert len(rows) == len(names)
    return {names[found["offset"]]: found for found in rows}


# ---- what a good message becomes: name → (value, the fields that it must have)

_V6_ORDER = json.dumps(
    {
        **dict.fromkeys(("id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql")),
        **json.loads(_UPDATE),
        "sqlType": {"Alpha": 12, "mid": 12, "zeta": 12},
        "mysqlType": {"Alpha": "int", "mid": "int", "zeta": "int"},
        "data": [{"Alpha": "2", "mid": None, "zeta": "1"}],
        "old": [{"Alpha": "2", "mid": None, "zeta": "0"}],
    }
).encode()

_GOOD: dict[str, tuple[bytes | None, dict[str, Any]]] = {
    "insert": (
        _INSERT.encode(),
        {
            "kind": unified.ROW,
            "rule": None,
            "reason": None,
            "dialect": "ticdc",
            "database": "db",
            "table": "t",
            "op": "INSERT",
            "commit_ts": tso(1),
            "exact_ts": True,
            "watermark_ts": None,
            "es": tso(1) >> 18,
            "ts": (tso(1) >> 18) + 5,
            "row": 0,
            "key_names": ["zeta"],
            "before": None,
            "after": _NEW,
            "mysql_type": dict.fromkeys(_NEW, "varchar"),
        },
    ),
    "update with the whole old row": (
        _UPDATE.encode(),
        {"kind": unified.ROW, "op": "UPDATE", "commit_ts": tso(2), "before": _OLD, "after": _NEW},
    ),
    "delete has its row in data": (
        _DELETE.encode(),
        {"kind": unified.ROW, "op": "DELETE", "commit_ts": tso(3), "before": _NEW, "after": None},
    ),
    "update with the changed columns in old": (
        _with(_UPDATE, old=[{"zeta": "0"}]),
        {"kind": unified.ROW, "before": {"zeta": "0"}, "after": _NEW},
    ),
    "update with null in old": (
        _with(_UPDATE, old=[{"zeta": None}]),
        {"kind": unified.ROW, "before": {"zeta": None}, "after": _NEW},
    ),
    "update of no visible column": (
        _with(_UPDATE, old=[{}]),
        {"kind": unified.ROW, "before": {}, "after": _NEW},
    ),
    "delete with the handle key only": (
        _with(_DELETE, data=[{"zeta": "1"}], mysqlType={"zeta": "int"}),
        {"kind": unified.ROW, "before": {"zeta": "1"}, "after": None, "mysql_type": {"zeta": "int"}},
    ),
    "delete before v5.4, its row also in old": (
        _with(_DELETE, old=[_NEW]),
        {"kind": unified.ROW, "op": "DELETE", "before": _NEW, "after": None},
    ),
    "insert with a row in old": (_with(_INSERT, old=[_OLD]), {"kind": unified.ROW, "before": None, "after": _NEW}),
    "v6 key order": (_V6_ORDER, {"kind": unified.ROW, "before": _OLD, "after": _NEW}),
    "row without the extension": (
        row("INSERT", "t", 1, _NEW, extension=False).encode(),
        {"kind": unified.ROW, "commit_ts": (tso(1) >> 18) << 18, "exact_ts": False},
    ),
    "extension without commitTs": (
        _with(_INSERT, _tidb={}),
        {"kind": unified.ROW, "commit_ts": (tso(1) >> 18) << 18, "exact_ts": False},
    ),
    "extension that is null": (_with(_INSERT, _tidb=None), {"kind": unified.ROW, "exact_ts": False}),
    "commitTs counts inside its millisecond": (
        _with(_INSERT, _tidb={"commitTs": tso(1) + 1}),
        {"commit_ts": tso(1) + 1, "exact_ts": True},
    ),
    "the largest commitTs": (
        _with(_INSERT, _tidb={"commitTs": 2**63 - 1}),
        {"kind": unified.ROW, "commit_ts": 2**63 - 1, "exact_ts": True},
    ),
    "commitTs without es": (_without(_INSERT, "es"), {"kind": unified.ROW, "commit_ts": tso(1), "es": None}),
    "the last es that a TSO can have": (
        _with(_INSERT, es=2**45 - 1, _tidb=None),
        {"kind": unified.ROW, "commit_ts": (2**45 - 1) << 18},
    ),
    "es 0": (_with(_INSERT, es=0, _tidb=None), {"kind": unified.ROW, "commit_ts": 0}),
    "es too large beside a commitTs": (_with(_INSERT, es=2**45), {"kind": unified.ROW, "commit_ts": tso(1)}),
    "onlyHandleKey false": (
        _with(_INSERT, _tidb={"commitTs": 7, "onlyHandleKey": False}),
        {"kind": unified.ROW, "commit_ts": 7},
    ),
    "a row key and fields of later versions": (
        _with(_INSERT, _tidb={"commitTs": 7, "rowkey": "dGFibGU="}, later={"a": [1, {"b": None}]}),
        {"kind": unified.ROW, "commit_ts": 7, "after": _NEW},
    ),
    "no key": (_with(_INSERT, pkNames=None), {"kind": unified.ROW, "key_names": None}),
    "no ts": (_without(_INSERT, "ts"), {"kind": unified.ROW, "ts": None}),
    "no types": (_with(_INSERT, mysqlType=None), {"kind": unified.ROW, "mysql_type": None}),
    "ddl": (
        _DDL.encode(),
        {
            "kind": unified.DDL,
            "rule": None,
            "database": "db",
            "table": "t",
            "type": "CREATE",
            "commit_ts": tso(4),
            "exact_ts": True,
            "sql": "CREATE TABLE `t` (`a` INT)",
            "after": None,
            "before": None,
        },
    ),
    "ddl without the extension": (
        ddl("DROP TABLE t", 4, extension=False).encode(),
        {"kind": unified.DDL, "commit_ts": (tso(4) >> 18) << 18, "exact_ts": False},
    ),
    "ddl whose type names a row change": (_with(_DDL, type="INSERT"), {"kind": unified.DDL}),
    "ddl without a type": (_with(_DDL, type=None), {"kind": unified.DDL}),
    "ddl on a database": (_with(_DDL, table=""), {"kind": unified.DDL, "table": ""}),
    "watermark": (
        _WATERMARK.encode(),
        {"kind": unified.WATERMARK, "rule": None, "watermark_ts": tso(5), "exact_ts": False, "after": None},
    ),
    "watermark without es": (_without(_WATERMARK, "es"), {"kind": unified.WATERMARK, "watermark_ts": tso(5)}),
    "the last type of two counts": (_INSERT.encode()[:-1] + b', "type": "DELETE"}', {"op": "DELETE", "before": _NEW}),
    "the last value of two counts": (
        row("INSERT", "t", 1, {"a": "X"}).encode().replace(b'"a": "X"', b'"a": "first", "a": "last"'),
        {"kind": unified.ROW, "after": {"a": "last"}},
    ),
    "5 million characters": (_escaped(b"x" * 5_000_000), {"kind": unified.ROW, "after": {"a": "x" * 5_000_000}}),
    "white space around": (b" \r\n\t" + _INSERT.encode() + b"\r\n \t\n", {"kind": unified.ROW, "after": _NEW}),
    "NUL as an escape": (_escaped(b"a\\u0000b"), {"kind": unified.ROW, "after": {"a": "a\0b"}}),
    "escapes of easyjson": (_escaped(b"\\u003c\\u003E\\u0026\\u001f"), {"after": {"a": "<>&\x1f"}}),
    "a surrogate pair as escapes": (_escaped(b"\\ud83d\\ude00\\uD83D\\uDE00"), {"after": {"a": "😀😀"}}),
    "an emoji as UTF-8": (_escaped("😀".encode()), {"after": {"a": "😀"}}),
    "characters beside the surrogates": (_escaped(b"\\ud7ff\\ue000"), {"after": {"a": "\ud7ff\ue000"}}),
    "a backslash before ud800": (_escaped(b"\\\\ud800"), {"kind": unified.ROW, "after": {"a": "\\ud800"}}),
    "two backslashes before ud800": (_escaped(b"\\\\\\\\udc00"), {"kind": unified.ROW, "after": {"a": "\\\\udc00"}}),
    "C1 controls as they are": (_escaped("\x7f\x80\x9f".encode()), {"after": {"a": "\x7f\x80\x9f"}}),
    "integers in place of strings keep their digits": (
        _with(_INSERT, database=5, data=[{"a": 18446744073709551615, "b": True}]),
        {"kind": unified.ROW, "database": "5", "after": {"a": "18446744073709551615", "b": "true"}},
    ),
    "tombstone": (None, {"kind": unified.EMPTY, "rule": None, "reason": None}),
    "empty value": (b"", {"kind": unified.EMPTY, "rule": None, "reason": None}),
}

# ---- records that break a rule: rule → name → value

_BAD: dict[str, dict[str, bytes]] = {
    "value_is_utf8": {
        "a byte that no character has": _escaped(b"\xff"),
        "an overlong character": _escaped(b"\xc0\xaf"),
        "a surrogate as UTF-8": _escaped(b"\xed\xa0\x80"),
        "a cut character": _escaped("é".encode()[:1]),
        "another encoding": _INSERT.encode("utf-16"),
        "bytes of lz4": b"\x04\x22\x4d\x18" + bytes(range(200, 256)),
    },
    "value_is_json_object": {
        "cut short": _INSERT.encode()[:-1],
        "cut in the middle": _INSERT.encode()[: len(_INSERT) // 2],
        "white space": b" \r\n\t",
        "a list": b"[]",
        "a list of a message": b"[" + _INSERT.encode() + b"]",
        "null": b"null",
        "a text": b'"text"',
        "a number": b"123",
        "a brace": b"}",
        "no field": b"{}",
        "two messages": _INSERT.encode() + _INSERT.encode(),
        "two messages in two lines": _INSERT.encode() + b"\n" + _INSERT.encode() + b"\n",
        "text after it": _INSERT.encode() + b"x",
        "text before it": b"x" + _INSERT.encode(),
        "a comma before the brace": _INSERT.encode()[:-1] + b",}",
        "a name without quotes": _INSERT.encode().replace(b'"type"', b"type"),
        "single quotes": _INSERT.encode().replace(b'"2"', b"'2'"),
        "NaN": _INSERT.encode().replace(b'"2"', b"NaN"),
        "an unknown escape": _escaped(b"\\x"),
        "a line end in a text": _escaped(b"a\nb"),
        "a NUL in a text": _escaped(b"a\0b"),
        "pkNames no list": _with(_INSERT, pkNames="a"),
        "isDdl a text": _with(_INSERT, isDdl="false"),
        "isDdl a number": _with(_INSERT, isDdl=0),
        "es a text": _with(_INSERT, es="1"),
        "es a fraction": _with(_INSERT, es=1.5),
        "es beyond 64 bits": _with(_INSERT, es=2**63),
        "ts a text": _with(_INSERT, ts="1"),
        "mysqlType a text": _with(_INSERT, mysqlType="int"),
        "mysqlType a list": _with(_INSERT, mysqlType=[]),
        "data an object": _with(_INSERT, data=_NEW),
        "data a text": _with(_INSERT, data="x"),
        "data of texts": _with(_INSERT, data=["x"]),
        "old a text": _with(_UPDATE, old="x"),
        "_tidb a text": _with(_INSERT, _tidb="x"),
        "_tidb a list": _with(_INSERT, _tidb=[1]),
        "commitTs a text": _with(_INSERT, _tidb={"commitTs": "1"}),
        "commitTs a fraction": _with(_INSERT, _tidb={"commitTs": 4.5e17}),
        "commitTs beyond 63 bits": _with(_INSERT, _tidb={"commitTs": 2**63}),
        "watermarkTs a text": _with(_WATERMARK, _tidb={"watermarkTs": "1"}),
        "onlyHandleKey a text": _with(_INSERT, _tidb={"commitTs": 1, "onlyHandleKey": "true"}),
    },
    "escapes_are_characters": {
        "a high half alone": _escaped(b"a\\ud800b"),
        "a high half at the end": _escaped(b"\\uDBFF"),
        "a low half alone": _escaped(b"\\udc00"),
        "halves in the wrong order": _escaped(b"\\ude00\\ud83d"),
        "a low half after a pair": _escaped(b"\\ud83d\\ude00\\ude00"),
        "a high half before a pair": _escaped(b"\\ud83d\\ud83d\\ude00"),
        "a half after a backslash": _escaped(b"\\\\\\ud800"),
        "a half in a name": _escaped(b"x").replace(b'"a"', b'"\\ud800"'),
    },
    "is_ddl_is_present": {
        "absent": _without(_INSERT, "isDdl"),
        "null": _with(_INSERT, isDdl=None),
        "another JSON document": b'{"order": 1}',
    },
    "type_is_known": {
        "absent": _without(_INSERT, "type"),
        "null": _with(_INSERT, type=None),
        "small letters": _with(_INSERT, type="insert"),
        "another word": _with(_INSERT, type="REPLACE"),
        "a DDL's word": _with(_INSERT, type="QUERY"),
        "a number": _with(_INSERT, type=1),
    },
    "watermark_has_tso": {
        "no extension": _without(_WATERMARK, "_tidb"),
        "null": _with(_WATERMARK, _tidb={"watermarkTs": None}),
        "a commitTs instead": _with(_WATERMARK, _tidb={"commitTs": tso(5)}),
    },
    "commit_time_is_present": {
        "row without es": _without(_INSERT, "es", "_tidb"),
        "ddl without es": _without(_DDL, "es", "_tidb"),
        "ddl without es that calls itself a watermark": _with(_DDL, es=None, _tidb=None, type="TIDB_WATERMARK"),
        "commitTs null": _with(_INSERT, es=None, _tidb={"commitTs": None}),
        "es that overflows a TSO": _with(_INSERT, es=2**45, _tidb=None),
        "es before 1970": _with(_INSERT, es=-1, _tidb=None),
    },
    "ddl_has_statement": {"null": _with(_DDL, sql=None), "empty": _with(_DDL, sql=""), "absent": _without(_DDL, "sql")},
    "row_has_table": {
        "table null": _with(_INSERT, table=None),
        "table empty": _with(_INSERT, table=""),
        "table absent": _without(_INSERT, "table"),
        "database null": _with(_INSERT, database=None),
        "database empty": _with(_INSERT, database=""),
    },
    "row_is_whole": {
        "handle key only": _with(_UPDATE, _tidb={"commitTs": 1, "onlyHandleKey": True}),
        "claim check": _with(_UPDATE, _tidb={"commitTs": 1, "claimCheckLocation": "file:///tmp/1.json"}),
    },
    "row_has_one_row": {
        "data null": _with(_INSERT, data=None),
        "data absent": _without(_DELETE, "data"),
        "no row": _with(_UPDATE, data=[]),
        "a row that is null": _with(_INSERT, data=[None]),
        "a row without columns": _with(_INSERT, data=[{}]),
        "two rows": _with(_INSERT, data=[_NEW, _OLD]),
    },
    "update_has_old": {
        "old null": _with(_UPDATE, old=None),
        "old absent": _without(_UPDATE, "old"),
        "no row": _with(_UPDATE, old=[]),
        "a row that is null": _with(_UPDATE, old=[None]),
        "two rows": _with(_UPDATE, old=[_OLD, _OLD]),
    },
}
_VALUES: dict[str, bytes | None] = {f"good: {name}": value for name, (value, _) in _GOOD.items()} | {
    f"{rule}: {name}": value for rule, cases in _BAD.items() for name, value in cases.items()
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """All cases, decoded in one query."""
    return _by_name(_decoded(spark, _VALUES), _VALUES)


@pytest.mark.parametrize("name", _GOOD)
def test_good_message(name: str, rows: dict[str, Row]) -> None:
    _, wanted = _GOOD[name]
    found = rows[f"good: {name}"].asDict()
    assert {field: found[field] for field in wanted} == wanted


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, cases in _BAD.items() for name in cases])
def test_broken_rule(rule: str, name: str, rows: dict[str, Row]) -> None:
    found = rows[f"{rule}: {name}"]
    assert (found["kind"], found["rule"]) == (unified.DEAD, rule)


def test_each_rule_has_a_case_and_a_reason(rows: dict[str, Row]) -> None:
    expected = {**ticdc._JSON_REASONS, **{rule: text for rule, (text, _) in ticdc._RULES.items()}}
    found = {row["rule"]: row["reason"] for row in rows.values() if row["kind"] == unified.DEAD}
    assert found == {rule: f"expected: {text}" for rule, text in expected.items()}


def test_columns_are_in_the_order_of_the_message(rows: dict[str, Row]) -> None:
    update, v6 = rows["good: update with the whole old row"], rows["good: v6 key order"]
    assert (update["after_names"], update["before_names"]) == (["zeta", "Alpha", "mid"], ["zeta", "Alpha", "mid"])
    assert (v6["after_names"], v6["before_names"]) == (["Alpha", "mid", "zeta"], ["Alpha", "mid", "zeta"])


def test_a_long_value_is_whole(spark: SparkSession) -> None:
    """Longer than the 20 million characters at which the JSON parser gives up by itself."""
    size = 20_000_100
    head, tail = _escaped(b"HERE").decode().split("HERE")
    value = F.concat(F.lit(head), F.repeat(F.lit("x"), size), F.lit("END" + tail)).cast("binary")
    frame = parsed(spark.range(1).select(value.alias("value")))
    text = F.col("message.data")[0]["a"]
    assert frame.select(F.length(text), F.substring(text, size, 9)).collect() == [(size + 3, "xEND")]


def test_each_record_becomes_one_row_of_one_table(spark: SparkSession) -> None:
    frame = _decoded(spark, _VALUES).withColumns({"batch_id": F.lit(1).cast("bigint")}).persist()
    tables = {
        unified.ROW: unified.row_changes(frame),
        unified.DDL: unified.ddl_events(frame),
        unified.WATERMARK: unified.watermarks(frame),
        unified.DEAD: unified.dead_letters(frame),
        unified.EMPTY: frame.where(F.col("kind") == unified.EMPTY),
    }
    offsets = [row[0] for table in tables.values() for row in table.select("offset").collect()]
    frame.unpersist()
    assert sorted(offsets) == list(range(len(_VALUES)))


def test_dead_letters_keep_the_bytes(spark: SparkSession) -> None:
    values: dict[str, bytes | None] = {"bad": bytes(range(256))}
    frame = _decoded(spark, values).withColumn("batch_id", F.lit(7))
    (letter,) = unified.dead_letters(frame).collect()
    assert (letter["batch_id"], letter["offset"], letter["value"]) == (7, 0, bytearray(range(256)))


def test_watermark_time_is_the_physical_part(spark: SparkSession) -> None:
    frame = _decoded(spark, {"mark": _with(_WATERMARK, _tidb={"watermarkTs": (1_700_000_000_123 << 18) + 5})})
    frame = frame.withColumn("batch_id", F.lit(1))
    ((time,),) = unified.watermarks(frame).select(F.unix_millis("watermark_time")).collect()
    assert time == 1_700_000_000_123


def test_decoding_is_compiled(spark: SparkSession) -> None:
    """The JVM leaves methods of more than 8000 bytes uncompiled, which makes decoding half as fast."""
    columns = [
        F.col("id").cast("string").cast(field.dataType).alias(field.name) for field in RECORD if field.name != "headers"
    ]
    raw = spark.range(1).select(F.col("id").alias("batch_id"), *columns, F.lit(None).cast(HEADERS).alias("headers"))
    frame = ticdc.decoded(raw)
    plan = frame._jdf.queryExecution().debug().codegenToSeq()
    sizes = [int(size) for size in re.findall(r"ByteCodeStats\((\d+),", plan.toString())]
    assert sizes
    assert max(sizes) < 8000


# ---- counts


@pytest.mark.parametrize(
    ("values", "by_kind", "exact"),
    [
        (
            [_INSERT.encode(), _UPDATE.encode(), _DDL.encode(), _WATERMARK.encode(), None, b"", b"{"],
            {unified.ROW: 2, unified.DDL: 1, unified.WATERMARK: 1, unified.EMPTY: 2, unified.DEAD: 1},
            True,
        ),
        ([row("INSERT", "t", 1, _NEW, extension=False).encode()], {unified.ROW: 1}, False),
        ([_WATERMARK.encode(), row("INSERT", "t", 1, _NEW, extension=False).encode()], None, True),
        ([_with(_INSERT, data=None)], {unified.DEAD: 1}, False),
        ([], {}, False),
    ],
    ids=["each kind", "no extension", "only a watermark is exact", "a dead letter's commitTs does not count", "none"],
)
def test_batch_counts(
    values: list[bytes | None], by_kind: dict[str, int] | None, exact: bool, spark: SparkSession
) -> None:
    named = {str(place): value for place, value in enumerate(values)}
    counts = batch_counts(_decoded(spark, named), len(values))
    if by_kind is not None:
        assert counts.by_kind == dict.fromkeys(unified.KINDS, 0) | by_kind
    assert (counts.records, counts.exact_ts, counts.balanced) == (len(values), exact, True)


@pytest.mark.parametrize("records", [2, 4])
def test_counts_that_do_not_add_up(records: int) -> None:
    by_kind = dict.fromkeys(unified.KINDS, 0) | {unified.ROW: 2, unified.DEAD: 1}
    assert not BatchCounts(records, by_kind, exact_ts=True).balanced
