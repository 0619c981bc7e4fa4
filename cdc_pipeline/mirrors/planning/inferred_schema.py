"""Columns as messages show them: their spelling, those that no DDL declared, and those that some rows lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.state import UNSEEN_LOAD, UNSEEN_START, MirrorState
from cdc_pipeline.mysql.ddl.column_types import KNOWN_TYPES, type_or_text
from cdc_pipeline.mysql.expressions.conversions import INTEGERS
from cdc_pipeline.mysql.expressions.translation import can_translate_generated
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableSchema


def column_spellings(groups: Sequence[RowGroup], state: MirrorState | None) -> dict[str, str]:
    """Name in the messages → name in the mirror, of columns that they spell otherwise: in another case, which upstream never
    distinguishes, or with each back-tick twice, as Canal copies them from the definition (canal-facts 14). A new column is
    spelled as in the first message that has it."""
    names = {} if state is None else {name.casefold(): name for name in state.schema.column_names}
    found: dict[str, str] = {}
    for group in groups:
        doubles = dialect_has_trait(group.dialect, Trait.DOUBLES_BACK_TICKS)
        for name in (*group.columns, *group.key_names):
            folded = name.casefold()
            single = folded.replace("``", "`") if doubles else folded
            if (known := names.setdefault(single if single in names else folded, name)) != name:
                found[name] = known
    return found


def with_spellings(group: RowGroup, spellings: Mapping[str, str]) -> RowGroup:
    """The group with its columns as the mirror spells them."""

    def spelled(name: str) -> str:
        return spellings.get(name, name)

    types = replace(
        group.types,
        mysql_types={spelled(name): text for name, text in group.types.mysql_types.items()},
        encodings={spelled(name): encoding for name, encoding in group.types.encodings.items()},
    )
    columns, key = (tuple(map(spelled, names)) for names in (group.columns, group.key_names))
    return replace(group, columns=columns, key_names=key, types=types)


def inferred_schema(groups: Sequence[RowGroup]) -> TableSchema:
    """The schema that the messages describe: columns in the order of the row images, their types, and the key."""
    # an image with the handle key only does not show the order of columns
    full_first = sorted(groups, key=lambda group: group.handle_key_only)
    names = tuple(dict.fromkeys(column for group in full_first for column in group.columns))
    keys = {group.key_names for group in groups}
    key = keys.pop() if len(keys) == 1 else ()
    return TableSchema(
        columns=tuple(Column(name, _type(name, groups), nullable=name not in key) for name in names),
        primary_key=key if all(name in names for name in key) else (),
    )


def unseen_start(groups: Sequence[RowGroup]) -> Gap:
    """The gap of a table whose first rows these are.

    DataWorks loads existing rows as plain INSERTs before the changes: nothing marks the start or end of the load.
    """
    return UNSEEN_LOAD if all(dialect_has_trait(group.dialect, Trait.LOADS_FIRST) for group in groups) else UNSEEN_START


def widened_schema(
    schema: TableSchema, groups: Sequence[RowGroup], *, inferred: bool
) -> tuple[TableSchema, tuple[Column, ...]]:
    """The schema with the columns that only the rows have, and these columns alone.

    inferred: the schema comes from rows, so that the rows also correct its other columns; without columns, they define it.
    """
    if inferred and not schema.columns:
        return inferred_schema(groups), ()
    added = _new_columns(schema, groups)
    kept = tuple(_repaired_column(column, groups) for column in schema.columns) if inferred else schema.columns
    return schema.with_columns((*kept, *added)), added


def undeclared_column_gaps(added: Sequence[Column], example: str = "") -> list[Gap]:
    """The gaps of columns that rows have and no DDL declared. `example`: the source table of a merged mirror."""
    detail = "rows have columns that no DDL declared"
    return [Gap(GapKind.UNDECLARED_COLUMN, detail, column.name, example=example) for column in added]


def _new_columns(schema: TableSchema, groups: Sequence[RowGroup]) -> tuple[Column, ...]:
    names = dict.fromkeys(column for group in groups for column in group.columns if schema.find(column) is None)
    return tuple(Column(name, _type(name, groups)) for name in names)


def _repaired_column(column: Column, groups: Sequence[RowGroup]) -> Column:
    """The column with the type of the newest message.

    Messages may omit parts of a type (the digits of `decimal`, the labels of `enum`): these parts stay. A DECIMAL is as
    wide as the widest value so far, and never rounded (DESIGN §5).
    """
    texts = [text for group in groups if (text := group.types.mysql_types.get(column.name))]
    if not texts:
        return column
    kind, newest = column.type, type_or_text(texts[-1])
    if kind.base == newest.base == "decimal":
        widest = _type(column.name, groups)
        return replace(column, type=_wider(kind, widest)) if kind.params and widest.params else column
    if newest.base not in KNOWN_TYPES or column.generated is not None:
        return column
    if kind.base != newest.base or (kind.unsigned != newest.unsigned and kind.base in INTEGERS):
        return replace(column, type=newest)
    if newest.members and newest.members != kind.members:
        return replace(column, type=replace(kind, members=newest.members))
    return column


def _type(name: str, groups: Sequence[RowGroup]) -> MySqlType:
    """The column's type in the first message that has it; for a DECIMAL, the widest of all."""
    found = [type_or_text(text) for group in groups if (text := group.types.mysql_types.get(name))]
    if not found:
        return type_or_text("")
    kind = found[0]
    for other in found[1:]:
        if kind.base == other.base == "decimal" and kind.params and other.params:
            kind = _wider(kind, other)
    return kind


