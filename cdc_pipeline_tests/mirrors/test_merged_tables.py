"""Tables that are merged into one mirror, in a lake: rows identified by their table, and what DDL on one of them does."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn
from cdc_pipeline.mirrors.model.masks import HASH
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.mirror_checks import mirror_checks
from cdc_pipeline_tests.support.lakes.selected import Ingested, Message
from cdc_pipeline_tests.support.messages import canal, canal_ddl, ddl, row

MERGED = TableSelection(
    routes=(
        Route("?.o[0-9]", "m.orders", merge=True),
        Route("?.bag", "m.bags", merge=True),
        Route("c.*", "other.{table}"),
    )
)
TYPES = {"id": "int", "v": "varchar", "w": "varchar", "n": "int"}
_TRACE = ("_commit_ts", "_topic", "_partition", "_offset")
Texts = dict[str, str | None]


def say(sql: str, step: int) -> Message:
    return ddl(sql, step, database="a"), 0


def put(table: str, step: int, *, old: Texts | None = None, kind: str = "INSERT", **data: str | None) -> Message:
    database, name = table.split(".")
    key = [] if name == "bag" else ["id"]
    types = {column: TYPES[column] for column in data}
    payload = row("UPDATE" if old else kind, name, step, data, old=old, types=types, key=key, database=database)
    return payload, 1 if database == "a" else 2


def rows(ingested: Ingested, table: str) -> tuple[str, list[tuple[str, ...]]]:
    """The columns of a mirror, without the trace, and its rows: the table's name first, then the texts ("-" for NULL)."""
    mirror = ingested.spark.read.format("delta").load(ingested.paths.mirror(TableName(*table.split("."))))
    columns = [name for name in mirror.columns if name not in _TRACE]
    assert columns[:2] == ["_source_database", "_source_table"]
    texts = (F.coalesce(F.col(quoted(name)).cast("string"), F.lit("-")) for name in columns)
    found = [tuple(found) for found in mirror.select(*texts).collect()]
    return " ".join(columns[2:]), sorted((f"{database}.{name}", *rest) for database, name, *rest in found)


_KEYED = "(id INT PRIMARY KEY, v VARCHAR(20))"
_TABLES = [
    *(say(f"CREATE TABLE {table} {_KEYED}", 1) for table in ("a.o1", "a.o2", "b.o1")),
    *(say(f"CREATE TABLE {table} (id INT, v VARCHAR(20))", 1) for table in ("a.bag", "b.bag")),
]
_FIRST: list[Message] = [
    *_TABLES,
    *(put("a.o1", 2, id="1", v="a"), put("a.o1", 2, id="2", v="b"), put("a.o2", 2, id="1", v="c")),
    *(put("b.o1", 2, id="1", v="d"), put("b.o1", 3, id="1", v="D", old={"v": "d"})),
    *(put("a.bag", 2, id="1", v="x"), put("a.bag", 2, id="1", v="x"), put("b.bag", 2, id="1", v="x")),
    put("a.bag", 3, kind="DELETE", id="1", v="x"),
    say("ALTER TABLE a.o1 ADD COLUMN n INT NOT NULL DEFAULT 7", 4),
    *(
        put("a.o1", 5, id="3", v="e", n="9"),
        put("b.o1", 5, id="2", v="f"),
        put("b.o1", 6, id="1", v="DD", old={"v": "D"}),
    ),
]
_SECOND: list[Message] = [
    say("ALTER TABLE a.o2 ADD COLUMN n INT NOT NULL DEFAULT 7", 12),
    *(put("a.o1", 13, id="8", v="goes", n="1"), say("TRUNCATE TABLE a.o1", 13), say("RENAME TABLE a.o2 TO a.o3", 14)),
    *(say("TRUNCATE TABLE a.bag", 13), put("a.bag", 14, id="9", v="y")),
    *(put("a.o1", 14, id="1", v="z", n="1"), put("a.o3", 15, id="2", v="g", n="5")),
    put("a.o3", 15, id="1", v="cc", n="7", old={"v": "c"}),
    *(
        say("ALTER TABLE a.o1 RENAME COLUMN v TO w", 16),
        say("DROP TABLE b.o1", 17),
        put("a.o1", 18, id="5", w="w", n="2"),
    ),
]


def test_three_tables_in_one_mirror(spark: SparkSession, tmp_path: Path) -> None:
    ingested = Ingested(spark, tmp_path, MERGED)
    report = ingested.send(_FIRST, 10)
    assert rows(ingested, "m.orders") == (
        "id v n",
        [
            *(("a.o1", "1", "a", "7"), ("a.o1", "2", "b", "7"), ("a.o1", "3", "e", "9"), ("a.o2", "1", "c", "-")),
            *(("b.o1", "1", "DD", "-"), ("b.o1", "2", "f", "-")),
        ],
    )
    assert rows(ingested, "m.bags") == ("id v", [("a.bag", "1", "x"), ("b.bag", "1", "x")])
    assert ingested.upstream("m.orders") == ["a.o1", "a.o2", "b.o1"]
    assert [entry.gaps for entry in report.mirrors] == [()] * 2

    report = ingested.send(_SECOND, 20)
    orders = (
        "id v w n",
        [
            *(("a.o1", "1", "-", "z", "1"), ("a.o1", "5", "-", "w", "2")),
            *(("a.o3", "1", "cc", "-", "7"), ("a.o3", "2", "g", "-", "5")),
        ],
    )
    assert rows(ingested, "m.orders") == orders
    assert rows(ingested, "m.bags") == ("id v", [("a.bag", "9", "y"), ("b.bag", "1", "x")])
    assert [entry.gaps for entry in report.mirrors] == [()] * 2
    assert [(check.passed, check.description) for check in mirror_checks(spark, ingested.paths)] == [(True, None)] * 3
    assert set(ingested.statuses().values()) == {"applied"}

    # all anew in one cut is the same
    again = Rebuilder(ingested.maker()).rebuild()
    assert again.all_equal, again
    assert again.cut_id is None


