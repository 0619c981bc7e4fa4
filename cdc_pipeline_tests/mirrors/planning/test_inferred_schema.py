"""Tables without a CREATE TABLE in the stream: their columns come from messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.gaps import GapKind, gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.state import UNSEEN_START, MirrorState
from cdc_pipeline.mirrors.planning.inferred_schema import (
    filtered_columns,
    inferred_schema,
    unsure_update_gaps,
    widened_schema,
)
from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, row


def _group(columns: str, types: Mapping[str, str] | None = None, key: str = "", segment: int = 0) -> RowGroup:
    return RowGroup(
        name=TableName("db", "t"),
        segment=segment,
        columns=tuple(columns.split()),
        key_names=tuple(key.split()),
        changes=1,
        dialect="ticdc",
        has_after=True,
        position=(1, "t", 0, 0),
        types=MessageTypes(dict(types or {})),
    )


def _shown(columns: tuple[Column, ...]) -> list[str]:
    return [f"{column.name} {column.type}" + ("" if column.nullable else " not null") for column in columns]


# ---- groups → columns, key


class _Schema(NamedTuple):
    groups: list[RowGroup]
    columns: list[str]
    key: tuple[str, ...] = ()


_SCHEMAS = {
    "as the images have them": _Schema(
        [_group("b A c", {"A": "int", "b": "varchar(5)", "c": "bigint unsigned"}, key="A")],
        ["b varchar(5)", "A int not null", "c bigint unsigned"],
        ("A",),
    ),
    "columns of later groups come after": _Schema(
        [
            _group("a b", {"a": "int", "b": "int"}),
            _group("c b d", {"b": "bigint", "c": "date", "d": "text"}, segment=1),
        ],
        ["a int", "b int", "c date", "d text"],
    ),
    "no type is text": _Schema([_group("a b", {"a": "int"})], ["a int", "b "]),
    "a type that only a later group names": _Schema([_group("a"), _group("a", {"a": "int"})], ["a int"]),
    "words that are no type": _Schema([_group("a", {"a": "INT("})], ["a int("]),
    "the widest digits and the widest scale": _Schema(
        [_group("d", {"d": text}) for text in ("decimal(5,2)", "decimal(4,4)", "decimal(10,0)", "decimal(3)")],
        ["d decimal(14,4)"],
    ),
    "a decimal without digits does not count": _Schema(
        [_group("d", {"d": "decimal(5,2)"}), _group("d", {"d": "decimal"})], ["d decimal(5,2)"]
    ),
    "unsigned stays": _Schema(
        [_group("d", {"d": "decimal(5,2) unsigned"}), _group("d", {"d": "decimal(7,2) unsigned"})],
        ["d decimal(7,2) unsigned"],
    ),
    "key columns in the order of the key": _Schema(
        [_group("a b", key="b a")], ["a  not null", "b  not null"], ("b", "a")
    ),
    "two keys are none": _Schema([_group("a b", key="a"), _group("a b", key="b")], ["a ", "b "]),
    "a key that rows do not have is none": _Schema([_group("a", key="x")], ["a "]),
}


@pytest.mark.parametrize("case", _SCHEMAS.values(), ids=_SCHEMAS)
def test_inferred_schema(case: _Schema) -> None:
    found = inferred_schema(case.groups)
    assert (_shown(found.columns), found.primary_key) == (case.columns, case.key)


def test_new_columns() -> None:
    schema = TableSchema((Column("a", type_or_text("int")), Column("B", type_or_text("int"))), ("a",))
    cases = {
        "a b": [],  # MySQL compares names without case
        "a B c": ["c "],
        "d a c": ["d ", "c "],
    }

    def added(*groups: RowGroup) -> list[str]:
        wider, columns = widened_schema(schema, groups, inferred=False)
        assert wider.columns == (*schema.columns, *columns)
        return _shown(columns)

    assert {columns: added(_group(columns)) for columns in cases} == cases
    groups = [_group("c", {"c": "decimal(3,1)"}), _group("c e", {"c": "decimal(4,0)", "e": "int"}, key="e")]
    assert added(*groups) == ["c decimal(5,1)", "e int"]


# (column's type, types of messages) → the type that holds all values, or the newest if the type changed without DDL
_REPAIRED: dict[tuple[str, tuple[str, ...]], str] = {
    ("decimal(5,2)", ("decimal(4,2)",)): "decimal(5,2)",
    ("decimal(5,2)", ("decimal(7,2)",)): "decimal(7,2)",
    ("decimal(5,2)", ("decimal(5,4)",)): "decimal(7,4)",
    ("decimal(5,2)", ("decimal(6,0)", "decimal(3,3)")): "decimal(9,3)",
    ("decimal(5,2)", ("decimal(39,0)",)): "decimal(41,2)",
    ("decimal(5,2)", ("decimal",)): "decimal(5,2)",
    ("decimal(5,2)", ()): "decimal(5,2)",
    ("decimal(5,2)", ("varchar(5)",)): "varchar(5)",
    ("decimal(5,2)", ("some words",)): "decimal(5,2)",
    ("decimal(5,2) unsigned", ("decimal(7,2)",)): "decimal(7,2) unsigned",
    ("decimal(5)", ("decimal(5,1)",)): "decimal(6,1)",
    ("decimal", ("decimal(7,2)",)): "decimal",
    ("int", ("decimal(7,2)",)): "decimal(7,2)",
    ("int", ("bigint",)): "bigint",
    ("int", ("int", "bigint unsigned")): "bigint unsigned",
    ("int unsigned", ("int",)): "int",
    ("int", ("int(11)",)): "int",
    ("enum('a')", ("enum",)): "enum('a')",
    ("enum('a')", ("enum('b','a')",)): "enum('b','a')",
}


@pytest.mark.parametrize(("case", "wanted"), _REPAIRED.items(), ids=str)
def test_repaired_column(case: tuple[str, tuple[str, ...]], wanted: str) -> None:
    before, seen = case
    column = Column("d", type_or_text(before), nullable=False)
    groups = [_group("d", {"d": text}) for text in seen]
    (found,) = widened_schema(TableSchema((column,)), groups, inferred=True)[0].columns
    assert (str(found.type), found.name, found.nullable) == (wanted, "d", False)


# ---- in a lake: rows of TiCDC without the TiDB extension and without DDL, in two batches


class _Column(NamedTuple):
    """The values of a column in two batches, as upstream sends them, and the mirror's type after each."""

    words: str | None
    batches: tuple[list[str | None], list[str | None]]
    types: tuple[str, str]
    gap: str | None = None


