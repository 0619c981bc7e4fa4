"""Gaps of columns that no row has, and of updates without a certain before image."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_pipeline.gaps import GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.planning.lacking_columns import filtered_columns, unsure_update_gaps
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema

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
