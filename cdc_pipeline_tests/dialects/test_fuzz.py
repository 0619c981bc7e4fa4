"""10,000 damaged records: each has exactly one kind, and no stage raises an exception.

Hypothesis draws the first 2,500, always the same: valid messages of the three dialects, most of them damaged once or twice.
The others are these with some bytes changed. The first ones also go through the complete pipeline: their names come from
small pools, so that a cut has few steps.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import find_breaches
from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.dialects.counts import BatchCounts, ObservedFrame
from cdc_pipeline.dialects.decode import EXPECTATIONS, decode, decode_with_reasons
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.dialects.unified import DEAD, EMPTY, KINDS, OTHER_DDL, ROW, XA
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline.sources.records import RECORD
from cdc_pipeline_tests.support.messages import EPOCH_MS, record_line, tso, watermark

_RECORDS = 10_000
_DRAWN = 2500
_PARTITIONS = 2
_END = 10_000  # seconds: later than all valid commits

# ---- valid messages

_TABLES = [f"t{place}" for place in range(6)]
_TYPES = {
    "c0": "int",
    "c1": "varchar",
    "c2": "decimal(12,2)",
    "c3": "datetime",
    "c4": "blob",
    "c5": "enum('a','b')",
    "c6": "json",
    "c7": "decimal",
}
_WIRES = dict(zip(_TYPES, ("LONG", "STRING", "DOUBLE", "DATE", "BYTES", "STRING", "STRING", "BOOLEAN"), strict=True))
_COLUMNS = [("c0",), ("c0", "c1"), ("c0", "c1", "c2", "c3"), ("c0", "c4", "c5"), tuple(_TYPES), ("c1", "c7", "c0")]
_ODD_TYPES = [
    *(
        "",
        " ",
        "INT(",
        "decimal(99,50)",
        "decimal(5,40)",
        "decimal(0)",
        "decimal(38,38)",
        "bit(999999)",
        "enum('a",
        "set()",
    ),
    *(
        "vector(2)",
        "GEOMETRY",
        "a word",
        "unsigned",
        "\x00",
        "😀",
        "int unsigned zerofill",
        "'",
        "varchar(9999999999999)",
    ),
]
_TEXTS = [
    *(None, "", "0", "1", "2", "-7", "1.50", "1e400", "NaN", "9" * 40, "0." + "1" * 45, "2024-02-30 12:00:00", "true"),
    *("2024-02-29 23:59:59.999", "0000-00-00 00:00:00", "\x00", "\xff", "é😀", '{"a": [1]}', "QUI=", "/w==", "a", "'"),
    *("1590315269000", "-1", "9223372036854775807", "253402300800000", "\ufffd", "JSON_SET(`c6`, '$.a', 1)", "null"),
]
_STATEMENTS = [
    *(
        "ALTER TABLE `t0` ADD COLUMN `c7` INT",
        "ALTER TABLE t1 ADD",
        "CREATE TABLE t2 (",
        "DROP",
        ";",
        "\x00",
        "'",
        "/*",
    ),
    *(
        "DROP TABLE IF EXISTS `nothing`",
        "GRANT ALL ON *.* TO x",
        "RENAME TABLE",
        "ALTER TABLE `t3` RENAME COLUMN x TO y",
    ),
    *(
        "CREATE TABLE `t5` (`c0` INT PRIMARY KEY, `c1` DECIMAL(70,2), `c2` BIT(99))",
        "ALTER TABLE t4 ADD d DECIMAL(5,40)",
    ),
    *(
        "ALTER TABLE t4 ADD COLUMN c9 VARCHAR(5) DEFAULT (uuid())",
        "TRUNCATE",
        "TRUNCATE TABLE t1",
        "A" * 5000,
        "(" * 3000,
    ),
]
_SMALL = st.integers(0, 50)


@st.composite
def _rows(draw: st.DrawFn) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """A row and its before image."""
    names = draw(st.sampled_from(_COLUMNS))
    texts = st.sampled_from(_TEXTS)
    data = {name: draw(texts) if name != "c0" else str(draw(_SMALL)) for name in names}
    return data, {**data, names[-1]: draw(texts)}


@st.composite
def _canal_json(draw: st.DrawFn) -> dict[str, Any]:
    """A message of TiCDC, with or without the extension, or of Canal."""
    kind, step = draw(st.sampled_from(("INSERT", "UPDATE", "DELETE"))), draw(st.integers(1, 500))
    data, old = draw(_rows())
    types = {name: _TYPES[name] for name in data}
    if draw(_SMALL) == 0:
        types[draw(st.sampled_from(sorted(types)))] = draw(st.sampled_from(_ODD_TYPES))
    message: dict[str, Any] = {
        "id": 0,
        "database": "db",
        "table": draw(st.sampled_from(_TABLES)),
        "pkNames": ["c0"] if "c0" in data else [],
        "isDdl": False,
        "type": kind,
        "es": tso(step) >> 18,
        "ts": tso(step + 1) >> 18,
        "sql": "",
        "sqlType": dict.fromkeys(data, 12),
        "mysqlType": types,
        "old": [old] if kind == "UPDATE" else None,
        "data": [data],
    }
    flavour = draw(st.integers(0, 2))
    if flavour == 0:
        message["_tidb"] = {"commitTs": tso(step)}
    elif flavour == 1:
        copies = draw(st.integers(1, 3))
        message.update(id=7, data=[data] * copies, old=message["old"] and [old] * copies, gtid="")
    event = draw(st.integers(0, 150))
    if event == 0:
        rows = {"pkNames": None, "sqlType": None, "mysqlType": None, "data": None, "old": None}
        message.update(isDdl=True, type="ALTER", sql=draw(st.sampled_from(_STATEMENTS)), **rows)
    elif event == 1:
        return dict(json.loads(watermark(step)))
    elif event == 2:
        message.update(
            id=7, type=draw(st.sampled_from(("QUERY", "XACOMMIT", "XAROLLBACK", "DELETE"))), data=None, old=None
        )
        message.update(sql="XA ROLLBACK X'01',X'',1")
    return message


@st.composite
def _dataworks(draw: st.DrawFn) -> dict[str, Any]:
    op = draw(st.sampled_from(("INSERT", "UPDATE_BEFOR", "UPDATE_AFTER", "DELETE", "INSERT", "MHEARTBEAT", "GTID")))
    step = draw(st.integers(1, 500))
    data, old = draw(_rows())
    images = {"INSERT": (None, data), "UPDATE_BEFOR": (old, None), "UPDATE_AFTER": (old, data), "DELETE": (data, None)}
    before, after = images.get(op, (None, None))
    if draw(st.integers(0, 200)) == 0:
        op, before, after = draw(st.sampled_from(("ALTER", "ERASE", "XAROLLBACK"))), None, None
    return {
        "schema": {
            "dataColumn": [{"name": name, "type": _WIRES[name]} for name in data],
            "primaryKey": ["c0"] if "c0" in data else [],
            "source": {
                "dbType": "mysql",
                "dbName": "db",
                "schemaName": None,
                "tableName": draw(st.sampled_from(_TABLES)),
            },
        },
        "payload": {
            "before": before and {"dataColumn": before},
            "after": after and {"dataColumn": after},
            "sequenceId": str(step),
            "op": op,
            "timestamp": {"eventTime": EPOCH_MS + step, "systemTime": EPOCH_MS},
            "ddl": {"text": draw(st.sampled_from(_STATEMENTS))} if op == "ALTER" else None,
        },
        "version": "1.0.0",
    }


# ---- damage

_JUNK: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, 10**18, 2**63, -(10**40), 1e300, "", "x", "INSERT", "9" * 40, "\x00", "true"),
    *([], {}, [None], [[]], [{}], [{}, None], {"a": {"b": [1]}}, [["c0"]], {"c0": {"x": 1}}, [{"c0": [1]}], ["c0"]),
]


# each new name creates a mirror
_NAMES = ("database", "table", "dbName", "tableName", "schemaName")
_NO_NAMES: list[Any] = [None, "", 5, "t1"]


def _places(message: object) -> list[tuple[Any, Any]]:
    """Every container in the message with each of its keys or indexes."""
    keys = (
        list(message) if isinstance(message, dict) else list(range(len(message))) if isinstance(message, list) else []
    )
    found = [(message, key) for key in keys]
    return found + [place for _, key in found for place in _places(message[key])]  # type: ignore[index]


@st.composite
def _changed(draw: st.DrawFn) -> bytes:
    """A message with up to two of its fields removed, replaced or repeated."""
    message = json.loads(json.dumps(draw(st.one_of(_canal_json(), _canal_json(), _dataworks()))))
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        places = _places(message)
        if not places:
            break
        inside, key = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.integers(0, 3))
        if how == 0:
            del inside[key]
        elif how == 1 and isinstance(inside, list):
            inside.append(copy.deepcopy(inside[key]))
        else:
            inside[key] = copy.deepcopy(draw(st.sampled_from(_NO_NAMES if key in _NAMES else _JUNK)))
    return json.dumps(message, ensure_ascii=draw(st.booleans())).encode()


_PIECES = [
    *(
        b'"id":1,"id":0,',
        b'"type":"DELETE",',
        b'"_end":false,',
        b'"\\ud800":1,',
        b'"x":"\\udc00\\ud800",',
        b'"x":"\\ud83d\\ude00",',
    ),
    *(
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b'"',
        b"\\",
        b"\n",
        b"NaN",
        b"1e999",
        b"'",
        b"//",
    ),
    *(
        b'"y":' + b"9" * 400 + b",",
        b"\\u0000",
        b"\\ud800",
        b"\\uzzzz",
        b"\xef\xbb\xbf",
        b'"_tidb":5,',
        b'"payload":[],',
    ),
]


@st.composite
def _torn(draw: st.DrawFn) -> bytes:
    """A message whose bytes are truncated, or have others inserted."""
    value = draw(_changed())
    place = draw(st.one_of(st.just(1), st.integers(0, len(value))))
    how = draw(st.integers(0, 5))
    if how == 0:
        return value[:place]
    if how == 1:
        return draw(st.sampled_from((b"[" + value + b"]", value + value, value + b" \n", b" " + value, value + b"x")))
    if how == 2:
        return value[:place] + draw(st.binary(max_size=8)) + value[place:]
    return value[:place] + draw(st.sampled_from(_PIECES)) + value[place:]


_NO_MESSAGES = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        (b"", b"null", b"{}", b"[]", b"true", b"0", b'""', b" ", b'{"payload":{}}', b'{"_tidb":{}}', b'{"id":0}')
    ),
)
_ONE = st.one_of(_changed(), _changed(), _changed(), _torn(), _NO_MESSAGES)


def _nested(depth: int, opening: bytes, closing: bytes) -> bytes:
    return json.dumps(_PLAIN).encode()[:-1] + b',"x":' + opening * depth + b"1" + closing * depth + b"}"


_PLAIN: dict[str, Any] = {
    "id": 0,
    "database": "db",
    "table": "t0",
    "pkNames": ["c0"],
    "isDdl": False,
    "type": "INSERT",
    "es": tso(1) >> 18,
    "ts": tso(1) >> 18,
    "sql": "",
    "sqlType": {"c0": 4},
    "mysqlType": {"c0": "int", "c1": "varchar"},
    "old": None,
    "data": [{"c0": "1", "c1": "x"}],
    "_tidb": {"commitTs": tso(1)},
}
_BIG = 20 * 1024 * 1024
_SPECIAL = [
    *(_nested(depth, b"[", b"]") for depth in (2000, 10_000)),
    *(_nested(2000, opening, closing) for opening, closing in ((b'{"a":', b"}"), (b'[{"a":', b"}]"))),
    json.dumps({**_PLAIN, "data": [{"c0": "77", "c1": "y" * _BIG}]}).encode(),
    b'{"id":0,"x":"' + b"z" * _BIG,
]


def _drawn() -> list[bytes | None]:
    found: list[bytes | None] = list(_SPECIAL)

    @settings(
        max_examples=_DRAWN, database=None, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(_ONE)
    def draw(value: bytes | None) -> None:
        found.append(value)

    draw()
    return found


def _bytes_changed(value: bytes, other: bytes, source: random.Random) -> bytes:
    """The value with a byte changed, a piece inserted, or the end of another value."""
    place = source.randrange(len(value) + 1)
    how = source.randrange(4)
    if how == 0:
        return value[:place] + bytes([source.randrange(256)]) + value[place + 1 :]
    if how == 1:
        return value[:place] + source.choice(_PIECES) + value[place:]
    if how == 2:
        return value[:place] + other[source.randrange(len(other) + 1) :]
    return source.randbytes(source.randrange(1, 60))


@pytest.fixture(scope="module")
def values() -> list[bytes | None]:
    """The records. Watermarks replace the last two drawn ones, so that a cut is possible."""
    drawn = [*_drawn()[: _DRAWN - _PARTITIONS], *[watermark(_END).encode()] * _PARTITIONS]
    small = [value for value in drawn if value and len(value) < _BIG]
    source = random.Random("fuzz")
    return drawn + [
        _bytes_changed(source.choice(small), source.choice(small), source) for _ in range(_RECORDS - len(drawn))
    ]


def _place(number: int) -> tuple[int, int]:
    """Partition and offset of the n-th record."""
    return number % _PARTITIONS, number // _PARTITIONS


@pytest.fixture(scope="module")
def raw(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    records = [
        ("t", *_place(number), _sent(number, value), None, None if value is None else bytearray(value), None, None)
        for number, value in enumerate(values)
    ]
    return spark.createDataFrame(records, RECORD).withColumn("batch_id", F.lit(1).cast("bigint")).localCheckpoint()


def _sent(number: int, value: bytes | None) -> datetime:
    """The timestamp of the record in its capture line."""
    ms = json.loads(_line(number, value))["ts"]
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def _first(raw: DataFrame) -> DataFrame:
    """The records that go through the complete pipeline."""
    return raw.where(F.col("offset") < _DRAWN // _PARTITIONS)


def _is_object(value: bytes) -> bool:
    """Whether Python reads the value as one JSON object in UTF-8 without unpaired surrogates."""
    try:
        found = json.loads(value.decode())
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


@pytest.mark.jvm  # it starts none, but to draw the records once more takes as long as all other tests of a stage
def test_there_are_enough_and_they_are_various(values: list[bytes | None], counted: Callable[[str, int], None]) -> None:
    counted("records fuzzed", len(values))
    assert len(values) == _RECORDS
    assert len(set(values)) > _RECORDS * 0.8
    assert None in values
    assert b"" in values
    assert sum(len(value or b"") > _BIG for value in values) == 2


def test_each_record_is_one_thing_or_a_dead_letter_with_a_reason(raw: DataFrame, values: list[bytes | None]) -> None:
    rows = (
        decode_with_reasons(raw)
        .select("partition", "offset", "kind", "rule", "reason", F.size("rows").alias("rows"), F.col("value").isNull())
        .collect()
    )
    assert sorted((row["partition"], row["offset"]) for row in rows) == sorted(map(_place, range(len(values))))
    assert {row["kind"] for row in rows} <= set(KINDS)
    assert {row["rule"] for row in rows} <= {None, *EXPECTATIONS}
    kinds = {row["kind"] for row in rows}
    assert set(KINDS) - kinds <= {XA, OTHER_DDL}
    odd = []
    for row in rows:
        value = values[row["offset"] * _PARTITIONS + row["partition"]]
        dead = row["kind"] == DEAD
        if dead != (row["rule"] is not None) or dead != bool(row["reason"]):
            odd.append(("reason", row))
        if (row["kind"] == EMPTY) != (not value):
            odd.append(("empty", row))
        if value and not dead and not _is_object(value):
            odd.append(("no object", row))
        if row["kind"] == ROW and not row["rows"] > 0:
            odd.append(("no rows", row))
    assert odd == []


@pytest.mark.parametrize("dialect", ["auto", "ticdc", "canal", "dataworks"])
def test_counts_balance(raw: DataFrame, values: list[bytes | None], dialect: Any) -> None:
    observed = ObservedFrame(decode(raw, dialect))
    observed.frame.write.format("noop").mode("overwrite").save()
    counts = observed.counts(len(values))
    assert counts.is_balanced
    assert counts.by_kind[EMPTY] == sum(not value for value in values)


# ---- the complete pipeline


def _line(number: int, value: bytes | None) -> str:
    partition, offset = _place(number)
    try:
        return record_line(None if value is None else value.decode(), "t", partition, offset)
    except UnicodeDecodeError:
        record = json.loads(record_line(None, "t", partition, offset))
        return json.dumps({**record, "payload_base64": base64.b64encode(value or b"").decode()})


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, values: list[bytes | None]
) -> tuple[LakePaths, BatchCounts]:
    """All records ingested and decoded."""
    folder: Path = tmp_path_factory.mktemp("fuzz")
    captures = folder / "captures"
    captures.mkdir()
    lines = (_line(number, value) + "\n" for number, value in enumerate(values[:_DRAWN]))
    (captures / "all.jsonl").write_text("".join(lines), encoding="utf-8")
    paths = LakePaths(str(folder / "lake"), "shop")
    assert ingest_new_files(Lake(spark, paths), str(captures), "test").records == _DRAWN
    (batch,) = decode_batches(Lake(spark, paths))
    return paths, batch.counts


def test_raw_records_are_what_was_sent(
    spark: SparkSession, lake: tuple[LakePaths, BatchCounts], raw: DataFrame
) -> None:
    stored = spark.read.format("delta").load(lake[0].table("raw_topic_snapshot"))
    place = ["topic", "partition", "offset"]
    same = stored.alias("s").join(raw.alias("r"), place).where("s.value <=> r.value")
    assert same.count() == stored.count() == _first(raw).count()


def test_every_record_is_in_its_table(spark: SparkSession, lake: tuple[LakePaths, BatchCounts], raw: DataFrame) -> None:
    paths, counts = lake
    assert counts.is_balanced
    kinds = {row["kind"]: row["count"] for row in decode(_first(raw)).groupBy("kind").count().collect()}
    assert {kind: count for kind, count in counts.by_kind.items() if count} == kinds
    tables = {name: spark.read.format("delta").load(paths.table(name)) for name in TABLES}
    assert tables["change_log"].count() == counts.row_changes
    assert tables["change_log"].select("partition", "offset").distinct().count() == counts.by_kind[ROW]
    assert tables["watermarks"].count() == counts.by_kind["watermark"]
    letters = tables["dead_letters"].where("rule <> 'value_has_type'")
    assert letters.count() == counts.by_kind[DEAD]
    assert letters.where("coalesce(rule, '') = '' OR coalesce(reason, '') = ''").count() == 0


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_keep_their_contracts(spark: SparkSession, lake: tuple[LakePaths, BatchCounts], table: str) -> None:
    rows = spark.read.format("delta").load(lake[0].table(table)).select(*TABLES[table].to_schema().columns)
    assert find_breaches(rows.coalesce(1).persist(), TABLES[table]) == ()


@pytest.mark.long
def test_a_cut_is_made_of_it(spark: SparkSession, lake: tuple[LakePaths, BatchCounts]) -> None:
    report = CutMaker(Lake(spark, lake[0]), "test", "UTC", 2, print).advance()
    assert report.published
    totals = report.totals
    log = spark.read.format("delta").load(lake[0].table("change_log"))
    assert totals.changes + totals.pending == log.count()
    assert {entry.name.table for entry in report.mirrors} >= set(_TABLES)