_COLUMNS = {
    "wider": _Column(
        "decimal",
        (["-12.25", "0.001", "-0"], ["123456.7891", "-0.0001", "999999"]),
        ("decimal(5,3)", "decimal(10,4)"),
    ),
    "more_digits_only": _Column("decimal", (["7"], ["-12345678901234567890"]), ("decimal(1,0)", "decimal(20,0)")),
    "more_scale_only": _Column("decimal", (["0.5"], ["0." + "0" * 29 + "1"]), ("decimal(1,1)", "decimal(30,30)")),
    "never_narrower": _Column("decimal", (["1234.567"], ["1", "2.0"]), ("decimal(7,3)", "decimal(7,3)")),
    "nulls_first": _Column("decimal", ([None, None], ["12.5"]), ("decimal(1,0)", "decimal(3,1)")),
    "at_the_most_digits": _Column("decimal", (["1"], ["9" * 28 + "." + "9" * 10]), ("decimal(1,0)", "decimal(38,10)")),
    "beyond_the_most": _Column("decimal", (["1" * 20 + ".5", "7"], ["9" * 38]), ("decimal(21,1)", "string")),
    "beyond_at_once": _Column("decimal", (["9" * 35 + "." + "9" * 30], ["1.25"]), ("string", "string")),
    "unsigned": _Column("decimal unsigned", (["1.5"], ["22.25"]), ("decimal(2,1)", "decimal(4,2)")),
    "enumerated": _Column("enum", (["2", "0"], ["1", None]), ("string", "string"), "labels of the enum are not known"),
    "several": _Column("set", (["3"], ["0"]), ("string", "string"), "labels of the set are not known"),
    "typeless": _Column(None, (["x", ""], ["5", None]), ("string", "string"), "its type is not known"),
    "strange": _Column("hyperint", (["x"], ["5"]), ("string", "string"), "is not a known MySQL type"),
    "plain": _Column("int", (["5"], ["-6"]), ("int", "int")),
}


_ROWS = 3
_NAME = TableName("db", "t")


def _texts(place: int, number: int) -> dict[str, str | None]:
    """One row of a batch; NULL for a column with fewer values."""
    batches = {name: column.batches[place] for name, column in _COLUMNS.items()}
    return {name: (batch + [None] * _ROWS)[number] for name, batch in batches.items()}


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[LakePaths, list[dict[str, str]]]:
    """The lake after both batches, and the types of the mirror after each batch."""
    folder = tmp_path_factory.mktemp("inferred")
    paths, topic, types = LakePaths(str(folder / "lake"), "shop"), Topic(), []
    words = {"id": "int"} | {name: column.words for name, column in _COLUMNS.items() if column.words is not None}
    for place in range(2):
        for number in range(_ROWS):
            data = {"id": str(_ROWS * place + number), **_texts(place, number)}
            topic.send(row("INSERT", "t", place + 1, data, types=words, key=["id"], extension=False))
        topic.write(folder / "captures", f"{place}.jsonl")
        assert ingest(spark, paths, folder / "captures", run_id=str(place)).published
        mirror = spark.read.format("delta").load(paths.mirror(_NAME))
        types.append({field.name: field.dataType.simpleString() for field in mirror.schema})
    return paths, types


