"""Names that statements, rows and definitions spell in different cases. Each case is a database with a topic of its own.

All cases are in one lake, which makes a cut after each slice. The last slice has no DDL.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry, published_entries
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, ddl, row

Sent = tuple[str, int]
"""A payload, whose database is the case's if it is `db`, and its partition."""


@dataclass(frozen=True)
class Case:
    """`slices`: the messages of up to three files. `tables`: mirror → columns, rows, and the word of each gap."""

    slices: tuple[list[Sent], ...]
    tables: dict[str, tuple[str, list[tuple[Any, ...]], tuple[str, ...]]]


def run(step: int, sql: str, table: str = "", database: str = "db") -> Sent:
    """DDL of Canal. `table`, `database`: as the statement spells them."""
    return canal_ddl(sql, step, table=table, database=database), 0


def put(step: int, table: str, data: dict[str, str | None], *, key: str = "id", partition: int = 0) -> Sent:
    types = {name: "int" if name.lower() == "id" else "varchar(20)" for name in data}
    return canal("INSERT", table, step, [data], types=types, key=[key] if key else None), partition


def change(step: int, table: str, data: dict[str, str | None], old: dict[str, str | None], *, key: str = "id") -> Sent:
    types = {name: "int" if name.lower() == "id" else "varchar(20)" for name in data}
    return canal("UPDATE", table, step, [data], old=[old], types=types, key=[key] if key else None), 0


def tidb(step: int, sql: str, table: str = "", database: str = "db") -> Sent:
    return _in_ms(ddl(sql, step, table=table, extension=False), database), 0


def tidb_put(step: int, table: str, data: dict[str, str | None], database: str = "db") -> Sent:
    types = {name: "int" if name.lower() == "id" else "varchar" for name in data}
    return _in_ms(row("INSERT", table, step, data, types=types, key=["id"], extension=False), database), 0


def _in_ms(payload: str, database: str) -> str:
    """The message with an `es` that is no whole second, as only TiCDC sends it."""
    message = json.loads(payload)
    return json.dumps(message | {"es": message["es"] + 7, "database": database})


_KEYED = "(id INT PRIMARY KEY, v VARCHAR(20))"

