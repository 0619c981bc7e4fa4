"""Topics of Flink: the pipeline declares their table, the record's timestamp is the time of a change."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decode import decode_with_reasons
from cdc_pipeline.dialects.decoded_tables import DecodeSettings
from cdc_pipeline.dialects.topic_tables import TABLE_EXPECTATION, with_tables
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.model.state import UNSEEN_START
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline_tests.support.dialect_cases import raw_records
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import EPOCH_MS, Topic

_NO_TYPE = "its type is not known, values are kept as text"
_TABLES = {"flink": "shop.orders", "cdc": "shop.items"}
_KEYS = {"shop.orders": ("id",), "shop.items": ("sku",)}


def _sql(kind: str, **row: object) -> str:
    """As the format canal-json of Flink SQL writes a change."""
    return json.dumps({"data": [row], "type": kind}, ensure_ascii=False)


def _cdc(kind: str, row: dict[str, object], old: dict[str, object] | None = None, table: str = "items") -> str:
    """As the Kafka sink of a Flink CDC pipeline writes a change."""
    before = None if old is None else [old]
    message = {"old": before, "data": [row], "type": kind, "database": "shop", "table": table, "pkNames": ["sku"]}
    return json.dumps(message)


_OF_SQL = (
    _sql("INSERT", id=1, total=12.50, paid=True, note="é"),
    _sql("INSERT", id=2, total=9007199254740993, paid=None, note=None),
    _sql("DELETE", id=1, total=12.50, paid=True, note="é"),
    _sql("INSERT", id=1, total=13, paid=False, note="changed"),
    _sql("INSERT", id=3, total=0, paid=False, note="gone"),
    _sql("DELETE", id=3, total=0, paid=False, note="gone"),
)
_OF_CDC = (
    _cdc("INSERT", {"sku": "a", "left": 5}),
    _cdc("INSERT", {"sku": "b", "left": 6}),
    _cdc("UPDATE", {"sku": "A", "left": 4}, {"sku": "a", "left": 5}),
    _cdc("DELETE", {"sku": "b", "left": 6}),
    _cdc("INSERT", {"sku": "x", "left": 0}, table="others"),
)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[LakePaths, CutReport]:
    folder = tmp_path_factory.mktemp("flink")
    for name, messages in (("flink", _OF_SQL), ("cdc", _OF_CDC)):
        topic = Topic(name)
        # a change and its second half have one timestamp
        for place, message in enumerate(messages):
            topic.send(message, sent=EPOCH_MS + place // 2)
        topic.write(folder / "captures", f"{name}.jsonl")
    paths = LakePaths(str(folder / "lake"), "shop")
    return paths, ingest(spark, paths, folder / "captures", keys=_KEYS, tables=_TABLES)


def _rows(spark: SparkSession, report: CutReport, table: str) -> list[tuple[object, ...]]:
    (entry,) = (entry for entry in report.mirrors if str(entry.name) == table)
    mirror = spark.read.format("delta").load(entry.path)
    return sorted(tuple(row) for row in mirror.select(*(n for n in mirror.columns if not n.startswith("_"))).collect())


def test_a_topic_is_one_table(lake: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    _, report = lake
    assert _rows(spark, report, "shop.orders") == [
        ("1", "13", "false", "changed"),
        ("2", "9007199254740993", None, None),
    ]
    assert _rows(spark, report, "shop.items") == [("A", "4")]


def test_rows_from_before_the_topic_and_missing_types_are_gaps(lake: tuple[LakePaths, CutReport]) -> None:
    _, report = lake
    texts = {str(entry.name): set(entry.gaps) for entry in report.mirrors}
    assert texts == {
        name: {UNSEEN_START.detail, *(f"column {column}: {_NO_TYPE}" for column in columns)}
        for name, columns in {"shop.orders": ("id", "total", "paid", "note"), "shop.items": ("sku", "left")}.items()
    }


def test_times_are_those_of_the_records(lake: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    paths, _ = lake
    log = spark.read.format("delta").load(paths.table("change_log")).where("topic = 'flink'")
    found = [tuple(row) for row in log.orderBy("offset").select("es", "exact_ts", "dialect").collect()]
    assert found == [(EPOCH_MS + place // 2, False, "canal") for place in range(len(_OF_SQL))]


def _decoded(spark: SparkSession, tables: dict[str, str], *values: str) -> DataFrame:
    records = raw_records(spark, {"flink": [(0, place, value) for place, value in enumerate(values)]}).withColumn(
        "timestamp", F.timestamp_millis(F.lit(EPOCH_MS))
    )
    return decode_with_reasons(with_tables(records, tables))


@pytest.mark.parametrize(
    ("value", "tables"),
    [
        (_OF_SQL[0], {}),
        (_OF_SQL[0], {"other": "shop.orders"}),
        (_OF_CDC[0], {"flink": "shop.orders"}),
    ],
    ids=["no table is declared", "of another topic", "another table"],
)
def test_the_dead_letter_names_the_setting(value: str, tables: dict[str, str], spark: SparkSession) -> None:
    row = _decoded(spark, tables, value).first()
    assert row is not None
    assert (row["kind"], row["rule"], row["reason"]) == (
        unified.DEAD,
        "table_is_declared",
        f"expected: {TABLE_EXPECTATION}",
    )


def _sent_rows(spark: SparkSession, *values: str) -> list[tuple[dict[str, object] | None, dict[str, object] | None]]:
    """Before and after image of each row of a message."""
    frame = _decoded(spark, {"flink": "shop.items"}, *values).orderBy("offset").select("rule", "rows")
    found = frame.collect()
    assert [row["rule"] for row in found] == [None] * len(values)
    return [(pair["before"], pair["after"]) for row in found for pair in row["rows"]]


def test_a_column_that_an_update_leaves_out_is_null(spark: SparkSession) -> None:
    """Flink CDC with `canal-json.encode.ignore-null-fields`. Up to the fix the mirror kept the old value, without a gap."""
    whole: dict[str, object] = {"sku": "a", "name": "z", "left": "1"}
    sparse = {"sku": "a", "left": "1"}
    two = json.loads(_cdc("UPDATE", sparse, whole))
    two |= {"old": [whole, sparse], "data": [sparse, whole]}
    # not of Flink: `isDdl` and no types
    other = json.loads(_cdc("UPDATE", sparse, whole)) | {"isDdl": False, "es": EPOCH_MS}
    null = {**sparse, "name": None}
    assert _sent_rows(spark, _cdc("UPDATE", sparse, whole), json.dumps(two), json.dumps(other)) == [
        (whole, null),
        (whole, null),
        (sparse, whole),
        (whole, sparse),
    ]


_LONG = "x" * 500_000 + '1.5,"n":2.5' + "\\" * 1_000 + "é" * 500_000


@pytest.mark.parametrize(
    "sent",
    [
        {"n": "123456789012345678.91"},
        {"n": "12345678.91", "m": "-0.10"},
        {"n": "1E+2", "m": "-1.5e-300"},
        {"n": "0.1", "m": "9007199254740993", "t": '"12:30.5,"'},
        {"n": "123456789012345678.91", "t": json.dumps(_LONG)},
        {"n": "123456789012345678.91", "t": json.dumps(_LONG, ensure_ascii=False)},
        # values that are no numbers stay as they are
        {"n": "1.50", "t": '[1.5,{"a":2.5}]', "s": '{"a":{"b":[3.5]},"c":"}1.5"}', "m": "2.50"},
        # too deep to be read again
        {"n": "1.5", "t": "[" * 50 + "1.5" + "]" * 50},
    ],
    ids=["digits", "scale", "exponents", "beside text", "escapes", "a long text", "containers", "deep"],
)
def test_numbers_have_the_digits_that_flink_prints(sent: dict[str, str], spark: SparkSession) -> None:
    row = "{" + ", ".join(f'"{name}" :{text}' for name, text in sent.items()) + "}"
    value = f'{{"old": null,"data":[{row},{row}],"type":"INSERT"}}'
    wanted = {name: json.loads(text) if text.startswith('"') else text for name, text in sent.items()}
    assert _sent_rows(spark, value) == [(None, wanted)] * 2
    types = f'"isDdl":false,"es":{EPOCH_MS},"mysqlType":{{"n":"decimal(38,2)"}},"sqlType":{{"n":3}}'
    named = f'{{"old": [{row}],{types},"database":"shop","table":"t","data":[{row}],"type":"UPDATE"}}'
    assert _sent_rows(spark, named) == [(wanted, wanted)], "as InLong writes a row"


def test_a_rebuild_decodes_with_the_declared_tables(lake: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    paths, _ = lake
    maker = CutMaker(Lake(spark, paths), "again", "UTC", 2, lambda _: None, _KEYS)
    report = Rebuilder(maker, DecodeSettings(tables=_TABLES)).rebuild()
    assert report.all_equal, report.tables