@pytest.fixture(scope="module")
def values(ingested: tuple[LakePaths, list[dict[str, str]]], spark: SparkSession) -> dict[int, dict[str, str | None]]:
    mirror = spark.read.format("delta").load(ingested[0].mirror(_NAME))
    rows = mirror.select("id", *(F.col(name).cast("string").alias(name) for name in _COLUMNS)).collect()
    assert len(rows) == 2 * _ROWS
    return {row["id"]: row.asDict() for row in rows}


def _number(text: str | None) -> Any:
    return None if text is None else Decimal(text)


@pytest.mark.parametrize("name", _COLUMNS)
def test_the_mirror_is_as_wide_as_its_values(
    ingested: tuple[LakePaths, list[dict[str, str]]], values: dict[int, dict[str, str | None]], name: str
) -> None:
    case = _COLUMNS[name]
    assert tuple(found[name] for found in ingested[1]) == case.types
    wanted = {_ROWS * place + number: _texts(place, number)[name] for place in range(2) for number in range(_ROWS)}
    found = {key: row[name] for key, row in values.items()}
    if (case.words or "").startswith("decimal"):
        assert {key: _number(text) for key, text in found.items()} == {
            key: _number(text) for key, text in wanted.items()
        }
    else:
        assert found == wanted


def test_unknown_types_are_gaps(ingested: tuple[LakePaths, list[dict[str, str]]], spark: SparkSession) -> None:
    table = table_state(spark, ingested[0].mirror(_NAME))
    assert table is not None
    state = MirrorState.from_properties(table.properties)
    assert state.inferred
    assert state.schema.primary_key == ("id",)
    wanted = {name: case.gap for name, case in _COLUMNS.items() if case.gap is not None}
    assert UNSEEN_START in state.gaps
    assert len(state.gaps) == len(wanted) + 1
    assert {
        name: any(f"column {name}: " in gap and text in gap for gap in gap_texts(state.gaps))
        for name, text in wanted.items()
    } == (dict.fromkeys(wanted, True))


def test_no_row_is_a_dead_letter(ingested: tuple[LakePaths, list[dict[str, str]]], spark: SparkSession) -> None:
    assert spark.read.format("delta").load(ingested[0].table("dead_letters")).count() == 0


def test_a_new_column_whose_name_parquet_cannot_hold(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """The mirror was created without column mapping, which the new column enables."""
    topic = Topic()
    for place, data in enumerate(({"id": "1"}, {"id": "2", "a b": "x"})):
        topic.send(row("INSERT", "t", place + 1, dict(data), key=["id"], extension=False))
        topic.write(tmp_path / "captures", f"{place}.jsonl")
        ingest(spark, paths, tmp_path / "captures", run_id=str(place))
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", "t")))
    assert sorted(map(tuple, mirror.select("id", "`a b`").collect())) == [("1", None), ("2", "x")]


_INT = MySqlType("int")
_SCHEMA = TableSchema(
    (
        Column("id", _INT, nullable=False),
        Column("v", _INT),
        Column("memo", MySqlType("text")),
        Column("sum", _INT, generated="virtual"),
    ),
    ("id",),
)
_ALL = ("id", "v", "memo", "sum")
_UPDATE = RowGroup(TableName("db", "t"), 0, ("ID", "v"), ("id",), 3, "canal", True, (1, "t", 0, 0))
_INSERT = replace(_UPDATE, is_insert=True)
_MINIMAL = replace(_UPDATE, columns=("v",), key_names=(), bare_updates=3)
_BARE = replace(_UPDATE, bare_updates=1)


@pytest.mark.parametrize(
    ("groups", "first", "columns"),
    [
        ((_INSERT, _UPDATE), True, ["memo"]),
        ((_UPDATE,), False, []),
        ((_UPDATE, _BARE), False, ["memo"]),
        ((_INSERT,), True, []),
        ((_INSERT, _MINIMAL), True, []),
        ((_MINIMAL,), False, []),
        ((_UPDATE, replace(_INSERT, columns=_ALL)), True, []),
        ((replace(_UPDATE, columns=_ALL),), True, []),
        ((replace(_UPDATE, dialect="ticdc"),), True, []),
        ((replace(_UPDATE, dialect="dataworks", bare_updates=3),), True, []),
        ((replace(_UPDATE, handle_key_only=True),), True, []),
    ],
)
def test_filtered_columns(groups: tuple[RowGroup, ...], first: bool, columns: list[str]) -> None:
    assert [column.name for column in filtered_columns(_SCHEMA, ("id",), groups, first=first)] == columns
    assert filtered_columns(_SCHEMA, (), groups, first=first) == []


def test_unsure_updates_are_counted() -> None:
    groups = [replace(_UPDATE, unsure_updates=number) for number in (0, 2, 3)]
    (gap,) = unsure_update_gaps(groups)
    assert gap.kind == GapKind.UNSURE_UPDATES
    assert str(gap).startswith("5 UPDATE(s)")
    assert unsure_update_gaps(groups[:1]) == ()