def _wider(one: MySqlType, other: MySqlType) -> MySqlType:
    scales = [kind.params[1] if len(kind.params) > 1 else 0 for kind in (one, other)]
    digits = max(kind.params[0] - scale for kind, scale in zip((one, other), scales, strict=True))
    return replace(one, params=(digits + max(scales), max(scales)))


def partial_columns(schema: TableSchema, key: Sequence[str], groups: Sequence[RowGroup]) -> list[Column]:
    """The columns that some rows lack. An UPDATE keeps their values. `key`: the columns that identify a row."""
    if not key:
        return []  # all columns together identify a row of a keyless table
    return [column for column in _absent_columns(schema, groups) if column.generated != "virtual"]


def unknown_columns(state: MirrorState, key: Sequence[str], groups: Sequence[RowGroup]) -> list[Column]:
    """The columns whose values are unknown in some rows.

    Rows with their handle key only do not count: the merge reports those that no other message completes.
    """
    if not key:
        # a DELETE that lacks columns finds no row: the encoder sends only a key that the mirror does not have
        return _absent_columns(state.schema, groups, in_deletes=True)
    inserts = [group for group in groups if group.is_insert and not group.handle_key_only]
    with_defaults = [
        group for group in inserts if dialect_has_trait(group.dialect, Trait.ABSENT_IS_DEFAULT) and not state.inferred
    ]
    without_defaults = [group for group in inserts if group not in with_defaults]
    virtual = [column for column in _absent_columns(state.schema, groups) if column.generated == "virtual"]
    no_constant = [column for column in _absent_columns(state.schema, with_defaults) if not column.has_constant_default]
    missing = {*virtual, *no_constant, *_absent_columns(state.schema, without_defaults)}
    return [column for column in state.schema.columns if column in missing]


def computed_columns(schema: TableSchema, unknown: Sequence[Column], time_zone: str) -> tuple[Column, ...]:
    """The unknown columns that are generated by an expression which Spark can compute."""
    return tuple(column for column in unknown if can_translate_generated(column, schema, time_zone))


def columns_missing_in_deletes(state: MirrorState, key: tuple[str, ...], groups: Sequence[RowGroup]) -> list[Column]:
    """The columns that some deletes lack, for a soft-delete mirror; empty for others."""
    if not state.has_soft_delete or not key:
        return []
    deletes = [{name.casefold() for name in group.columns} for group in groups if not group.has_after]
    return [column for column in state.schema.columns if any(column.name.casefold() not in names for names in deletes)]


def columns_in_no_row(columns: Iterable[Column], groups: Sequence[RowGroup]) -> list[Column]:
    """Those of the columns that no row has, such as virtual columns from TiCDC."""
    present = {name.casefold() for group in groups for name in group.columns}
    return [column for column in columns if column.name.casefold() not in present]


def filtered_columns(
    schema: TableSchema, key: Sequence[str], groups: Sequence[RowGroup], *, first: bool
) -> list[Column]:
    """The columns of a definition that the encoder seems to filter out: no row has them, though whole rows were updated.

    MINIMAL omits columns too, but its UPDATEs lack the key. NOBLOB omits columns that did not change, so rows show a filter
    only if they are the `first` ones of the mirror, or if UPDATEs have no before image: no column that was sent changed.
    """
    lowered = {name.casefold() for name in key}
    updates = [
        group
        for group in groups
        if group.has_after
        and not group.is_insert
        and not group.handle_key_only
        and dialect_has_trait(group.dialect, Trait.ABSENT_IS_DEFAULT)
        and lowered <= {name.casefold() for name in group.columns}
    ]
    if not key or not any(first or group.bare_updates for group in updates):
        return []
    sent = {name.casefold() for group in groups if group.has_after for name in group.columns}
    return [column for column in schema.columns if column.generated is None and column.name.casefold() not in sent]


def unsure_update_gaps(groups: Sequence[RowGroup]) -> tuple[Gap, ...]:
    """The gap of the UPDATEs of a keyless table whose before image is not certain."""
    number = sum(group.unsure_updates for group in groups)
    if not number:
        return ()
    detail = (
        f"{number} UPDATE(s) of a table without a key do not show which of their columns were NULL before, because the "
        "encoder omits NULLs: these columns are taken as unchanged"
    )
    return (Gap(GapKind.UNSURE_UPDATES, detail),)


def exported_twice_gaps(state: MirrorState, groups: Sequence[RowGroup]) -> tuple[Gap, ...]:
    """The gap of a keyless table that changed while it was exported: its rows may have these changes already."""
    if not state.exported_until or all(group.oldest_es > state.exported_until for group in groups):
        return ()
    detail = (
        "rows of a table without a key changed while it was exported: these changes may count twice; export it again"
    )
    return (Gap(GapKind.UNKNOWN_DUPLICATES, detail),)


def _absent_columns(schema: TableSchema, groups: Sequence[RowGroup], *, in_deletes: bool = False) -> list[Column]:
    images = [group.columns for group in groups if group.has_after or in_deletes]
    present = [{name.casefold() for name in columns} for columns in images]
    return [column for column in schema.columns if any(column.name.casefold() not in names for names in present)]