CASES = {
    # ---- lower_case_table_names=1
    "folded": Case(
        (
            [
                run(1, f"CREATE TABLE Orders {_KEYED}", "Orders"),
                run(2, f"CREATE TABLE Folded.Third {_KEYED}", "Third", "Folded"),
                run(3, f"CREATE TABLE Gone {_KEYED}", "Gone"),
                put(4, "gone", {"id": "1", "v": "a"}),
            ],
            [
                put(20, "orders", {"id": "1", "v": "a"}),
                run(21, "ALTER TABLE ORDERS ADD COLUMN n INT NOT NULL DEFAULT 7", "ORDERS"),
                run(22, "DROP TABLE `GONE`", "GONE"),
                run(23, "RENAME TABLE Orders TO Archive", "Archive"),
                put(24, "archive", {"id": "2", "v": "b", "n": "8"}),
            ],
            [put(40, "third", {"id": "1", "v": "a"}), put(41, "archive", {"id": "3", "v": "c", "n": "9"})],
        ),
        {
            "folded.archive": ("id v n", [(1, "a", 7), (2, "b", 8), (3, "c", 9)], ()),
            "folded.third": ("id v", [(1, "a")], ()),
        },
    ),
    "ahead": Case(
        (
            [
                put(2, "orders", {"id": "1", "v": "a"}, partition=1),
                run(1, f"CREATE TABLE Moved {_KEYED}", "Moved"),
                put(2, "moved", {"id": "1", "v": "a"}, partition=1),
                run(9, "ALTER TABLE MOVED RENAME COLUMN V TO w, ADD COLUMN x INT", "MOVED"),
                run(1, f"CREATE TABLE Orders {_KEYED}", "Orders"),
                put(5, "moved", {"id": "2", "v": "b"}, partition=1),
                put(30, "orders", {"id": "2", "v": "b"}, partition=1),
                put(31, "moved", {"id": "3", "w": "c", "x": "1"}, partition=1),
            ],
        ),
        {
            "ahead.orders": ("id v", [(1, "a"), (2, "b")], ()),
            "ahead.moved": ("id w x", [(1, "a", None), (2, "b", None), (3, "c", 1)], ()),
        },
    ),
    # ---- lower_case_table_names=0, but not `case_sensitive`: one mirror, with a gap
    "two": Case(
        (
            [run(1, f"CREATE TABLE Orders {_KEYED}", "Orders"), run(1, f"CREATE TABLE orders {_KEYED}", "orders")]
            + [put(2, "Orders", {"id": "1", "v": "A"}), put(2, "orders", {"id": "1", "v": "a"})],
            [run(20, "ALTER TABLE Orders ADD COLUMN n INT", "Orders"), run(21, "TRUNCATE TABLE orders", "orders")]
            + [put(22, "orders", {"id": "2", "v": "b"}), put(22, "Orders", {"id": "2", "v": "B", "n": "2"})],
        ),
        {"two.orders": ("id v n", [(2, "B", 2)], ("case",))},
    ),
    # ---- TiDB: after a RENAME it sends the schema in lower case until the next other DDL of the table
    "shopx": Case(
        (
            [
                tidb(1, f"CREATE TABLE `ShopX`.`Bills` {_KEYED}", "Bills", "ShopX"),
                tidb_put(2, "Bills", {"id": "1", "v": "a"}, "ShopX"),
                tidb(3, "RENAME TABLE `ShopX`.`Bills` TO `ShopX`.`Invoices`", "Invoices", "ShopX"),
                tidb_put(4, "Invoices", {"id": "2", "v": "b"}, "shopx"),
                tidb_put(5, "Unseen", {"id": "1", "v": "a"}, "shopx"),
                tidb_put(6, "Unseen", {"id": "2", "v": "b"}, "ShopX"),
            ],
            [
                tidb_put(20, "Invoices", {"id": "3", "v": "c"}, "shopx"),
                tidb(21, "ALTER TABLE `ShopX`.`Invoices` ADD COLUMN `n` INT DEFAULT 7", "Invoices", "ShopX"),
                tidb_put(22, "Invoices", {"id": "4", "v": "d", "n": "8"}, "ShopX"),
            ],
        ),
        {
            "ShopX.Invoices": ("id v n", [(1, "a", 7), (2, "b", 7), (3, "c", 7), (4, "d", 8)], ()),
            "shopx.Unseen": ("id v", [(1, "a"), (2, "b")], ("unseen",)),
        },
    ),
    # ---- columns
    "columns": Case(
        (
            [
                run(1, "CREATE TABLE t (Id INT PRIMARY KEY, State VARCHAR(20), v VARCHAR(20))", "t"),
                put(2, "t", {"id": "1", "STATE": "a", "v": "x"}),
                change(3, "t", {"ID": "1", "state": "b", "v": "x"}, {"state": "a"}, key="ID"),
                run(4, "CREATE TABLE k (Id INT, V VARCHAR(20))", "k"),
                put(5, "k", {"id": "1", "v": "a"}, key=""),
                change(6, "k", {"ID": "1", "V": "b"}, {"V": "a"}, key=""),
                put(7, "seen", {"Id": "1", "V": "a"}, key="Id"),
                put(8, "seen", {"id": "2", "v": "b"}),
            ],
            [
                run(
                    20, "ALTER TABLE t DROP COLUMN STATE, RENAME COLUMN v TO V, ADD COLUMN Note VARCHAR(9) DEFAULT 'n'"
                ),
                put(21, "t", {"Id": "2", "v": "y", "NOTE": "m"}),
                change(22, "t", {"id": "1", "v": "z", "note": "n"}, {"v": "x"}),
                change(23, "seen", {"ID": "1", "v": "c"}, {"V": "a"}, key="ID"),
            ],
        ),
        {
            "columns.t": ("Id V Note", [(1, "z", "n"), (2, "y", "m")], ()),
            "columns.k": ("Id V", [(1, "b")], ()),
            "columns.seen": ("Id V", [(1, "c"), (2, "b")], ("unseen",)),
        },
    ),
    # ---- other mirror names
    "routed": Case(
        (
            [run(1, f"CREATE TABLE Orders {_KEYED}", "Orders"), run(2, f"CREATE TABLE Third {_KEYED}", "Third")],
            [put(20, "orders", {"id": "1", "v": "a"}), run(21, "TRUNCATE ORDERS", "ORDERS")]
            + [put(22, "orders", {"id": "2", "v": "b"})],
            [put(40, "third", {"id": "1", "v": "a"})],
        ),
        {"r.t_orders": ("id v", [(2, "b")], ()), "r.t_third": ("id v", [(1, "a")], ())},
    ),
    "merged": Case(
        (
            [run(1, f"CREATE TABLE A {_KEYED}", "A"), run(2, f"CREATE TABLE B {_KEYED}", "B")]
            + [put(3, "b", {"id": "1", "V": "x"})],
            [put(20, "a", {"id": "1", "v": "a"}), run(21, "TRUNCATE TABLE B", "B")],
        ),
        {"m.all": ("_source_database _source_table id v", [("merged", "a", 1, "a")], ())},
    ),
}
_SELECTION = TableSelection(routes=(Route("routed.*", "r.t_{table}"), Route("merged.*", "m.all", merge=True)))