def test_a_default_that_reads_a_column_of_its_own_statement_is_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """The rows of one source table get all columns of a statement at once."""
    ingested = Ingested(spark, tmp_path, MERGED)
    ingested.send([*_TABLES, put("a.o1", 2, id="1", v="a")], 10)
    columns = "ADD COLUMN n INT DEFAULT 5, ADD COLUMN m INT DEFAULT (n + 1), ADD COLUMN k INT DEFAULT (id + 1)"
    report = ingested.send([say(f"ALTER TABLE a.o1 {columns}", 12)], 20)
    assert rows(ingested, "m.orders") == ("id v n m k", [("a.o1", "1", "a", "5", "-", "2")])
    gaps = [gap for entry in report.mirrors for gap in entry.gaps]
    assert gaps == ["column m is NULL in older rows of a.o1: its default reads n, which the statement changes too"]


def test_all_that_mirrors_carry_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """The same statements in merged mirrors that keep deleted rows, hash a column and compute two."""
    rules = ColumnRules(
        masks=(("m.orders", (("v", HASH),)),),
        salt="no salt is as good as this one",
        soft_delete=("m.*",),
        computed=(
            ("m.orders", (ComputedColumn("twice", "int", "n * 2"), ComputedColumn("hashed", "int", "length(v)"))),
            ("m.bags", (ComputedColumn("of", "string", "concat(_source_database, '.', id)"),)),
        ),
    )
    ingested = Ingested(spark, tmp_path, MERGED, rules)
    ingested.send(_FIRST, 10)
    report = ingested.send(_SECOND, 20)
    mirror = spark.read.format("delta").load(ingested.paths.mirror(TableName("m", "orders")))
    names = ["id", "length(v) AS v", "length(w) AS w", "n", "twice", "hashed", "_deleted"]
    found = mirror.selectExpr("concat(_source_database, '.', _source_table) AS t", *names).collect()
    assert sorted(map(tuple, found)) == [
        # TRUNCATE has taken the deleted ones; of the rename of v, w is masked too
        *(("a.o1", 1, None, 64, 1, 2, None, False), ("a.o1", 2, None, 64, 7, 14, None, True)),
        *(("a.o1", 3, None, 64, 9, 18, None, True), ("a.o1", 5, None, 64, 2, 4, None, False)),
        ("a.o1", 8, None, 64, 1, 2, None, True),
        # it was o2
        *(("a.o3", 1, 64, None, 7, 14, 64, False), ("a.o3", 2, 64, None, 5, 10, 64, False)),
        # DROP has taken them
        *(("b.o1", 1, 64, None, None, None, 64, True), ("b.o1", 2, 64, None, None, None, 64, True)),
    ]
    assert rows(ingested, "m.bags") == ("id v of", [("a.bag", "9", "y", "a.9"), ("b.bag", "1", "x", "b.1")])
    assert [(entry.rows, entry.gaps) for entry in report.mirrors] == [(2, ()), (4, ())]
    again = Rebuilder(ingested.maker()).rebuild()
    assert again.all_equal, again


def _canal(table: str, step: int, key: str, partition: int = 1) -> Message:
    database, name = table.split(".")
    keys = [] if name == "bag" else ["id"]
    return canal("INSERT", name, step, [{"id": key}], key=keys, types={"id": "int"}, database=database), partition


def test_a_stream_without_watermarks(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of one table that are ahead of its TRUNCATE, or behind it, and of others: what is late, a rebuild applies."""
    ingested = Ingested(spark, tmp_path, MERGED)

    def statement(sql: str, step: int) -> Message:
        return canal_ddl(sql, step, database="a"), 0

    tables = [statement(f"CREATE TABLE {table} (id INT PRIMARY KEY)", 1) for table in ("a.o1", "b.o1")]
    tables += [statement(f"CREATE TABLE {table} (id INT)", 1) for table in ("a.bag", "b.bag")]
    names = ("a.o1", "b.o1", "a.bag", "b.bag")
    at_first = [_canal(table, 2, "1") for table in names]
    ahead = [_canal(table, 6, "1" if "bag" in table else "2") for table in names]
    ingested.send([*tables, *at_first, *ahead], None)
    ingested.send([statement(f"TRUNCATE TABLE {table}", 4) for table in ("a.o1", "a.bag")], None)
    report = ingested.send([_canal(table, 3, "3", 2) for table in names], None)
    assert all("arrived after" in " ".join(entry.gaps) for entry in report.mirrors)
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    Rebuilder(ingested.maker()).rebuild()
    assert rows(ingested, "m.orders")[1] == [("a.o1", "2"), ("b.o1", "1"), ("b.o1", "2"), ("b.o1", "3")]
    assert rows(ingested, "m.bags")[1] == [("a.bag", "1"), ("b.bag", "1"), ("b.bag", "1"), ("b.bag", "3")]
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    report = ingested.maker().advance()
    assert [entry.gaps for entry in report.mirrors] == [()] * 2
