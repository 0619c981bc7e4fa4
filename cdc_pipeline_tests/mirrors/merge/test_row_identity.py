"""Two texts of one value are the same key and the same image: in one cut and in several, with a key and without."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.merge.row_identity import Identity
from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.model.table import Column, TableName
from cdc_pipeline.spark.small_frames import small_frame
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark

# column type → texts, each with its dialect and that dialect's encoding of the column, in groups of equal values
SAME: dict[str, list[list[tuple[str, ...]]]] = {
    "int": [[("7",), ("07",), ("+7",)], [("-7",)], [("0",), ("-0",), ("00",)]],
    "bigint unsigned": [[("18446744073709551615",), ("018446744073709551615",)], [("18446744073709551614",)]],
    "bit(64)": [[("18446744073709551615",)], [("1",), ("01",)]],
    "decimal(12,4)": [[("1",), ("1.0",), ("1.0000",), ("01.00",)], [("-1.0",)], [("0.0",), ("0",), ("-0.00",)]],
    "double": [[("1.5",), ("1.50",), ("15e-1",)], [("0",), ("-0.0",)]],
    "year": [[("0",), ("0000",)], [("2024",)]],
    "date": [[("2024-01-02",)], [("0000-00-00",)], [("2024-00-00",)]],
    "datetime(6)": [
        [("2024-01-02 03:04:05",), ("2024-01-02 03:04:05.000",), ("2024-01-02 03:04:05.000000",)],
        [("2024-01-02 03:04:05.1",), ("2024-01-02 03:04:05.100",)],
        [("0000-00-00 00:00:00",), ("0000-00-00 00:00:00.000",)],
    ],
    "timestamp(3)": [[("2024-01-02 03:04:05",), ("2024-01-02 03:04:05.000",)], [("2024-01-02 03:04:05.001",)]],
    "enum('a','b','2')": [
        [("1", "canal", ""), ("a", "dataworks", "STRING")],
        [("3", "canal", ""), ("2", "dataworks", "STRING")],
    ],
    "set('a','b')": [[("3", "canal", ""), ("a,b", "dataworks", "STRING")], [("1", "canal", "")]],
    "binary(3)": [[("a", "canal", ""), ("a\0\0", "ticdc", ""), ("YQAA", "dataworks", "BYTES")], [("YQ", "ticdc", "")]],
    "varchar(20)": [[("7",)], [("07",)], [("a",)], [("a ",)], [("A",)]],
}


@pytest.mark.parametrize("words", SAME)
@pytest.mark.parametrize("keyless", [False, True])
def test_texts_of_one_value_are_the_same(spark: SparkSession, words: str, keyless: bool) -> None:
    found = [(group, *text) for group, texts in enumerate(SAME[words]) for text in texts]
    padded = [(group, text, dialect or "ticdc") for group, text, dialect, *_ in [(*item, "", "")[:4] for item in found]]
    wires = {(item[2], item[3]) for item in found if len(item) > 2}
    named = tuple((dialect, {"c": wire} if wire else {}) for dialect, wire in sorted(wires))
    identity = Identity.for_columns((Column("c", type_or_text(words)),), named, "UTC", keyless=keyless)
    frame = small_frame(spark, padded, "same INT, text STRING, dialect STRING")
    rows = frame.select("same", identity.canonical(F.array("text"))[0].alias("identity")).distinct().collect()
    groups = {row["same"]: row["identity"] for row in rows}
    assert len(rows) == len(groups), rows
    if not keyless:
        assert len(set(groups.values())) == len(groups), rows
    else:
        # every date that no calendar has is NULL in the mirror
        shown = [value for value in groups.values() if value is not None]
        assert len(set(shown)) == len(shown), rows


def test_texts_of_plain_columns_are_taken_as_they_are() -> None:
    assert Identity.for_columns(
        (Column("c", type_or_text("varchar(20)")),), (("canal", {}),), "UTC", keyless=False
    ).is_plain
    assert not Identity.for_columns((Column("c", type_or_text("int")),), (), "UTC", keyless=False).is_plain
    sent = (("dataworks", {"c": "BYTES"}),)
    assert not Identity.for_columns((Column("c", type_or_text("varchar(20)")),), sent, "UTC", keyless=False).is_plain


@dataclass(frozen=True)
class Case:
    """Type of the column `k`; (op, text, value) of its changes, with a cut after each list; the rows at the end."""

    type: str
    first: list[tuple[str, str, str]]
    second: list[tuple[str, str, str]]
    rows: list[tuple[Any, str]]
    keyless: bool = False
    dead_letters: int = 0


CASES = {
    "a_key_in_two_spellings": Case(
        "INT",
        [("INSERT", "7", "a"), ("UPDATE", "07", "b"), ("INSERT", "8", "c"), ("DELETE", "08", "c")],
        [("UPDATE", "007", "d")],
        [("7", "d")],
    ),
    "a_decimal_key_with_another_scale": Case(
        "DECIMAL(12,2)", [("INSERT", "1.0", "a"), ("UPDATE", "1.00", "b")], [("DELETE", "1", "b")], []
    ),
    "a_key_with_and_without_a_fraction": Case(
        "DATETIME(6)",
        [("INSERT", "2024-01-02 03:04:05", "a"), ("UPDATE", "2024-01-02 03:04:05.000000", "b")],
        [("UPDATE", "2024-01-02 03:04:05.000", "c")],
        [("2024-01-02 03:04:05", "c")],
    ),
    "a_zero_date_is_a_key": Case(
        "DATE",
        [("INSERT", "0000-00-00", "a"), ("UPDATE", "0000-00-00", "b"), ("INSERT", "2024-01-02", "x")],
        [("UPDATE", "0000-00-00", "c")],
        [("2024-01-02", "x"), (None, "c")],
    ),
    "a_zero_date_that_goes": Case("DATE", [("INSERT", "0000-00-00", "a")], [("DELETE", "0000-00-00", "a")], []),
    "a_date_that_no_calendar_has_is_no_key": Case(
        "DATE",
        [("INSERT", "2024-00-00", "a"), ("INSERT", "2024-01-02", "x")],
        [],
        [("2024-01-02", "x")],
        dead_letters=1,
    ),
    "rows_without_a_key_that_are_equal_once_they_are_typed": Case(
        "DECIMAL(12,2)",
        [("INSERT", "1.0", "a"), ("INSERT", "1.00", "a"), ("INSERT", "1", "a")],
        [("DELETE", "1.00", "a"), ("DELETE", "1.0", "a"), ("INSERT", "01", "a")],
        [("1.00", "a"), ("1.00", "a")],
        keyless=True,
    ),
    "dates_that_the_mirror_cannot_tell_apart": Case(
        "DATE",
        [("INSERT", "0000-00-00", "a"), ("INSERT", "2024-00-00", "a"), ("INSERT", "0000-00-00", "b")],
        [("DELETE", "2024-00-00", "a")],
        [(None, "a"), (None, "b")],
        keyless=True,
    ),
}


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, way: str) -> LakePaths:
    return _told(spark, tmp_path_factory.mktemp(f"identity-{way}"))


def _told(spark: SparkSession, folder: Path) -> LakePaths:
    paths, topic = LakePaths(str(folder / "lake"), "shop"), Topic()
    for name, case in CASES.items():
        key = "" if case.keyless else ", PRIMARY KEY (k)"
        topic.send(ddl(f"CREATE TABLE {name} (k {case.type}, v VARCHAR(20){key})", 1, table=name, kind="CREATE"))
    for number in range(2):
        for name, case in CASES.items():
            for place, (op, text, value) in enumerate((case.first, case.second)[number]):
                image: dict[str, str | None] = {"k": text, "v": value}
                old = {**image, "v": "before"} if op == "UPDATE" else None
                types = {"k": case.type.lower(), "v": "varchar"}
                key = [] if case.keyless else ["k"]
                topic.send(row(op, name, 10 * number + 2 + place, image, old=old, types=types, key=key))
        topic.send(watermark(10 * number + 9)).write(folder / "captures", f"{number}.jsonl")
        ingest(spark, paths, folder / "captures")
    return paths


@pytest.mark.parametrize("name", CASES)
def test_a_mirror_has_each_row_once(ingested: LakePaths, spark: SparkSession, name: str) -> None:
    mirror = spark.read.format("delta").load(ingested.mirror(TableName("db", name)))
    found = [tuple(row) for row in mirror.select(F.col("k").cast("string"), "v").collect()]
    assert sorted(found, key=str) == sorted(CASES[name].rows, key=str)
    letters = spark.read.format("delta").load(ingested.table("dead_letters")).where(F.col("table") == name)
    assert letters.count() == CASES[name].dead_letters
