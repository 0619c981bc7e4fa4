"""Behavior of Canal and DataWorks that TiCDC does not have, from the message to the mirror."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import UNSEEN_LOAD
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, dataworks, ddl, row

_ID = {"id": "LONG", "v": "STRING"}
_INT = {"id": "int", "v": "varchar(20)"}


def values(spark: SparkSession, paths: LakePaths, table: str, *columns: str) -> list[tuple[Any, ...]]:
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
    return sorted((tuple(found) for found in mirror.select(*columns).collect()), key=str)


def _pair(step: int, before: dict[str, Any], after: dict[str, Any], table: str, **more: Any) -> tuple[str, str]:
    sequence = str(1_000_000 + step)
    return (
        dataworks("UPDATE_BEFOR", table, step, before=before, sequence=sequence, **more),
        dataworks("UPDATE_AFTER", table, step, after=after, sequence=sequence, **more),
    )


def test_an_update_split_over_two_batches(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """The row still exists after the first half, because upstream never had the table without it."""
    topic, folder = Topic(), tmp_path / "captures"
    keyed: dict[str, Any] = {"types": _ID, "key": ["id"]}
    keyless: dict[str, Any] = {"types": {**_ID, "#alibaba_rds_row_id#": "LONG"}}
    row_id = {"#alibaba_rds_row_id#": 1}
    topic.send(dataworks("INSERT", "k", 1, after={"id": 1, "v": "a"}, sequence="1000001", **keyed))
    topic.send(dataworks("INSERT", "n", 2, after={"id": 1, "v": "a", **row_id}, sequence="1000002", **keyless))
    key_change = _pair(3, {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, "k", **keyed)
    no_key = _pair(4, {"id": 1, "v": "a", **row_id}, {"id": 1, "v": "c", **row_id}, "n", **keyless)
    topic.send(key_change[0]).send(no_key[0]).write(folder, "1.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.totals.changes, report.totals.pending) == (2, 2)
    assert values(spark, paths, "k", "id", "v") == [(1, "a")]
    assert values(spark, paths, "n", "id", "v") == [(1, "a")]

    topic.send(key_change[1]).send(no_key[1]).write(folder, "2.jsonl")
    report = ingest(spark, paths, folder)
    assert (report.totals.changes, report.totals.pending) == (4, 0)
    assert values(spark, paths, "k", "id", "v") == [(2, "b")]
    assert values(spark, paths, "n", "id", "v") == [(1, "c")]
    assert lake_balance(Lake(spark, paths)).is_balanced


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[LakePaths, CutReport]:
    """One topic with records of all dialects and of no dialect."""
    folder = tmp_path_factory.mktemp("mixed")
    topic = Topic()
    topic.send(ddl("CREATE TABLE tidb (id INT PRIMARY KEY, v VARCHAR(20))", 1, table="tidb", extension=False))
    topic.send(canal_ddl("CREATE TABLE chain (id INT PRIMARY KEY, v VARCHAR(20))", 1, table="chain", kind="CREATE"))
    topic.send(canal_ddl("CREATE TABLE twice (id INT, v VARCHAR(20))", 1, table="twice", kind="CREATE"))
    topic.send(
        canal_ddl(
            "CREATE TABLE odd (id INT PRIMARY KEY, j JSON, t TEXT, l VARCHAR(9) CHARACTER SET latin1, b BINARY(4), "
            "g POINT, e ENUM('x','y'))",
            1,
            table="odd",
            kind="CREATE",
        )
    )
    topic.send(row("INSERT", "tidb", 2, {"id": "1", "v": "t"}, types=_INT, key=["id"], extension=False))
    topic.send(dataworks("INSERT", "dw", 2, after={"id": 2**53 + 1, "v": "d"}, types=_ID, key=["id"], sequence="5"))
    # records with a lower number that arrive later, as those of a full load beside its changes
    topic.send(dataworks("DELETE", "dw", 3, before={"id": 7, "v": "x"}, types=_ID, key=["id"], sequence="9"))
    topic.send(dataworks("INSERT", "dw", 4, after={"id": 7, "v": "x"}, types=_ID, key=["id"], sequence="6"))
    topic.send(dataworks("MHEARTBEAT", None, 4))
    rows = [{"id": str(number), "v": "v"} for number in (1, 2, 3)]
    topic.send(canal("INSERT", "chain", 3, rows, types=_INT, key=["id"]))
    moved: list[dict[str, str | None]] = [{"id": str(number), "v": "v"} for number in (4, 3, 2)]
    olds: list[dict[str, str | None]] = [{"id": str(number)} for number in (3, 2, 1)]
    topic.send(canal("UPDATE", "chain", 3, moved, old=olds, types=_INT, key=["id"]))
    topic.send(canal("INSERT", "twice", 3, [{"id": "1", "v": "a"}] * 3, types=_INT))
    topic.send(canal("DELETE", "twice", 3, [{"id": "1", "v": "a"}], types=_INT))
    # `old` of the second row has `v` only because it changed in the first row
    leaked: list[dict[str, str | None]] = [{"v": "a"}, {"v": "b"}]
    topic.send(canal("INSERT", "twice", 4, [{"id": "2", "v": "b"}], types=_INT))
    topic.send(
        canal(
            "UPDATE", "twice", 5, [{"id": "1", "v": "z"}, {"id": "9", "v": "b"}], old=[leaked[0], {"id": "2", "v": "b"}]
        )
    )
    odd: dict[str, str | None] = {
        "id": "1",
        "j": '{"Ã©": "ð\x9f\x98\x80"}',
        "t": "JSON_SET(is a text)",
        "l": "abc",
        "b": "\x01",
        "g": "\x00\x00\x00\x00\x01\xff",
        "e": "2",
    }
    types = {
        "id": "INT",
        "j": "json",
        "t": "TEXT",
        "l": "VARCHAR(9)",
        "b": "BINARY(4)",
        "g": "POINT",
        "e": "ENUM('x','y')",
    }
    sql_types = {"id": 4, "j": 2004, "t": 2005, "l": 12, "b": 2004, "g": 2004, "e": 4}
    topic.send(canal("INSERT", "odd", 6, [odd], types=types, sql_types=sql_types, key=["id"]))
    second = {**odd, "id": "2", "j": None, "l": "caf\ufffd"}
    topic.send(canal("INSERT", "odd", 7, [second], types=types, sql_types=sql_types, key=["id"]))
    third = {name: text for name, text in odd.items() if name != "t"} | {"id": "3", "l": None}
    topic.send(canal("INSERT", "odd", 8, [third], types=types, sql_types=sql_types, key=["id"]))
    no_key = {name: text for name, text in odd.items() if name != "id"}
    topic.send(canal("INSERT", "odd", 9, [no_key], types=types, sql_types=sql_types))
    topic.send(canal("INSERT", "half", 9, [{"id": "1", "v": "a"}], types=_INT, key=["id"]))
    topic.send(canal("INSERT", "half", 9, [{"id": "2"}], types={"id": "int"}, key=["id"]))
    # Canal has restarted with another table definition: the last message has values under wrong names
    shifted = "CREATE TABLE shifted (id INT PRIMARY KEY, v VARCHAR(20), n INT)"
    topic.send(canal_ddl(shifted, 9, table="shifted", kind="CREATE"))
    shifted_types = {"id": "INT", "v": "VARCHAR(20)", "n": "INT"}
    right, wrong = {"id": 4, "v": 12, "n": 4}, {"id": 4, "v": 4, "n": 12}
    for number, codes in (("1", right), ("2", right), ("3", wrong)):
        shifted_row: list[dict[str, str | None]] = [{"id": number, "v": "5", "n": "6"}]
        topic.send(canal("INSERT", "shifted", 9, shifted_row, types=shifted_types, sql_types=codes, key=["id"]))
    topic.send(canal("QUERY", "", 9, None, sql="INSERT INTO chain VALUES (1)", database=""))
    topic.send(canal("UPDATE", "twice", 9, None, sql="UPDATE twice SET v = 'lost'"))
    topic.send(None).send("").send("{").send(json.dumps({"another": "document"})).write(folder / "captures", "1.jsonl")
    paths = LakePaths(str(folder / "lake"), "shop")
    return paths, ingest(spark, paths, folder / "captures")


def test_each_dialect_reaches_its_mirror(mixed: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    paths, _ = mixed
    assert values(spark, paths, "tidb", "id", "v") == [(1, "t")]
    assert values(spark, paths, "dw", "id", "v") == [(2**53 + 1, "d")]
    assert values(spark, paths, "chain", "id", "v") == [(2, "v"), (3, "v"), (4, "v")]
    assert values(spark, paths, "twice", "id", "v") == [(1, "a"), (1, "z"), (9, "b")]


def test_values_of_canal(mixed: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    paths, _ = mixed
    found = values(spark, paths, "odd", "id", "j", "t", "l", F.hex("b").alias("b"), F.hex("g").alias("g"), "e")  # type: ignore[arg-type]
    assert found == [
        (1, '{"é": "😀"}', "JSON_SET(is a text)", "abc", "01000000", "0000000001FF", "y"),
        (2, None, "JSON_SET(is a text)", "caf\ufffd", "01000000", "0000000001FF", "y"),
        (3, '{"é": "😀"}', None, None, "01000000", "0000000001FF", "y"),
    ]


def test_uncertain_tables_have_gaps(mixed: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    paths, report = mixed
    gaps = {entry.name.table: entry.gaps for entry in report.mirrors}
    assert [gaps[table] for table in ("tidb", "chain")] == [(), ()]
    # no message of DataWorks shows that all rows from before its changes have been sent
    assert gaps["dw"] == (UNSEEN_LOAD.detail,)
    history = spark.read.format("delta").load(paths.table("ddl_history"))
    logged = history.where("table = 'twice' AND kind = 'statement'").first()
    assert logged is not None
    assert "a change was logged as a statement (binlog_format)" in logged["effect"]
    place = f"{logged['topic']}/{logged['partition']}@{logged['offset']}"
    assert gaps["twice"] == (f"a statement is not applied yet: see ddl_history at {place}",)
    starts = ("column l: the encoder has damaged its text", "1 row(s) with values", "rows came without some columns")
    # the definition shows what an INSERT without `t` means; `half` has no definition
    assert [any(gap.startswith(start) for gap in gaps["odd"]) for start in starts] == [True, True, False]
    assert gaps["shifted"] == (
        "sqlType contradicts mysqlType in some messages (v, n): values may be under wrong column names",
    )
    unseen = "no CREATE TABLE was seen: rows from before the stream began are missing"
    assert [gap.split(",")[0] for gap in gaps["half"]] == [unseen, starts[2]]


def test_each_record_is_counted(mixed: tuple[LakePaths, CutReport], spark: SparkSession) -> None:
    paths, _ = mixed
    batch = spark.read.format("delta").load(paths.table("batches")).first()
    assert batch is not None
    assert {kind: count for kind, count in batch["kinds"].items() if count} == {
        "row_change": 19,
        "ddl": 5,
        "heartbeat": 1,
        "query_text": 1,
        "statement": 1,
        "empty": 2,
        "dead_letter": 2,
    }
    assert batch["row_changes"] == 26
    dead_letters = spark.read.format("delta").load(paths.table("dead_letters"))
    found = {
        (dead_letter["rule"], dead_letter["table"], dead_letter["column"]) for dead_letter in dead_letters.collect()
    }
    assert found == {
        ("value_is_json_object", None, None),
        ("isDdl.not_null", None, "isDdl"),
        ("value_has_type", "odd", "id"),
    }
    assert lake_balance(Lake(spark, paths)).is_balanced


def test_canal_partitions_within_one_second(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """`es` is in whole seconds. Across partitions, the ms at which Canal built a message orders the changes."""

    def sent(message: str, ms: int) -> str:
        return json.dumps({**json.loads(message), "ts": json.loads(message)["ts"] + ms})

    def put(number: int) -> str:
        return canal("INSERT", "p", 2, [{"id": str(number), "v": "a"}], types=_INT, key=["id"])

    topic, folder = Topic(), tmp_path / "captures"
    create = canal_ddl("CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(20))", 2, table="p", kind="CREATE")
    topic.send(sent(create, 0), 0)
    topic.send(sent(put(1), 1), 1)
    topic.send(sent(canal_ddl("TRUNCATE p", 2, table="p", kind="TRUNCATE"), 2), 0)
    topic.send(sent(put(2), 3), 1).send(sent(put(5), 3), 2)
    moved = canal("UPDATE", "p", 2, [{"id": "3", "v": "a"}], old=[{"id": "2"}], types=_INT, key=["id"])
    topic.send(sent(moved, 4), 0)
    topic.write(folder, "1.jsonl")
    ingest(spark, paths, folder)
    assert values(spark, paths, "p", "id", "v") == [(3, "a"), (5, "a")]


# ---- databases other than MySQL, through DataWorks


def _of(kind: str, schema: str, message: str) -> str:
    document = json.loads(message)
    document["schema"]["source"] |= {"dbType": kind, "schemaName": schema}
    return json.dumps(document)


_OTHERS = {"PostgreSQL": "public", "SQLServer": "dbo", "Oracle": "HR"}
_ALTER = {
    "PostgreSQL": "ALTER TABLE public.t ADD COLUMN w integer",
    "SQLServer": "ALTER TABLE [dbo].[t] ADD [w] int",
    "Oracle": 'ALTER TABLE "HR"."t" ADD ("W" NUMBER)',
}


@pytest.fixture(scope="module")
def other_databases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[LakePaths, CutReport]:
    folder = tmp_path_factory.mktemp("others")
    topic = Topic()
    for index, (kind, schema) in enumerate(_OTHERS.items()):
        name = {"database": f"d{index}", "types": _ID, "key": ["id"]}
        first = dataworks("INSERT", "t", 1, after={"id": 1, "v": "a"}, sequence=f"{index}1", **name)  # type: ignore[arg-type]
        alter = dataworks("ALTER", "t", 2, sql=_ALTER[kind], sequence=f"{index}2", database=f"d{index}")
        later = dataworks("INSERT", "t", 3, after={"id": 2, "v": "b"}, sequence=f"{index}3", **name)  # type: ignore[arg-type]
        for message in (first, alter, later):
            topic.send(_of(kind, schema, message))
    # a table of MySQL with the same name: no statement of the other databases applies to it
    topic.send(dataworks("CREATE", "t", 1, sql="CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", sequence="1"))
    topic.send(dataworks("INSERT", "t", 2, after={"id": 1, "v": "m"}, types=_ID, key=["id"], sequence="2"))
    topic.write(folder / "captures", "1.jsonl")
    paths = LakePaths(str(folder / "lake"), "shop")
    return paths, ingest(spark, paths, folder / "captures")


def test_names_with_schemas_find_their_mirrors(
    other_databases: tuple[LakePaths, CutReport], spark: SparkSession
) -> None:
    paths, report = other_databases
    names = [TableName(f"d{index}.{schema}", "t") for index, schema in enumerate(_OTHERS.values())]
    assert {entry.name for entry in report.mirrors} == {*names, TableName("db", "t")}
    for name in names:
        rows = spark.read.format("delta").load(paths.mirror(name)).select("id", "v").collect()
        assert sorted(map(tuple, rows)) == [(1, "a"), (2, "b")]


def test_ddl_of_other_databases_is_recorded_on_its_table(
    other_databases: tuple[LakePaths, CutReport], spark: SparkSession
) -> None:
    paths, report = other_databases
    history = spark.read.format("delta").load(paths.table("ddl_history"))
    rows = {(row["kind"], row["database"], row["table"], row["status"]) for row in history.collect()}
    assert history.where("kind = 'other_ddl'").where("effect NOT LIKE '%not MySQL%'").isEmpty()
    assert rows == {
        ("ddl", "db", "t", "applied"),
        *(("other_ddl", f"d{index}.{schema}", "t", "not applied yet") for index, schema in enumerate(_OTHERS.values())),
    }
    with_gap = {entry.name.database for entry in report.mirrors if any("not applied yet" in gap for gap in entry.gaps)}
    assert with_gap == {f"d{index}.{schema}" for index, schema in enumerate(_OTHERS.values())}
    assert next(entry.gaps for entry in report.mirrors if entry.name.database == "db") == ()
