"""Columns that only messages tell of: the schema of a table whose CREATE TABLE was never seen, and what it grows by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.state import UNSEEN_LOAD, UNSEEN_START
from cdc_pipeline.mysql.ddl.column_types import KNOWN_TYPES, type_in_words
from cdc_pipeline.mysql.expressions.conversions import INTEGERS
from cdc_pipeline.mysql.model.table import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mysql.model.table import MySqlType


def inferred_schema(groups: Sequence[RowGroup]) -> TableSchema:
    """Columns in the order of the rows' images, types as the messages name them, the key as they name it."""
    # an image of the key alone says nothing of its place among the others
    whole_first = sorted(groups, key=lambda group: group.only_key)
    names = tuple(dict.fromkeys(column for group in whole_first for column in group.columns))
    keys = {group.key_names for group in groups}
    key = keys.pop() if len(keys) == 1 else ()
    return TableSchema(
        columns=tuple(Column(name, _type(name, groups), nullable=name not in key) for name in names),
        primary_key=key if all(name in names for name in key) else (),
    )


def first_commit_ts(groups: Sequence[RowGroup]) -> int | None:
    """The `commit_ts` of the first of these rows; None where none is known."""
    return min((group.first_ts for group in groups if group.first_ts is not None), default=None)


def unseen_start(groups: Sequence[RowGroup]) -> Gap:
    """The gap of a table that these rows are the first of. DataWorks sends the rows that are there before the changes, as
    INSERTs like any others: nothing tells where they begin or end, or that they were sent at all."""
    return UNSEEN_LOAD if all(trait_of(group.dialect, Trait.LOADS_FIRST) for group in groups) else UNSEEN_START


def widened_schema(
    schema: TableSchema, groups: Sequence[RowGroup], *, inferred: bool
) -> tuple[TableSchema, tuple[Column, ...]]:
    """The schema with the columns that these rows have more, and those alone. `inferred`: rows have made it, and tell of
    its other columns, too."""
    added = _new_columns(schema, groups)
    kept = tuple(_repaired_column(column, groups) for column in schema.columns) if inferred else schema.columns
    return schema.with_columns((*kept, *added)), added


def untold_columns_gaps(added: Sequence[Column], example: str = "") -> list[Gap]:
    """The gaps of columns that rows have and that no statement has made; `example` is the table of a merged mirror."""
    words = "rows have columns that no DDL has told of"
    return [Gap(GapKind.UNTOLD_COLUMN, words, column.name, example=example) for column in added]


def _new_columns(schema: TableSchema, groups: Sequence[RowGroup]) -> tuple[Column, ...]:
    """The columns that rows have and the schema has not."""
    names = dict.fromkeys(column for group in groups for column in group.columns if schema.find(column) is None)
    return tuple(Column(name, _type(name, groups)) for name in names)


def _repaired_column(column: Column, groups: Sequence[RowGroup]) -> Column:
    """The column as the newest messages have it: what no statement, or one that could not be read, has made of it.

    Messages may name less than a definition (`decimal` without digits, `enum` without labels): what they leave out stays.
    A DECIMAL holds all that was seen: never rounded (DESIGN §5).
    """
    named = [words for group in groups if (words := group.types.mysql_types.get(column.name))]
    if not named:
        return column
    kind, now = column.type, type_in_words(named[-1])
    if kind.base == now.base == "decimal":
        widest = _type(column.name, groups)
        return replace(column, type=_wider(kind, widest)) if kind.params and widest.params else column
    if now.base not in KNOWN_TYPES or column.generated is not None:
        return column
    if kind.base != now.base or (kind.unsigned != now.unsigned and kind.base in INTEGERS):
        return replace(column, type=now)
    if now.members and now.members != kind.members:
        return replace(column, type=replace(kind, members=now.members))
    return column


def _type(name: str, groups: Sequence[RowGroup]) -> MySqlType:
    """What the messages say of the column; DECIMALs as wide as the widest."""
    found = [type_in_words(words) for group in groups if (words := group.types.mysql_types.get(name))]
    if not found:
        return type_in_words("")
    kind = found[0]
    for other in found[1:]:
        if kind.base == other.base == "decimal" and kind.params and other.params:
            kind = _wider(kind, other)
    return kind


def _wider(one: MySqlType, other: MySqlType) -> MySqlType:
    scales = [kind.params[1] if len(kind.params) > 1 else 0 for kind in (one, other)]
    digits = max(kind.params[0] - scale for kind, scale in zip((one, other), scales, strict=True))
    return replace(one, params=(digits + max(scales), max(scales)))
