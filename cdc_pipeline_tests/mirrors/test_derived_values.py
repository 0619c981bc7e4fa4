"""Computed columns: one story in two cuts, of all ways in which rows come into a mirror; and a rebuild."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.cut import CutMaker
from cdc_pipeline.mirrors.derived import DerivedColumn
from cdc_pipeline.mirrors.derived_values import derived_problems
from cdc_pipeline.mirrors.masks import HASH
from cdc_pipeline.mirrors.rebuild import Rebuilder
from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.steps import NoteState
from cdc_pipeline.resources.delta import table_state
from cdc_pipeline.resources.lake import LakePaths
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.messages import Topic, canal, canal_ddl, ddl, row, watermark
from cdc_pipeline_tests.mirrors.test_masks import SALT, hashed, texts
from cdc_pipeline_tests.pipelines import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UPPER = DerivedColumn("upper", "string", "upper(V)")
_DERIVED = (
    (
        "db.s_*",
        (
            DerivedColumn("total", "decimal(12,2)", "price * quantity"),
            # what both have in common fails where quantity is 0
            DerivedColumn("ratio", "int", "price div quantity"),
            DerivedColumn("more", "int", "price div quantity + 1"),
        ),
    ),
    ("db.canal", (DerivedColumn("sum", "bigint", "a + b"), DerivedColumn("wrong", "int", "a + 1/0"))),
    ("db.p", (_UPPER,)),
    ("db.q", (DerivedColumn("lower", "string", "lower(v)"),)),
    ("db.[bl]*", (_UPPER, DerivedColumn("at", "timestamp_ntz", "to_timestamp_ntz(v)"))),
)
RULES = ColumnRules(
    masks=(("db.bag", (("w", HASH),)),),
    salt=SALT,
    derived=(*_DERIVED, ("db.bag", (DerivedColumn("w_", "string", "concat(w, '!')"),))),
)
LATER = ColumnRules(masks=(*RULES.masks, ("db.later", (("v", HASH),))), salt=SALT, derived=RULES.derived)


def _create(table: str, columns: str) -> str:
    return ddl(f"CREATE TABLE {table} ({columns})", 1)


def _sale(
    kind: str,
    table: str,
    step: int,
    *cells: str | None,
    old: dict[str, str | None] | None = None,
    names: str = "id price quantity",
) -> str:
    return row(kind, table, step, dict(zip(names.split(), cells, strict=True)), old=old, key=["id"])


def _text(kind: str, table: str, step: int, one: str, v: str, old: dict[str, str | None] | None = None) -> str:
    names = ("w", "v") if table == "bag" else ("id", "v")
    return row(
        kind, table, step, dict(zip(names, (one, v), strict=True)), old=old, key=[] if table == "bag" else ["id"]
    )


def _canal(kind: str, step: int, image: dict[str, str | None], old: dict[str, str | None] | None = None) -> str:
    return canal(kind, "canal", step, [image], old=old and [old], types=dict.fromkeys(image, "int"), key=["id"])


_SALE = "id INT PRIMARY KEY, price DECIMAL(10,2), quantity INT"
_TEXT = "id INT PRIMARY KEY, v VARCHAR(30)"
_PARTS = "PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE"
FIRST = (
    *(_create(name, _SALE) for name in ("s_keyed", "s_changed", "s_own", "draft")),
    *(_create(name, _TEXT) for name in ("later", "q")),
    _create("bag", "w VARCHAR(20), v VARCHAR(30)"),
    ddl(f"CREATE TABLE p ({_TEXT}) PARTITION BY RANGE (id) ({_PARTS})", 1),
    canal_ddl("CREATE TABLE canal (id INT PRIMARY KEY, a INT, b INT DEFAULT 4)", 1, table="canal", kind="CREATE"),
    *(_sale("INSERT", name, 2, "1", "1.50", "2") for name in ("s_keyed", "s_changed", "s_own", "draft")),
    _sale("INSERT", "s_keyed", 2, "2", "7.00", "0"),
    _sale("INSERT", "s_keyed", 2, "3", "99999999.99", "2000000000"),
    *(_text("INSERT", "bag", 2, "clear-w", v) for v in ("a", "a", "2026-01-02 03:04:05")),
    _text("INSERT", "later", 2, "1", "shown-v"),
    *(_text("INSERT", name, 2, place, "Vv") for name, place in (("p", "5"), ("p", "15"), ("q", "7"))),
    _canal("INSERT", 2, {"id": "1", "a": "1", "b": "2"}),
)  # fmt: skip
SECOND = (
    _sale("UPDATE", "s_keyed", 11, "1", "1.50", "3", old={"quantity": "2"}),
    _sale("UPDATE", "s_keyed", 11, "2", "7.00", "2", old={"quantity": "0"}),
    _sale("DELETE", "s_keyed", 11, "3", "99999999.99", "2000000000"),
    _sale("INSERT", "s_keyed", 12, "4", "1.00", "0"),
    # a type, then a name that is gone, then another column of that name
    ddl("ALTER TABLE s_changed MODIFY quantity BIGINT", 11),
    ddl("ALTER TABLE s_changed RENAME COLUMN price TO cost", 12),
    _sale("INSERT", "s_changed", 13, "2", "9.00", "4", names="id cost quantity"),
    ddl("ALTER TABLE s_changed ADD COLUMN price DECIMAL(10,2) DEFAULT 5", 14),
    ddl("ALTER TABLE s_own ADD COLUMN Total VARCHAR(5) DEFAULT 'own', ADD COLUMN note VARCHAR(5)", 11),
    ddl("RENAME TABLE draft TO s_final", 11),
    _sale("INSERT", "s_final", 12, "2", "9.00", "4"),
    _text("DELETE", "bag", 11, "clear-w", "a"),
    _text("INSERT", "bag", 12, "clear-w", "b"),
    _text("INSERT", "later", 12, "2", "shown-2"),
    ddl("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q", 12),
    # an image that lacks what is computed of, and an INSERT of which the rest are defaults
    _canal("UPDATE", 11, {"id": "1", "a": "5"}, {"a": "1"}),
    _canal("INSERT", 12, {"id": "2", "a": "1"}),
)
_MADE, _W = Decimal("1.50"), hashed("clear-w")
ROWS: dict[str, list[tuple[object, ...]]] = {
    "s_keyed": [
        (1, _MADE, 3, Decimal("4.50"), 0, 1),
        (2, Decimal("7.00"), 2, Decimal("14.00"), 3, 4),
        (4, Decimal("1.00"), 0, Decimal("0.00"), None, None),
    ],
    "s_changed": [
        (1, _MADE, 2, Decimal("5.00"), Decimal("10.00"), 2, 3),
        (2, Decimal("9.00"), 4, Decimal("5.00"), Decimal("20.00"), 1, 2),
    ],
    "s_own": [(1, _MADE, 2, "own", None, 0, 1)],
    "s_final": [(1, _MADE, 2, Decimal("3.00"), 0, 1), (2, Decimal("9.00"), 4, Decimal("36.00"), 2, 3)],
    "bag": [(_W, "2026-01-02 03:04:05", "2026-01-02 03:04:05"), (_W, "a", "A"), (_W, "b", "B")],
    "later": [(1, hashed("shown-v"), hashed("shown-v").upper()), (2, hashed("shown-2"), hashed("shown-2").upper())],
    "p": [(15, "Vv", "VV"), (7, "Vv", "VV")],
    "q": [(5, "Vv", "vv")],
    "canal": [(1, 5, 2, 7, None), (2, 1, 4, 5, None)],
}


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    folder, topic = tmp_path_factory.mktemp("derived"), Topic()
    paths = LakePaths(str(folder / "lake"), "shop")
    for number, (messages, rules) in enumerate(((FIRST, RULES), (SECOND, LATER))):
        for message in (*messages, watermark(10 + 10 * number)):
            topic.send(message)
        topic.write(folder / "captures", f"{number}.jsonl")
        ingest(spark, paths, folder / "captures", columns=rules)
    return paths


def _mirror(spark: SparkSession, paths: LakePaths, name: str) -> list[tuple[object, ...]]:
    """The rows without their trace, and of tables of texts without `at` and `w_`."""
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", name)))
    shown = [column for column in mirror.columns[:-4] if column not in ("at", "w_")]
    return sorted((tuple(found) for found in mirror.select(*shown).collect()), key=str)


def test_rows(told: LakePaths, spark: SparkSession) -> None:
    assert {name: _mirror(spark, told, name) for name in ROWS} == ROWS
    bag = spark.read.format("delta").load(told.mirror(TableName("db", "bag")))
    assert bag.columns[:5] == ["w", "v", "upper", "at", "w_"]
    assert sorted((str(found.at), found.w_) for found in bag.collect()) == [
        ("2026-01-02 03:04:05", f"{_W}!"), ("None", f"{_W}!"), ("None", f"{_W}!")
    ]  # fmt: skip


def test_what_is_said_of_mirrors(told: LakePaths, spark: SparkSession) -> None:
    states = []
    for name in ROWS:
        table = table_state(spark, told.mirror(TableName("db", name)))
        assert table is not None
        states.append(MirrorState.from_properties(table.properties))
        own = [(field.name, field.dataType) for field in states[-1].spark_schema()]
        assert [(field.name, field.dataType) for field in table.schema] == own
        assert states[-1].gaps == ()
    problems = derived_problems(spark, [NoteState(state) for state in states])
    assert [line for line in problems if "db.canal" not in line] == [
        "computed: db.s_own.total is not there: the mirror has a column of that name which is not computed",
    ]
    assert [line[:50] for line in problems if "db.canal" in line] == [
        "computed: db.canal.wrong is NULL: [DIVIDE_BY_ZERO]"
    ]


def test_no_file_has_what_is_masked_in_clear(told: LakePaths) -> None:
    files = [path for path in Path(told.mirror(TableName("db", "bag"))).rglob("*") if path.is_file()]
    assert len(files) > 3
    assert [str(path) for path in files if "clear-w" in texts(path).lower()] == []
    newest = max(Path(told.mirror(TableName("db", "later"))).glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    assert "shown-" not in texts(newest).lower()


def test_a_rebuild_is_equal_and_takes_up_what_is_declared_now(told: LakePaths, spark: SparkSession) -> None:
    # of what is declared otherwise only `canal` is made anew, to the value
    at = (DerivedColumn("at", "timestamp_ntz", "timestamp_ntz '2026-01-01 00:00:00'"),)
    rules = ColumnRules(masks=LATER.masks, salt=SALT, derived=(("db.canal", at), *RULES.derived))
    maker = CutMaker(spark, told, "again", "UTC", 2, lambda _: None, columns=rules)
    report = Rebuilder(maker, "auto").rebuilt()
    assert [table.table for table in report.tables if not table.equal] == ["mirror/db.canal"]
    mirror = spark.read.format("delta").load(told.mirror(TableName("db", "canal")))
    assert mirror.columns[:-4] == ["id", "a", "b", "at", "sum", "wrong"]
    assert [str(found.at) for found in mirror.collect()] == ["2026-01-01 00:00:00"] * 2
