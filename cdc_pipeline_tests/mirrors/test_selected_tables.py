"""`include`, `exclude` and `routes` in a lake: what is mirrored and counted, and what becomes of it when they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import subfolders
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts import cut_execution
from cdc_pipeline.mirrors.cuts.reading import read_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.selection import SELECTION_JSON, Route, TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.selected import Ingested, Message
from cdc_pipeline_tests.support.lakes.stories import ID_V, KEYED, TYPES, Table, change, create, put, update, wide
from cdc_pipeline_tests.support.messages import canal, canal_ddl, ddl, row, watermark_tso


def eu(kind: str, step: int, data: dict[str, str | None], old: dict[str, str | None] | None = None) -> Message:
    return row(kind, "orders", step, data, old=old, types=TYPES, key=["id"], database="eu"), 2


_SELECTION = TableSelection(("db.*", "eu.*"), ("db.tmp*", "db._*", "db.out"), (Route("eu.*", "db.eu_{table}"),))
_OTHER = TableSelection(("db.*", "eu.*"), ("db.tmp*", "db._*", "db.stays"), (Route("eu.*", "europe.{table}"),))
_SWAP = "RENAME TABLE orders TO _orders_del, _orders_gho TO orders"
_FIRST: list[Message] = [
    *(
        create("stays", 1),
        put("stays", 2, "1", "a"),
        create("out", 1),
        put("out", 2, "1", "x"),
        put("out", 3, "2", "y"),
    ),
    *(create("away", 1), put("away", 2, "1", "a"), change("RENAME TABLE away TO tmp_away", 3)),
    put("tmp_away", 4, "2", "b"),
    *(create("tmp_in", 1), put("tmp_in", 2, "1", "a"), change("RENAME TABLE tmp_in TO came_in", 3)),
    *(put("came_in", 4, "2", "b"), update("came_in", 5, ("2", "b"), ("2", "c"))),
    *(create("orders", 1), put("orders", 2, "1", "a")),
    create("_orders_gho", 3, "CREATE TABLE `{}` (`id` INT PRIMARY KEY,`v` VARCHAR(20),`n` INT DEFAULT 7)"),
    *(wide("INSERT", "_orders_gho", 4, {"id": "1", "v": "a", "n": "7"}), change(_SWAP, 5)),
    wide("INSERT", "orders", 6, {"id": "2", "v": "b", "n": "8"}),
    *(create("s1", 1), create("s2", 1, KEYED.replace("v`", "w`")), put("s1", 2, "1", "one")),
    change("RENAME TABLE s1 TO tmp_s, s2 TO s1, tmp_s TO s2", 3),
    put("s2", 4, "2", "two"),
    *(create("tmp_model", 1), change("CREATE TABLE likeness LIKE tmp_model", 2), put("likeness", 3, "1", "a")),
    (ddl("CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))", 1, database="eu", kind="CREATE"), 0),
    *(eu("INSERT", 2, {"id": "1", "v": "e"}), eu("UPDATE", 4, {"id": "1", "v": "f"}, {"id": "1", "v": "e"})),
    # above the watermark, so that the next cut tells what becomes of them
    *(put("stays", 15, "2", "b"), put("out", 15, "3", "z")),
]
_FOUND = {
    "db.stays": Table(ID_V, [("1", "a")]),
    "db.came_in": Table(ID_V, [("2", "c")], gaps=True),
    "db.orders": Table(("id", "v", "n"), [("2", "b", "8")], gaps=True),
    "db.s1": Table(("id", "w"), []),
    "db.s2": Table(ID_V, [("1", "one"), ("2", "two")]),
    "db.likeness": Table(ID_V, [("1", "a")], gaps=True),
    "db.eu_orders": Table(ID_V, [("1", "f")]),
}


def test_tables_that_are_in_and_out_and_change_sides(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested = Ingested(spark, tmp_path, _SELECTION)
    report = ingested.send(_FIRST, 10)
    ingested.assert_mirrors(_FOUND)
    assert (report.totals.filtered, report.totals.pending, report.totals.late) == (5, 2, 0)
    assert ingested.upstream("db.eu_orders") == ["eu.orders"]
    assert "earlier rows are missing" in ingested.gaps("db.orders")[0]
    assert [
        folder.rsplit("/", 1)[-1].split("@")[0] for folder in subfolders(spark, f"{ingested.paths.home}/dropped/db")
    ] == [
        "away",
        "orders",
    ]
    statuses = ingested.statuses()
    assert statuses["CREATE TABLE `out` (`id` INT PRIMARY KEY,`v` VARCHAR(20))"] == "not included"
    assert statuses.pop("CREATE TABLE likeness LIKE tmp_model") == "not applied yet"
    assert set(statuses.values()) == {"applied", "not included"}

    # re-deliveries and late changes: those of what is left out are no breach; the cut dies before it is published
    def dies(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    late = [put("stays", 2, "1", "a"), put("out", 2, "1", "x"), put("out", 4, "9", "never seen")]
    with monkeypatch.context() as patch:
        patch.setattr(cut_execution, "publish", dies)
        with pytest.raises(RuntimeError, match="killed"):
            ingested.send([*late, eu("INSERT", 12, {"id": "2", "v": "g"})], 20)
    # it is finished as it was begun, then comes a cut with the selection that is declared by now
    ingested.selection = _OTHER
    report = ingested.maker().advance()
    cuts = spark.read.format("delta").load(ingested.paths.table("consistent_cuts")).orderBy("cut_id").collect()
    assert [SELECTION_JSON.from_json(cut["selection"]) for cut in cuts] == [_SELECTION, _SELECTION, _OTHER]
    assert [(cut["filtered"], cut["late"], cut["breaches"], cut["pending"]) for cut in cuts] == [
        (5, 0, 0, 2),
        (3, 1, 0, 0),
        (0, 0, 0, 0),
    ]
    assert report.selection_changes == (
        "mirror db.stays is dropped: db.stays is no longer included",
        "mirror db.eu_orders is renamed to europe.orders",
        "db.out is newly included: mirror db.out starts without earlier rows",
    )
    moved = {name: table for name, table in _FOUND.items() if name not in ("db.stays", "db.eu_orders")}
    moved["europe.orders"] = Table(ID_V, [("1", "f"), ("2", "g")])
    assert ingested.upstream("europe.orders") == ["eu.orders"]
    ingested.assert_mirrors({**moved, "db.out": Table((), [], gaps=True)})
    assert "not included before cut 3" in ingested.gaps("db.out")[0]
    aside = [folder for folder in subfolders(spark, f"{ingested.paths.home}/dropped/db") if "/stays@" in folder]
    assert spark.read.format("delta").load(aside[0]).count() == 2
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced

    # a reader of the first cut sees the tables that it selected
    cut = read_cut(spark, ingested.paths.root, "p", watermark_tso(10))
    assert {"db.stays", "db.eu_orders"} <= {str(name) for name in cut}

    report = ingested.send(
        [put("out", 22, "4", "new"), put("stays", 22, "7", "gone"), eu("INSERT", 23, {"id": "3", "v": "h"})], 30
    )
    assert report.totals.filtered == 1
    moved["europe.orders"] = Table(ID_V, [("1", "f"), ("2", "g"), ("3", "h")])
    ingested.assert_mirrors({**moved, "db.out": Table(ID_V, [("4", "new")], gaps=True)})
    # a rebuild takes in what was left out before; what came by a RENAME stays without its rows
    Rebuilder(ingested.maker()).rebuild()
    rows = [("1", "x"), ("2", "y"), ("3", "z"), ("4", "new"), ("9", "never seen")]
    ingested.assert_mirrors({**moved, "db.out": Table(ID_V, rows)})
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    assert Rebuilder(ingested.maker()).rebuild().all_equal

    # two tables, one mirror: nothing is touched
    newest = published_cut(Lake(spark, ingested.paths)).cut_id
    ingested.selection = TableSelection(exclude=("db.stays",), routes=(Route("eu.orders", "db.orders"),))
    with pytest.raises(DeclarationError, match=r"db\.orders and eu\.orders would both be mirrored as db\.orders"):
        ingested.maker().advance()
    assert published_cut(Lake(spark, ingested.paths)).cut_id == newest
    ingested.assert_mirrors({**moved, "db.out": Table(ID_V, rows)})


def test_a_stream_without_watermarks(spark: SparkSession, tmp_path: Path) -> None:
    """Statements without a database find theirs among upstream's tables, not among those that are included."""
    ingested = Ingested(spark, tmp_path, TableSelection(("db.*",), (), (Route("db.*", "m.{table}"),)))
    tables = [("db", "a"), ("other", "a"), ("other", "b"), ("db", "c")]
    report = ingested.send(
        [
            (
                canal_ddl(
                    f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(5))", 1, database=database, table=table
                ),
                0,
            )
            for database, table in tables
        ]
        + [
            (canal("INSERT", table, 2, [{"id": "1", "v": database}], key=["id"], database=database), 0)
            for database, table in tables
        ],
        None,
    )
    assert report.totals.filtered == 2
    report = ingested.send(
        [
            (canal_ddl("ALTER TABLE a ADD COLUMN n INT", 3, database=""), 0),
            (canal_ddl("ALTER TABLE b ADD COLUMN n INT", 3, database=""), 0),
            (canal_ddl("ALTER TABLE c ADD COLUMN n INT DEFAULT 5", 3, database=""), 0),
            (canal("UPDATE", "b", 4, [{"id": "1", "v": "x"}], old=[{"v": "other"}], key=["id"], database="other"), 0),
        ],
        None,
    )
    assert report.totals.filtered == 1
    ingested.assert_mirrors(
        {"m.a": Table(ID_V, [("1", "db")], gaps=True), "m.c": Table((*ID_V, "n"), [("1", "db", "5")])}
    )
    statuses = ingested.statuses()
    assert [statuses[f"ALTER TABLE {table} ADD COLUMN n INT"] for table in "ab"] == ["not applied yet", "not included"]
    assert table_state(spark, ingested.paths.mirror(TableName("m", "b"))) is None