@dataclass
class Ingested:
    paths: LakePaths
    entries: dict[str, MirrorEntry]


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    folder = tmp_path_factory.mktemp("case")
    paths = LakePaths(str(folder / "lake"), "shop")
    topics = {name: Topic(name) for name in CASES}
    for number in range(3):
        for name, case in CASES.items():
            for payload, partition in case.slices[number] if number < len(case.slices) else ():
                message = json.loads(payload)
                database = name if message["database"] == "db" else message["database"]
                topics[name].send(json.dumps(message | {"database": database}), partition)
            topics[name].write(folder / "captures", f"{number}-{name}.jsonl")
        ingest(spark, paths, folder / "captures", selection=_SELECTION)
    entries = published_entries(published_cut(Lake(spark, paths)), paths)
    return Ingested(paths, {str(entry.name): entry for entry in entries})


@pytest.mark.parametrize("name", CASES)
def test_the_mirrors_are_upstreams_tables(ingested: Ingested, spark: SparkSession, name: str) -> None:
    found = {}
    expected = CASES[name].tables
    databases = {name, *(mirror.split(".")[0] for mirror in expected)}
    for mirror, entry in ingested.entries.items():
        if mirror.split(".")[0].lower() in databases:
            rows = spark.read.format("delta").load(entry.path)
            own = [column for column in rows.columns if column not in ("_commit_ts", "_topic", "_partition", "_offset")]
            found[mirror] = (" ".join(own), sorted(map(tuple, rows.select(*own).collect()), key=str), entry.gaps)
    words = {
        mirror: (columns, rows, tuple(word for word in ("case", "unseen") if any(_has(word, gap) for gap in gaps)))
        for mirror, (columns, rows, gaps) in found.items()
    }
    assert words == expected, found
    assert all(len(gaps) == len(expected[mirror][2]) for mirror, (_, _, gaps) in found.items()), found


def _has(word: str, gap: str) -> bool:
    return {"case": "differ in case only", "unseen": "no CREATE TABLE was seen"}[word] in gap


def test_nothing_is_lost_or_counted_twice(ingested: Ingested, spark: SparkSession) -> None:
    balance = lake_balance(Lake(spark, ingested.paths))
    assert balance.is_balanced, balance
